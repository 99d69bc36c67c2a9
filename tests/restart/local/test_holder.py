"""Who holds the TPU is ended, step by step; and nobody else, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.restart.local.machine import Desk
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.ledger.base import ConflictError, Stored
from tpuwatch.restart.local.settings import LocalSettings
from tpuwatch.restart.local.system import Ran
from tpuwatch.restart.record import Phase, Record, Target

LADDER = ["SIGINT", "SIGTERM", "SIGQUIT", "SIGKILL"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_one_that_ends_at_once_gets_one_signal(desk: Desk) -> None:
    desk.system.add(40, ends_on=("SIGINT",))
    ended = desk.end(40)
    assert (ended.phase, ended.stops, desk.system.sent) == (Phase.DONE, 1, [(40, "SIGINT")])
    assert ended.note == (
        "Process 40 has let go of the TPU. It is free, and libtpu's lock file, which nobody held, is removed."
    )
    assert [(one.rung, one.phase, one.stops) for one in ended.history] == [(Rung.END_HOLDER, Phase.DONE, 1)]
    assert not ended.lease.owner


def test_one_that_ignores_them_gets_all_of_them_with_grace_between(desk: Desk) -> None:
    desk.system.add(40)
    began = desk.clock.monotonic()
    assert desk.end(40).phase is Phase.DONE
    assert desk.system.sent == [(40, name) for name in LADDER]
    assert 70 <= desk.clock.monotonic() - began < 71


def test_a_grace_of_nothing_leaves_a_signal_out(desk: Desk) -> None:
    desk.system.add(40)
    desk.end(40, settings=LocalSettings(sigint_seconds=0, sigquit_seconds=0))
    assert [name for _, name in desk.system.sent] == ["SIGTERM", "SIGKILL"]


def test_one_that_lets_go_of_the_tpu_is_left_alone_though_it_lives(desk: Desk) -> None:
    desk.system.add(40, lets_go_on=("SIGTERM",))
    assert desk.end(40).phase is Phase.DONE
    assert [name for _, name in desk.system.sent] == ["SIGINT", "SIGTERM"]
    assert 40 in desk.system.processes


def test_what_it_is_is_on_the_disk_before_the_first_signal(desk: Desk) -> None:
    desk.system.add(40, group=39, parent=39)
    desk.system.add(39, holds=False)
    desk.system.add(41, parent=40, holds=False)
    desk.system.programs = {"py-spy": "/usr/bin/py-spy"}
    desk.system.answer = lambda _: Ran(0, 'Thread 40 (idle): "MainThread"\n    wait (train.py:7)\n')
    written: list[Record] = []

    def look(_: int) -> None:
        stored = desk.ledger.read(Target("lab", "us-east5-a", "train-1"))
        assert stored is not None
        written.append(stored.record)

    desk.system.before_send = look
    desk.end(40)
    assert [(one.phase, one.operation) for one in written] == [(Phase.INTENT, name) for name in LADDER]
    assert (written[0].operations, written[0].boot_id) == (("holder/40/1000",), "boot-1")
    assert written[0].evidence[1:] == (
        "Process 40 of alice: python3 train-40.py, started 2026-09-21T11:26:40Z (tick 1000), state S, parent 39, "
        "process group 39, cgroup cgroup of 40; holds /dev/vfio/0; children: 41.",
        'Stack of process 40 by py-spy: Thread 40 (idle): "MainThread" | wait (train.py:7)',
    )
    assert desk.system.ran == [(("/usr/bin/py-spy", "dump", "--nonblocking", "--pid", "40"), {})]


def test_a_stack_that_cannot_be_had_hinders_nothing(desk: Desk) -> None:
    desk.system.add(40)
    desk.system.programs = {"py-spy": "/usr/bin/py-spy"}
    desk.system.answer = lambda _: Ran(1, "Error: Permission denied\n")
    ended = desk.end(40)
    assert ended.phase is Phase.DONE
    assert ended.evidence[-1] == "py-spy could not show the stack of process 40: Error: Permission denied."


def test_a_group_of_its_own_goes_with_it(desk: Desk) -> None:
    desk.system.add(40, ends_on=("SIGINT",))
    desk.system.add(41, parent=40, group=40, holds=False)
    desk.system.add(42, parent=41, group=42, holds=False)  # a session of its own, which holds nothing
    desk.end(40)
    assert desk.system.sent == [(40, "SIGINT"), (41, "SIGINT")]


def test_a_group_with_a_stranger_in_it_does_not(desk: Desk) -> None:
    desk.system.add(39, holds=False)  # the shell script that has started both
    desk.system.add(40, parent=39, group=39, ends_on=("SIGINT",))
    desk.system.add(41, parent=40, group=39, holds=False)
    desk.system.add(43, parent=39, group=39, holds=False)
    assert desk.end(40).phase is Phase.DONE
    assert desk.system.sent == [(40, "SIGINT")]


def test_children_that_hold_the_tpu_too_go_with_it(desk: Desk) -> None:
    desk.system.add(40, ends_on=("SIGTERM",))
    desk.system.add(41, parent=40, group=41, ends_on=("SIGQUIT",))
    assert desk.end(40).operations == ("holder/40/1000", "holder/41/1000")
    assert desk.system.sent == [
        (40, "SIGINT"),
        (41, "SIGINT"),
        (40, "SIGTERM"),
        (41, "SIGTERM"),
        (41, "SIGQUIT"),
    ]


def test_one_that_came_to_the_number_is_never_hit(desk: Desk) -> None:
    desk.system.add(40)

    def reuse(_: int) -> None:
        if len(desk.system.sent) == 1:
            desk.system.add(40, ticks=2000, started=desk.clock.time())

    desk.system.before_send = reuse
    ended = desk.end(40)
    assert (ended.phase, desk.system.sent) == (Phase.DONE, [(40, "SIGINT")])
    assert "It is in use anew: by process 40" in ended.note
    assert desk.system.removed == 0


@pytest.mark.parametrize("reused", [False, True])
def test_who_lets_go_between_two_signals_of_a_round_gets_none(desk: Desk, reused: bool) -> None:
    desk.system.add(40, ends_on=("SIGINT",))
    other = desk.system.add(41, parent=40, group=41)

    def change(pid: int) -> None:
        if pid == 40 and reused:
            desk.system.add(41, ticks=2000, started=desk.clock.time())
        elif pid == 40:
            other.holds = False

    desk.system.before_send = change
    assert desk.end(40).phase is Phase.DONE
    assert desk.system.sent == [(40, "SIGINT")]


def test_one_that_came_to_the_number_before_the_intent_is_not_taken_for_it(desk: Desk) -> None:
    then = desk.system.add(40).holder
    desk.system.add(40, ticks=2000, started=then.started + 60 if then.started else None)
    desk.want(Rung.END_HOLDER)
    ended = desk.driver((then,)).drive()
    assert (ended.phase, desk.system.sent) == (Phase.CANCELLED, [])
    assert "is another process by now (40)" in ended.note


@pytest.mark.parametrize(
    ("pid", "fields", "why"),
    [
        (1, {}, "is the first one"),
        (2, {"kernel": True}, "is a thread of the kernel"),
        (500, {}, "is tpuwatch itself"),
        (499, {}, "has started tpuwatch"),
    ],
)
def test_who_is_never_touched(desk: Desk, pid: int, fields: dict[str, Any], why: str) -> None:
    desk.system.add(499, holds=False)
    desk.system.add(500, parent=499, holds=False)
    desk.system.add(pid, parent=499 if pid == 500 else 1, **fields)
    desk.system.add(501, parent=pid)  # a child that holds it too gives no reason
    ended = desk.end(pid)
    assert (ended.phase, ended.stops, desk.system.sent) == (Phase.NEEDS_PERSON, 0, [])
    assert f"process {pid} {why}" in ended.note


def test_one_that_has_let_go_before_is_not_ended(desk: Desk) -> None:
    holder = desk.system.add(40).holder
    desk.system.processes[40].holds = False
    desk.want(Rung.END_HOLDER)
    assert desk.driver((holder,)).drive().phase is Phase.CANCELLED
    assert desk.driver((holder,)).drive().phase is Phase.CANCELLED
    assert desk.system.sent == []


def test_without_anybody_at_fault_nothing_is_done(desk: Desk) -> None:
    desk.system.add(40)
    ended = desk.end()
    assert (ended.phase, desk.system.sent) == (Phase.CANCELLED, [])


def test_a_request_of_long_ago_is_called_off(desk: Desk) -> None:
    holder = desk.system.add(40).holder
    desk.want(Rung.END_HOLDER)
    desk.clock.advance(700)
    assert desk.driver((holder,)).drive().phase is Phase.CANCELLED
    assert desk.system.sent == []


def test_one_in_the_kernel_is_said_to_be_there(desk: Desk) -> None:
    desk.system.add(40, state="D", ends_on=())
    ended = desk.end(40)
    assert (ended.phase, len(desk.system.sent), desk.system.removed) == (Phase.FAILED, 4, 0)
    assert ended.note.startswith("Process 40 is blocked in the kernel (state D)")


def test_threads_that_outlive_the_first_one_still_hold_it(desk: Desk) -> None:
    one = desk.system.add(40, ends_on=())

    def half_dead(_: int) -> None:
        if len(desk.system.sent) == 3:
            one.state, one.holds = "Z", False

    desk.system.before_send = half_dead
    ended = desk.end(40)
    assert (ended.phase, ended.note) == (Phase.FAILED, "Process 40 still holds the TPU after SIGKILL.")


def test_who_may_not_be_signalled_is_for_a_person(desk: Desk) -> None:
    desk.system.add(40, denied=True)
    ended = desk.end(40)
    assert (ended.phase, ended.stops) == (Phase.NEEDS_PERSON, 0)
    assert "tpuwatch-act.conf" in ended.note
    assert "`sudo kill 40`" in ended.note


def test_a_tpu_that_others_held_before_is_not_free(desk: Desk) -> None:
    desk.system.add(40, ends_on=("SIGINT",))
    desk.system.add(77)
    ended = desk.end(40)
    assert (ended.phase, desk.system.removed, desk.system.sent) == (Phase.FAILED, 0, [(40, "SIGINT")])
    assert "process 77" in ended.note


def test_where_not_all_can_be_seen_the_lock_file_stays(desk: Desk) -> None:
    desk.system.add(40)
    desk.system.unseen = ("The open files of 3 processes cannot be seen.",)
    ended = desk.end(40)
    assert (ended.phase, desk.system.removed) == (Phase.DONE, 0)
    assert "Whether it is free is not known." in ended.note


def test_a_lock_file_that_may_not_be_removed_is_no_failure(desk: Desk) -> None:
    desk.system.add(40)
    desk.system.lock_file = (False, "tpuwatch may not")
    ended = desk.end(40)
    assert (ended.phase, ended.note[-46:]) == (Phase.DONE, " libtpu's lock file is left: tpuwatch may not.")


def test_an_end_that_is_wanted_leaves_the_record_to_the_next(desk: Desk) -> None:
    holder = desk.system.add(40, ends_on=("SIGTERM",)).holder
    desk.want(Rung.END_HOLDER)
    left = desk.driver((holder,), wait=lambda _: bool(desk.system.sent)).drive()
    assert (left.phase, left.operation, left.lease.owner, desk.system.grips) == (Phase.INTENT, "SIGINT", "", 0)
    assert desk.driver().drive().phase is Phase.DONE
    assert [name for _, name in desk.system.sent] == ["SIGINT", "SIGINT", "SIGTERM"]


def test_what_was_broken_off_long_ago_is_not_carried_on(desk: Desk) -> None:
    holder = desk.system.add(40).holder
    desk.want(Rung.END_HOLDER)
    desk.driver((holder,), wait=lambda _: bool(desk.system.sent)).drive()
    desk.clock.advance(3600)
    ended = desk.driver().drive()
    assert (ended.phase, desk.system.sent) == (Phase.FAILED, [(40, "SIGINT")])
    assert "broken off long ago" in ended.note


def test_after_a_boot_the_same_numbers_are_others(desk: Desk) -> None:
    holder = desk.system.add(40).holder
    desk.want(Rung.END_HOLDER)
    desk.driver((holder,), wait=lambda _: bool(desk.system.sent)).drive()
    desk.system.boot = "boot-2"
    desk.system.processes[40].started = desk.clock.time() + 50
    ended = desk.driver().drive()
    assert (ended.phase, desk.system.sent) == (Phase.DONE, [(40, "SIGINT")])


def test_a_driver_that_was_overtaken_sends_nothing_more(desk: Desk) -> None:
    desk.system.add(40)

    def overtake(_: int) -> None:
        if not desk.system.sent:
            desk.put(note="Somebody else has it.")

    desk.system.before_send = overtake
    with pytest.raises(ConflictError, match="taken over"):
        desk.end(40)
    assert desk.system.sent == [(40, "SIGINT")]


def test_no_leavings(desk: Desk) -> None:
    desk.system.add(40, state="D", ends_on=())
    desk.end(40)
    assert desk.system.grips == 0


# -- a driver that dies


class Killed(BaseException):
    """What a SIGKILL would do."""


class MortalLedger:
    """Lets its driver die at a write: before it is done, or right after it."""

    def __init__(self, desk: Desk, dies_at: int, *, after: bool) -> None:
        self.desk, self.dies_at, self.after = desk, dies_at, after
        self.writes = 0
        self.dead = False

    def read(self, target: Target) -> Stored | None:
        return self.desk.ledger.read(target)

    def write(self, record: Record, version: int) -> Stored:
        if self.dead:
            raise Killed
        self.writes += 1
        self.dead = self.writes == self.dies_at
        if self.dead and not self.after:
            raise Killed
        stored = self.desk.ledger.write(record, version)
        if self.dead:
            raise Killed
        return stored


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 10))
@pytest.mark.parametrize("replaced", [False, True])
def test_whoever_dies_at_any_write_the_next_one_finishes_and_hits_nobody_new(
    desk: Desk, dies_at: int, after: bool, replaced: bool
) -> None:
    holder = desk.system.add(40).holder
    desk.want(Rung.END_HOLDER)
    ledger: Any = MortalLedger(desk, dies_at, after=after)
    try:
        desk.driver((holder,), ledger=ledger).drive()
    except Killed:
        pass
    else:
        assert ledger.writes < dies_at
    if replaced and 40 in desk.system.processes:
        desk.system.add(40, ticks=5000, started=desk.clock.time() + 1)
        desk.clock.advance(2)
    sent = list(desk.system.sent)
    ended = desk.driver().drive()
    assert ended.phase in (Phase.DONE, Phase.CANCELLED)
    assert not ended.open
    names = [LADDER.index(name) for _, name in desk.system.sent]
    assert names == sorted(names)  # never back to the beginning
    if replaced:
        assert desk.system.sent == sent
    assert replace(ended, note="") == replace(desk.driver().drive(), note="")  # it has ended for good
