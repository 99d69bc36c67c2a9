"""Who holds the TPU is ended, step by step; and no other process, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.restart.local.machine import Desk
from tests.unit.restart.records import written
from tpuwatch.config.restart import RestartConfig
from tpuwatch.core.errors import ConflictError
from tpuwatch.model.restart import Lease, Phase, ProcessId, RestartRecord, Target
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.local.system import CommandOutcome

LADDER = ["SIGINT", "SIGTERM", "SIGQUIT", "SIGKILL"]


def test_one_that_ends_at_once_gets_one_signal(context: Desk) -> None:
    context.system.add(40, ends_on=("SIGINT",))
    ended = context.end(40)
    assert (ended.phase, ended.stops, context.system.sent) == (Phase.DONE, 1, [(40, "SIGINT")])
    assert ended.note == (
        "Process 40 has let go of the TPU. It is free, and libtpu's lock file, which no process held, is removed."
    )
    assert [(one.action, one.phase, one.stops) for one in ended.history] == [(Action.END_HOLDER, Phase.DONE, 1)]
    assert not ended.lease.owner


def test_a_grace_of_nothing_leaves_a_signal_out(context: Desk) -> None:
    context.system.add(40)
    context.end(40, settings=RestartConfig(sigint_seconds=0, sigquit_seconds=0))
    assert [name for _, name in context.system.sent] == ["SIGTERM", "SIGKILL"]


def test_one_that_lets_go_of_the_tpu_is_left_alone_though_it_lives(context: Desk) -> None:
    context.system.add(40, lets_go_on=("SIGTERM",))
    assert context.end(40).phase is Phase.DONE
    assert [name for _, name in context.system.sent] == ["SIGINT", "SIGTERM"]
    assert 40 in context.system.processes


def test_what_it_is_is_on_the_disk_before_the_first_signal(context: Desk) -> None:
    context.system.add(40, group=39, parent=39)
    context.system.add(39, holds=False)
    context.system.add(41, parent=40, holds=False)
    context.system.programs = {"py-spy": "/usr/bin/py-spy"}
    context.system.answer = lambda _: CommandOutcome(0, 'Thread 40 (idle): "MainThread"\n    wait (train.py:7)\n')
    seen: list[RestartRecord] = []

    def look(_: int) -> None:
        seen.append(written(context.ledger).record)

    context.system.before_send = look
    context.end(40)
    assert [(one.phase, one.machine.act) for one in seen] == [(Phase.INTENT, name) for name in LADDER]
    assert (seen[0].machine.processes, seen[0].boot_id) == ((ProcessId(40, 1000),), "boot-1")
    assert seen[0].evidence[1:] == (
        "Process 40 of alice: python3 train-40.py, started 2026-09-21T11:26:40Z (tick 1000), state S, parent 39, "
        "process group 39, cgroup cgroup of 40; holds /dev/vfio/0; children: 41.",
        'Stack of process 40 by py-spy: Thread 40 (idle): "MainThread" | wait (train.py:7)',
    )
    assert context.system.ran == [(("/usr/bin/py-spy", "dump", "--nonblocking", "--pid", "40"), {})]


def test_a_stack_that_cannot_be_had_hinders_nothing(context: Desk) -> None:
    context.system.add(40)
    context.system.programs = {"py-spy": "/usr/bin/py-spy"}
    context.system.answer = lambda _: CommandOutcome(1, "Error: Permission denied\n")
    ended = context.end(40)
    assert ended.phase is Phase.DONE
    assert ended.evidence[-1] == "py-spy could not show the stack of process 40: Error: Permission denied."


def test_a_group_of_its_own_goes_with_it(context: Desk) -> None:
    context.system.add(40, ends_on=("SIGINT",))
    context.system.add(41, parent=40, group=40, holds=False)
    context.system.add(42, parent=41, group=42, holds=False)  # a session of its own, which holds nothing
    context.end(40)
    assert context.system.sent == [(40, "SIGINT"), (41, "SIGINT")]


def test_children_that_hold_the_tpu_too_go_with_it(context: Desk) -> None:
    context.system.add(40, ends_on=("SIGTERM",))
    context.system.add(41, parent=40, group=41, ends_on=("SIGQUIT",))
    ended = context.end(40)
    assert ended.machine.processes == (ProcessId(40, 1000), ProcessId(41, 1000))
    assert ended.note.startswith("Processes 40 and 41 have let go of the TPU.")
    assert context.system.sent == [
        (40, "SIGINT"),
        (41, "SIGINT"),
        (40, "SIGTERM"),
        (41, "SIGTERM"),
        (41, "SIGQUIT"),
    ]


def test_one_that_came_to_the_number_is_never_hit(context: Desk) -> None:
    context.system.add(40)

    def reuse(_: int) -> None:
        if len(context.system.sent) == 1:
            context.system.add(40, ticks=2000, started=context.clock.time())

    context.system.before_send = reuse
    ended = context.end(40)
    assert (ended.phase, context.system.sent) == (Phase.DONE, [(40, "SIGINT")])
    assert "It is in use again: by process 40" in ended.note
    assert context.system.removed == 0


@pytest.mark.parametrize("reused", [False, True])
def test_who_lets_go_between_two_signals_of_a_round_gets_none(context: Desk, reused: bool) -> None:
    context.system.add(40, ends_on=("SIGINT",))
    other = context.system.add(41, parent=40, group=41)

    def change(pid: int) -> None:
        if pid == 40 and reused:
            context.system.add(41, ticks=2000, started=context.clock.time())
        elif pid == 40:
            other.holds = False

    context.system.before_send = change
    assert context.end(40).phase is Phase.DONE
    assert context.system.sent == [(40, "SIGINT")]


def test_one_that_came_to_the_number_before_the_intent_is_not_taken_for_it(context: Desk) -> None:
    then = context.system.add(40).holder
    context.system.add(40, ticks=2000, started=then.started + 60 if then.started else None)
    context.want(Action.END_HOLDER)
    ended = context.driver((then,)).drive()
    assert (ended.phase, context.system.sent) == (Phase.CANCELLED, [])
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
def test_who_is_never_touched(context: Desk, pid: int, fields: dict[str, Any], why: str) -> None:
    context.system.add(499, holds=False)
    context.system.add(500, parent=499, holds=False)
    context.system.add(pid, parent=499 if pid == 500 else 1, **fields)
    context.system.add(501, parent=pid)  # a child that holds it too gives no reason
    ended = context.end(pid)
    assert (ended.phase, ended.stops, context.system.sent) == (Phase.NEEDS_OPERATOR, 0, [])
    assert f"process {pid} {why}" in ended.note


def test_one_that_has_let_go_before_is_not_ended(context: Desk) -> None:
    holder = context.system.add(40).holder
    context.system.processes[40].holds = False
    context.want(Action.END_HOLDER)
    assert context.driver((holder,)).drive().phase is Phase.CANCELLED
    assert context.driver((holder,)).drive().phase is Phase.CANCELLED
    assert context.system.sent == []


def test_without_anybody_at_fault_nothing_is_done(context: Desk) -> None:
    context.system.add(40)
    ended = context.end()
    assert (ended.phase, context.system.sent) == (Phase.CANCELLED, [])


def test_a_request_of_long_ago_is_called_off(context: Desk) -> None:
    holder = context.system.add(40).holder
    context.want(Action.END_HOLDER)
    context.clock.advance(700)
    assert context.driver((holder,)).drive().phase is Phase.CANCELLED
    assert context.system.sent == []


def test_one_in_the_kernel_is_said_to_be_there(context: Desk) -> None:
    context.system.add(40, state="D", ends_on=())
    ended = context.end(40)
    assert (ended.phase, len(context.system.sent), context.system.removed) == (Phase.FAILED, 4, 0)
    assert ended.note.startswith("Process 40 is blocked in the kernel (state D)")
    assert context.system.handles == 0


def test_threads_that_outlive_the_first_one_still_hold_it(context: Desk) -> None:
    one = context.system.add(40, ends_on=())

    def half_dead(_: int) -> None:
        if len(context.system.sent) == 3:
            one.state, one.holds = "Z", False

    context.system.before_send = half_dead
    ended = context.end(40)
    assert (ended.phase, ended.note) == (Phase.FAILED, "Process 40 still holds the TPU after SIGKILL.")


def test_who_may_not_be_signalled_is_for_a_person(context: Desk) -> None:
    context.system.add(40, denied=True)
    ended = context.end(40)
    assert (ended.phase, ended.stops) == (Phase.NEEDS_OPERATOR, 0)
    assert "tpuwatch-act.conf" in ended.note
    assert "`sudo kill 40`" in ended.note


def test_a_tpu_that_others_held_before_is_not_free(context: Desk) -> None:
    context.system.add(40, ends_on=("SIGINT",))
    context.system.add(77)
    ended = context.end(40)
    assert (ended.phase, context.system.removed, context.system.sent) == (Phase.FAILED, 0, [(40, "SIGINT")])
    assert "process 77" in ended.note


def test_where_not_all_can_be_seen_the_lock_file_stays(context: Desk) -> None:
    context.system.add(40)
    context.system.unseen = ("The open files of 3 processes cannot be seen.",)
    ended = context.end(40)
    assert (ended.phase, context.system.removed) == (Phase.DONE, 0)
    assert "Whether it is free is not known." in ended.note


def test_a_lock_file_that_may_not_be_removed_is_no_failure(context: Desk) -> None:
    context.system.add(40)
    context.system.lock_file = (False, "tpuwatch may not")
    ended = context.end(40)
    assert (ended.phase, ended.note[-46:]) == (Phase.DONE, " libtpu's lock file is left: tpuwatch may not.")


def test_an_end_that_is_wanted_leaves_the_record_to_the_next(context: Desk) -> None:
    holder = context.system.add(40, ends_on=("SIGTERM",)).holder
    context.want(Action.END_HOLDER)
    left = context.driver((holder,), wait=lambda _: bool(context.system.sent)).drive()
    assert (left.phase, left.machine.act, left.lease.owner, context.system.handles) == (Phase.INTENT, "SIGINT", "", 0)
    assert context.driver().drive().phase is Phase.DONE
    assert [name for _, name in context.system.sent] == ["SIGINT", "SIGINT", "SIGTERM"]


def test_what_was_broken_off_long_ago_is_not_carried_on(context: Desk) -> None:
    holder = context.system.add(40).holder
    context.want(Action.END_HOLDER)
    context.driver((holder,), wait=lambda _: bool(context.system.sent)).drive()
    context.clock.advance(3600)
    ended = context.driver().drive()
    assert (ended.phase, context.system.sent) == (Phase.FAILED, [(40, "SIGINT")])
    assert "interrupted long ago" in ended.note


def test_after_a_boot_the_same_numbers_are_others(context: Desk) -> None:
    holder = context.system.add(40).holder
    context.want(Action.END_HOLDER)
    context.driver((holder,), wait=lambda _: bool(context.system.sent)).drive()
    context.system.boot = "boot-2"
    context.system.processes[40].started = context.clock.time() + 50
    ended = context.driver().drive()
    assert (ended.phase, context.system.sent) == (Phase.DONE, [(40, "SIGINT")])
    assert ended.note.startswith("Process 40 has let go of the TPU.")


def test_a_driver_that_was_overtaken_sends_nothing_more(context: Desk) -> None:
    context.system.add(40)

    def overtake(_: int) -> None:
        if not context.system.sent:
            context.put(lease=Lease("elsewhere/b/1/2/r"))

    context.system.before_send = overtake
    with pytest.raises(ConflictError, match="taken over"):
        context.end(40)
    assert context.system.sent == [(40, "SIGINT")]


# -- a driver that dies


class Killed(BaseException):
    """What a SIGKILL would do."""


class MortalLedger:
    """Lets its driver die at a write: before it is done, or right after it."""

    def __init__(self, context: Desk, dies_at: int, *, after: bool) -> None:
        self.context, self.dies_at, self.after = context, dies_at, after
        self.writes = 0
        self.dead = False

    def read(self, target: Target) -> Stored | None:
        return self.context.ledger.read(target)

    def write(self, record: RestartRecord, version: int) -> Stored:
        if self.dead:
            raise Killed
        self.writes += 1
        self.dead = self.writes == self.dies_at
        if self.dead and not self.after:
            raise Killed
        stored = self.context.ledger.write(record, version)
        if self.dead:
            raise Killed
        return stored


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 10))
@pytest.mark.parametrize("replaced", [False, True])
def test_whoever_dies_at_any_write_the_next_one_finishes_and_hits_nobody_new(
    context: Desk, dies_at: int, after: bool, replaced: bool
) -> None:
    holder = context.system.add(40).holder
    context.want(Action.END_HOLDER)
    ledger: Any = MortalLedger(context, dies_at, after=after)
    try:
        context.driver((holder,), ledger=ledger).drive()
    except Killed:
        pass
    else:
        assert ledger.writes < dies_at
    if replaced and 40 in context.system.processes:
        context.system.add(40, ticks=5000, started=context.clock.time() + 1)
        context.clock.advance(2)
    sent = list(context.system.sent)
    ended = context.driver().drive()
    assert ended.phase in (Phase.DONE, Phase.CANCELLED)
    assert not ended.open
    names = [LADDER.index(name) for _, name in context.system.sent]
    assert names == sorted(names)  # never back to the beginning
    if replaced:
        assert context.system.sent == sent
    assert replace(ended, note="") == replace(context.driver().drive(), note="")  # it has ended for good
