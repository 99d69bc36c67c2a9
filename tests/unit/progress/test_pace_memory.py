"""The pace over restarts of the daemon, with a real store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.model import Cause, StepReport
from tpuwatch.progress.pace_memory import MAX_RECALLS, PaceMemory
from tpuwatch.progress.tracker import ProgressTracker
from tpuwatch.store import EventStore

PATH = "/jobs/2026-11-28/train.log"


class Daemon:
    """The part of a daemon that knows loops, and a job whose output it reads."""

    def __init__(self, store: EventStore, clock: ManualClock, boot_id: str = "boot") -> None:
        self.clock = clock
        self.memory = PaceMemory(store, clock=clock, boot_id=boot_id, command=lambda pid: f"train.py --run={pid}")
        self.tracker = ProgressTracker(stall_seconds=600.0, recall=self.memory.recall)
        self.begun: list[Cause] = []

    def output(self, first: int, last: int, seconds: float, path: str = PATH) -> None:
        for step in range(first, last):
            self.clock.advance(seconds)
            report = StepReport(step, step_seconds=seconds)
            self.tracker.output(path, report, pid=None, process=None, at=self.clock.time())
            self.turn()

    def heartbeats(self, first: int, last: int, seconds: float, process: int = 1) -> None:
        for step in range(first, last):
            self.clock.advance(seconds)
            report = StepReport(step, step_seconds=seconds)
            at = self.clock.time()
            self.tracker.heartbeat("", report, pid=7, process=process, user="alice", steps=1, at=at)
            self.turn()

    def turn(self) -> None:
        self.begun += [one.cause for one in self.tracker.tick(self.clock.time(), lambda *_: True)]
        self.memory.keep(self.tracker.paces)

    def stop(self) -> None:
        self.memory.keep(self.tracker.paces, all_of_them=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_790_000_000.0)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[EventStore]:
    store = EventStore.open(tmp_path, clock)
    yield store
    store.close()


def test_a_restart_of_the_daemon_loses_no_baseline(store: EventStore, clock: ManualClock) -> None:
    before = Daemon(store, clock)
    before.output(0, 400, 10.0)
    before.stop()
    after = Daemon(store, clock)
    after.output(405, 600, 11.2)
    (loop,) = after.tracker.loops
    assert loop.slowdown is not None
    assert loop.usual_step_seconds == pytest.approx(10.0, rel=0.01)
    assert after.begun == [Cause.SLOW_STEPS]


def test_a_slow_down_that_was_told_is_shown_and_not_told_again(store: EventStore, clock: ManualClock) -> None:
    before = Daemon(store, clock)
    before.heartbeats(0, 400, 10.0)
    before.heartbeats(400, 600, 11.2)
    assert before.begun == [Cause.SLOW_STEPS]
    after = Daemon(store, clock)  # killed: what was told is stored when it is told
    after.heartbeats(600, 602, 11.2)
    (loop,) = after.tracker.loops
    assert after.begun == []
    assert loop.faults == (Cause.SLOW_STEPS,)
    assert loop.slowdown is not None
    assert abs(loop.slowdown.step - 400) <= 16


@pytest.mark.parametrize(("boot_id", "process"), [("another", 1), ("boot", 2)])
def test_another_process_is_another_launch(store: EventStore, clock: ManualClock, boot_id: str, process: int) -> None:
    before = Daemon(store, clock)
    before.heartbeats(0, 400, 10.0)
    before.stop()
    after = Daemon(store, clock, boot_id)
    after.heartbeats(400, 500, 11.2, process)
    assert after.begun == []
    assert after.tracker.loops[0].usual_step_seconds is None


def test_output_that_begins_again_is_another_launch(store: EventStore, clock: ManualClock) -> None:
    before = Daemon(store, clock)
    before.output(0, 400, 10.0)
    before.stop()
    after = Daemon(store, clock)
    after.output(0, 100, 11.2)
    assert after.tracker.loops[0].usual_step_seconds is None


def test_the_launch_before_explains_what_the_program_does_at_the_same_step(
    store: EventStore, clock: ManualClock
) -> None:
    first = Daemon(store, clock)
    first.output(0, 400, 10.0)
    first.output(400, 700, 11.2)
    first.stop()
    assert first.begun == [Cause.SLOW_STEPS]
    second = Daemon(store, clock)
    second.output(0, 400, 10.0, path="/jobs/2026-11-29/train.log")
    second.output(400, 700, 11.2, path="/jobs/2026-11-29/train.log")
    assert second.begun == []


def test_a_store_that_cannot_be_read_costs_the_baseline_only(store: EventStore, clock: ManualClock) -> None:
    store._connection.execute("DROP TABLE baselines")
    daemon = Daemon(store, clock)
    daemon.output(0, 400, 10.0)
    daemon.output(400, 600, 11.2)
    daemon.stop()
    assert daemon.begun == [Cause.SLOW_STEPS]


def test_a_flood_of_loops_is_no_flood_of_queries(
    store: EventStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(store, "paces", lambda workload, _limit: asked.append(workload) or [])
    daemon = Daemon(store, clock)
    for process in range(100):
        report = StepReport(1)
        daemon.tracker.heartbeat("", report, pid=7, process=process, user=f"u{process}", steps=1, at=clock.time())
    assert len(asked) == MAX_RECALLS
