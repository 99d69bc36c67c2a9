"""Launches, put together from facts in the order in which they are read."""

from __future__ import annotations

import pytest

from tpuwatch.launches import LaunchTracker, Origin
from tpuwatch.model import Cause, Launch, Outcome

T = 1_790_000_000.0
PID = 4711
OURS = Origin(PID, "alice", "vm")


class FakeProcesses:
    """Processes that live as long as the test says."""

    def __init__(self, started: dict[int, float]) -> None:
        self.alive = started

    def started(self, pid: int) -> float | None:
        return self.alive.get(pid)

    def environment(self, pid: int) -> dict[str, str]:
        return {"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"} if pid in self.alive else {}


def begin(tracker: LaunchTracker, origin: Origin = OURS, when: float = T) -> None:
    tracker.mark("banner", {"build": "libtpu_lts_1", "pid": origin.pid}, origin, when)
    tracker.mark("premapped", {"premapped_bytes": 4096, "premapped_partitions_count": 2}, origin, when + 0.1)
    tracker.mark("init_started", {}, origin, when + 0.2)
    tracker.mark("chips", {"chips_count": 4, "chip_kind": "TPU v5 lite"}, origin, when + 0.3)


def outcomes(tracker: LaunchTracker) -> list[Outcome]:
    return [launch.outcome for launch in tracker.concluded()]


def test_a_healthy_launch_is_put_together() -> None:
    tracker = LaunchTracker(processes=FakeProcesses({PID: T - 2}))
    begin(tracker)
    tracker.mark("init_done", {"init_seconds": 7.5}, OURS, T + 8)
    (launch,) = tracker.changed()
    assert launch == Launch(
        pid=PID,
        started=T,
        user="alice",
        host="vm",
        build="libtpu_lts_1",
        chips=4,
        chip_kind="TPU v5 lite",
        premapped_bytes=4096,
        premapped_partitions=2,
        init_seconds=7.5,
        outcome=Outcome.OK,
        last_heard=T + 8,
        environment={"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"},
    )
    assert outcomes(tracker) == [Outcome.OK]
    assert tracker.changed() == []


def test_a_process_that_only_loads_libtpu_is_no_launch() -> None:
    tracker = LaunchTracker()
    tracker.mark("banner", {"build": "libtpu_lts_1"}, OURS, T)
    tracker.mark("chips", {"chips_count": 4}, OURS, T)
    assert tracker.latest() == []


@pytest.mark.parametrize("first", [True, False])
def test_a_slow_launch_is_slow_whichever_is_told_first(first: bool) -> None:
    tracker = LaunchTracker()
    begin(tracker)
    facts = [
        lambda: tracker.mark("init_done", {"init_seconds": 70.0}, OURS, T + 70),
        lambda: tracker.event(Cause.SLOW_INIT, {"init_seconds": 70.0}, OURS, T + 70),
    ]
    for fact in facts if first else reversed(facts):
        fact()
    (launch,) = tracker.latest()
    assert (launch.outcome, launch.init_seconds) == (Outcome.SLOW, 70.0)
    assert outcomes(tracker).count(Outcome.SLOW) == 1


def test_what_fails_a_launch_is_its_cause() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    tracker.event(Cause.HBM_OOM_COMPILE, {}, OURS, T + 1)
    assert tracker.latest()[0].outcome is Outcome.STARTING
    tracker.event(Cause.TPU_IN_USE, {}, OURS, T + 2)
    (launch,) = tracker.latest()
    assert (launch.outcome, launch.cause) == (Outcome.FAILED, Cause.TPU_IN_USE)
    tracker.event(Cause.INIT_FAILED, {}, OURS, T + 3)
    assert tracker.latest()[0].cause is Cause.TPU_IN_USE


