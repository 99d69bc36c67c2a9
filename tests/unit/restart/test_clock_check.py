"""A clock that jumps frees no budget and removes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.standins.buckets import Machine, storage_running
from tests.unit.restart.records import NOW, record, written
from tests.unit.restart.restart_side import Side, turned
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.text import length
from tpuwatch.model.restart import Attempt, Phase
from tpuwatch.model.verdict import Action
from tpuwatch.restart.clock_check import ClockCheck
from tpuwatch.restart.policy.budgets import LedgerView
from tpuwatch.restart.service import RestartService

HOUR = 3600.0
DAY = 24 * HOUR
JUMPS = (25 * HOUR, 90 * DAY, -25 * HOUR, -90 * DAY, 130.0, -130.0)


@dataclass
class Fixed:
    """The time by a server."""

    now: float | None = None

    def __call__(self) -> float | None:
        return self.now


@pytest.mark.parametrize("jump", JUMPS)
def test_without_a_server_the_clock_has_to_go_on_as_time_does(jump: float) -> None:
    clock = ManualClock(NOW)
    check = ClockCheck(clock, {})
    clock.advance(3 * DAY)
    assert check.problem(LedgerView()) == ""
    clock.wall += jump
    word = "ahead" if jump > 0 else "behind"
    assert f" {word} against the time since tpuwatch began; restart tpuwatch" in check.problem(None)
    clock.wall -= jump
    assert check.problem(None) == ""


@pytest.mark.parametrize("jump", JUMPS)
def test_with_a_server_its_time_decides(jump: float) -> None:
    clock, server = ManualClock(NOW), Fixed(NOW + 5)
    check = ClockCheck(clock, {"the first": Fixed(), "the server": server, "the last": Fixed(NOW)})
    clock.wall += jump
    assert "by the server" in check.problem(None)
    server.now = clock.time()  # the clock was wrong before, and is set right
    assert check.problem(LedgerView({"x": record(entered=clock.time() + DAY)})) == ""


def test_a_clock_behind_what_was_written_is_wrong() -> None:
    """Where tpuwatch begins with such a clock nothing else shows it."""
    check = ClockCheck(ManualClock(NOW), {"the server": Fixed()})
    assert check.problem(LedgerView({"x": record(entered=NOW + 100)})) == ""
    view = LedgerView({"x": record(entered=NOW + 25 * HOUR)})
    assert check.problem(view) == "this machine's clock is 25 h behind by the newest record in the ledger"


def test_the_bucket_says_what_time_it_is() -> None:
    clock = ManualClock(NOW)
    with storage_running(clock) as server:
        machine = Machine(server, clock)
        assert machine.ledger.server_time() is None
        machine.ledger.records()
        assert machine.ledger.server_time() == pytest.approx(NOW, abs=1)
        clock.wall += 90 * DAY  # here alone
        clock.mono += 30
        assert machine.ledger.server_time() == pytest.approx(NOW + 30, abs=1)
        machine.ledger.close()


def google_says(side: Side, time: float) -> None:
    """The time by the Cloud TPU API, as its latest answer had it."""
    side.posted = replace(side.posted, server_epoch=time - side.clock.monotonic())


@pytest.mark.parametrize("ahead", [25 * HOUR, 90 * DAY])
def test_a_clock_that_is_ahead_from_the_start_frees_no_budget(side: Side, ahead: float) -> None:
    """Nothing on this machine shows it: the newest record is past by it, and it goes on as time does."""
    used_up(side)
    before = side.ledger.records()
    side.clock.wall += ahead
    watch = side.watch(same_cause_seconds=0.0)
    google_says(side, NOW)
    for _ in range(3):
        side.clock.advance(30)
        side.stuck("train-1")
        turned(watch)
    assert side.driven == []
    assert side.ledger.records() == before
    assert side.audited()[-1][2] == "clock"
    (called,) = [one for one in side.called if one["blocked"].value == "clock"]
    assert f"{length(ahead)} ahead by Google's servers" in called["text"]
    side.clock.wall -= ahead  # it is set right, and nobody restarts tpuwatch
    side.clock.advance(30)
    side.stuck("train-1")
    turned(watch)
    assert side.audited()[-1][2] == "node_budget"


def used_up(side: Side) -> RestartService:
    """A daemon, and a node whose restarts of the day are used up."""
    past = tuple(
        Attempt(Action.RESTART_NODE, "job_stuck", NOW - age, NOW - age + 60, Phase.DONE, 1, "x")
        for age in (2 * HOUR, 8 * HOUR, 16 * HOUR)
    )
    side.ledger.put(record(phase=Phase.DONE, entered=NOW - 2 * HOUR + 60, requested=NOW - 2 * HOUR, history=past))
    return side.watch()


@pytest.mark.parametrize("jump", [0.0, *JUMPS])
def test_no_jump_lets_a_node_be_restarted_whose_budget_is_used_up(side: Side, jump: float) -> None:
    watch = used_up(side)
    side.stuck("train-1")
    turned(watch)
    before = side.ledger.records()
    side.clock.wall += jump
    for _ in range(3):
        side.clock.advance(30)
        side.stuck("train-1")
        turned(watch)
    assert side.driven == []
    assert side.ledger.records() == before
    # By a clock that is far behind the node seems to have booted in the future.
    assert side.audited()[-1][2] in (("clock", "boot_grace") if jump else ("node_budget",))
    if jump > 0:
        assert [one["blocked"].value for one in side.called].count("clock") == 1


def test_a_clock_that_is_right_again_blocks_nothing(side: Side) -> None:
    watch = side.watch()
    watch.turn()
    side.clock.wall += 25 * HOUR
    side.stuck("train-1")
    turned(watch)
    assert side.driven == []
    side.clock.wall -= 25 * HOUR
    side.clock.advance(30)
    side.stuck("train-1")
    turned(watch)
    assert side.driven == [("train-1", Action.RESTART_NODE)]
    assert written(side.ledger, side.ledger.records()[0].record.target).record.requested == side.clock.time()