def test_a_process_that_fails_before_it_says_so_is_a_launch() -> None:
    tracker = LaunchTracker()
    tracker.mark("banner", {"build": "libtpu_lts_1"}, OURS, T)
    tracker.event(Cause.COMPILER_CRASH, {}, OURS, T + 0.5)
    assert tracker.latest() == []
    tracker.event(Cause.BAD_FLAG, {}, OURS, T + 1)
    (launch,) = tracker.latest()
    assert (launch.started, launch.outcome, launch.cause) == (T, Outcome.FAILED, Cause.BAD_FLAG)


def test_a_fault_after_the_start_leaves_the_launch_as_it_is() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    tracker.mark("init_done", {"init_seconds": 1.0}, OURS, T + 1)
    tracker.event(Cause.DRIVER_ERROR, {}, OURS, T + 100)
    assert tracker.latest()[0].outcome is Outcome.OK


def test_a_fault_in_a_jobs_output_belongs_to_the_only_launch_under_way() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    tracker.event(Cause.NO_TPU_FOUND, {}, Origin(None), T + 1)
    assert tracker.latest()[0].cause is Cause.NO_TPU_FOUND


def test_a_fault_in_a_jobs_output_is_nobodys_when_two_launches_are_under_way() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    begin(tracker, Origin(4712), T + 0.5)
    tracker.event(Cause.NO_TPU_FOUND, {}, Origin(None), T + 1)
    assert [launch.outcome for launch in tracker.latest()] == [Outcome.STARTING, Outcome.STARTING]


def test_a_launch_is_silent_after_the_grace_and_may_still_come_up() -> None:
    tracker = LaunchTracker(processes=FakeProcesses({PID: T - 2}), silent_after=300)
    begin(tracker)
    tracker.tick(T + 299)
    assert outcomes(tracker) == []
    tracker.tick(T + 301)
    tracker.tick(T + 302)
    assert outcomes(tracker) == [Outcome.SILENT]
    tracker.mark("init_done", {"init_seconds": 400.0}, OURS, T + 400)
    assert outcomes(tracker) == [Outcome.OK]


def test_a_launch_whose_process_goes_away_was_killed() -> None:
    processes = FakeProcesses({PID: T - 2})
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    processes.alive.clear()
    tracker.tick(T + 10)
    assert outcomes(tracker) == []  # its last lines may still be on the way
    tracker.tick(T + 20)
    assert outcomes(tracker) == [Outcome.KILLED]
    tracker.event(Cause.NO_TPU_FOUND, {}, OURS, T + 2)
    assert tracker.latest()[0].outcome is Outcome.FAILED  # they were


def test_a_process_that_was_never_seen_is_not_called_killed() -> None:
    tracker = LaunchTracker(processes=FakeProcesses({}))
    begin(tracker)
    tracker.tick(T + 20)
    tracker.tick(T + 40)
    assert outcomes(tracker) == []


def test_a_reused_process_number_is_another_launch() -> None:
    processes = FakeProcesses({PID: T - 2})
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    processes.alive[PID] = T + 5000
    begin(tracker, when=T + 5001)
    assert [launch.started for launch in tracker.changed()] == [T, T + 5001]


def test_facts_read_again_change_nothing() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    tracker.mark("init_done", {"init_seconds": 7.5}, OURS, T + 8)
    known = tracker.latest()
    again = LaunchTracker(known)
    begin(again)
    again.mark("init_done", {"init_seconds": 7.5}, OURS, T + 8)
    assert again.latest() == known
    assert outcomes(again) == []


def test_history_concludes_nothing_that_is_counted() -> None:
    tracker = LaunchTracker()
    begin(tracker, Origin(PID, history=True))
    tracker.mark("init_done", {"init_seconds": 1.0}, Origin(PID, history=True), T + 1)
    (launch,) = tracker.changed()
    assert launch.history
    assert outcomes(tracker) == []


def test_launches_that_are_remembered_are_bounded() -> None:
    tracker = LaunchTracker()
    for pid in range(2000):
        begin(tracker, Origin(pid), T + pid)
    assert len(tracker.latest()) <= 256
