"""Launches of which only a job's output tells, without a process number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.standins.fake_processes import FakeProcesses
from tests.unit.launches.test_tracker import OURS, PID, T, begin, outcomes
from tpuwatch.launches.exec_records import ExecRecord
from tpuwatch.launches.outputs import SETTLE_SECONDS
from tpuwatch.launches.tracker import LaunchTracker, Life, Origin
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.tune.planner import launches_by_workload

GIB = 1 << 30
OUTPUT = Origin(None, output=True, stream="/jobs/train.log")


def start(tracker: LaunchTracker, when: float = T, *, size: int = 4 * GIB, origin: Origin = OUTPUT) -> None:
    tracker.mark("premapped", {"premapped_bytes": size}, origin, when, b"%d" % when)
    tracker.mark("init_started", {}, origin, when + 0.1, b"")


def come_up(tracker: LaunchTracker, when: float = T, *, size: int = 4 * GIB, origin: Origin = OUTPUT) -> None:
    start(tracker, when, size=size, origin=origin)
    tracker.mark("init_done", {"init_seconds": 7.25}, origin, when + 8, b"")
    tracker.mark("init_done", {}, origin, when + 8.5, b"")


def facts(launch: Launch) -> tuple[object, ...]:
    return launch.started, launch.premapped_bytes, launch.init_seconds, launch.outcome, launch.output


def test_what_an_output_states_is_a_launch() -> None:
    tracker = LaunchTracker(processes=FakeProcesses())
    come_up(tracker)
    tracker.tick(T + 9)
    (launch,) = tracker.latest()
    assert facts(launch) == (T, 4 * GIB, 7.25, Outcome.OK, "/jobs/train.log")
    assert launch.pid < 0
    assert tracker.life(launch) is Life.UNKNOWN  # so that it is no evidence of the node
    assert outcomes(tracker) == []
    tracker.tick(T + 10 + SETTLE_SECONDS)
    assert outcomes(tracker) == [Outcome.OK]
    assert list(launches_by_workload(tracker.latest())) == ["default"]


@pytest.mark.parametrize("again", [None, 4 * GIB], ids=["once", "twice"])
def test_a_size_that_is_stated_after_the_tpu_is_up_is_of_the_same_start(again: int | None) -> None:
    tracker = LaunchTracker(silent_after=20)
    if again is not None:
        tracker.mark("premapped", {"premapped_bytes": again}, OUTPUT, T, b"0")
    tracker.mark("init_started", {}, OUTPUT, T, b"1")
    tracker.mark("init_done", {"init_seconds": 7.25}, OUTPUT, T + 8, b"2")
    tracker.mark("premapped_in_use", {"premapped_bytes": 4 * GIB}, OUTPUT, T + 8, b"3")
    tracker.tick(T + 2 * SETTLE_SECONDS)
    assert [facts(one)[:4] for one in tracker.latest()] == [(T, 4 * GIB, 7.25, Outcome.OK)]
    assert outcomes(tracker) == [Outcome.OK]
    tracker.mark("init_started", {}, OUTPUT, T + 200, b"4")
    assert [one.started for one in tracker.latest()] == [T, T + 200]


def test_a_size_alone_is_no_start_that_could_become_silent() -> None:
    tracker = LaunchTracker()
    tracker.mark("premapped_in_use", {"premapped_bytes": 4 * GIB}, OUTPUT, T, b"1")
    assert tracker.latest() == []


def test_each_start_in_an_output_is_a_launch() -> None:
    tracker = LaunchTracker()
    come_up(tracker)
    tracker.event(Cause.PREMAPPED_EXHAUSTED, {"requested_bytes": 5 * GIB, "free_bytes": 3 * GIB}, OUTPUT, T + 30, b"1")
    start(tracker, T + 100, size=6 * GIB)
    tracker.event(Cause.TPU_IN_USE, {}, OUTPUT, T + 101, b"2")
    come_up(tracker, T + 130, size=6 * GIB)
    tracker.mark("init_done", {"init_seconds": 8.0}, OUTPUT, T + 900, b"")  # a start that printed no more
    tracker.tick(T + 2000)
    assert [facts(one)[:4] for one in tracker.latest()] == [
        (T, 4 * GIB, 7.25, Outcome.OK),
        (T + 100, 6 * GIB, None, Outcome.FAILED),
        (T + 130, 6 * GIB, 7.25, Outcome.OK),
        (T + 900, None, 8.0, Outcome.OK),
    ]
    first, second, *_ = tracker.latest()
    assert (first.premapped_failures, first.premapped_need_bytes) == (1, 6 * GIB)
    assert second.cause is Cause.TPU_IN_USE
    assert [one.started for one in launches_by_workload(tracker.latest())["default"]] == [T, T + 100, T + 130]


def test_ranks_with_prefixes_are_launches_of_their_own() -> None:
    tracker = LaunchTracker()
    for rank in range(4):
        come_up(tracker, T + rank, origin=replace(OUTPUT, stream=f"/jobs/train.log [rank{rank}]:"))
    assert len({one.pid for one in tracker.latest()}) == 4
    tracker = LaunchTracker()
    for rank in range(4):  # without prefixes nobody can tell them apart
        start(tracker, T + rank)
    assert len(tracker.latest()) == 1


def test_a_start_without_an_end_stays_open_and_teaches_nothing() -> None:
    tracker = LaunchTracker(silent_after=300)
    start(tracker)
    tracker.tick(T + 400)
    assert [one.outcome for one in tracker.latest()] == [Outcome.SILENT]


@pytest.mark.parametrize("first", ["log", "output"])
def test_a_launch_that_libtpus_log_tells_of_too_counts_once(first: str) -> None:
    tracker = LaunchTracker(processes=FakeProcesses((PID, T - 2)))

    def log() -> None:
        begin(tracker)
        tracker.mark("premapped", {"premapped_bytes": 4 * GIB}, OURS, T)
        tracker.mark("init_done", {"init_seconds": 7.25}, OURS, T + 8)

    def output() -> None:
        come_up(tracker)
        tracker.tick(T + 9)

    for step in (log, output) if first == "log" else (output, log):
        step()
    tracker.tick(T + 9 + SETTLE_SECONDS)
    assert [one.pid for one in tracker.latest()] == [PID]
    assert outcomes(tracker) == [Outcome.OK]
    changed = tracker.changed()
    assert [one.pid for one in changed if not one.superseded] == [PID]
    assert [one.pid for one in launches_by_workload(changed)["default"]] == [PID]


def test_another_launch_in_the_log_leaves_it_alone() -> None:
    tracker = LaunchTracker()
    come_up(tracker)
    for when, size in ((T, 8 * GIB), (T + 4000, 4 * GIB)):
        origin = Origin(PID + int(when), "alice", "vm")
        tracker.mark("premapped", {"premapped_bytes": size}, origin, when)
    assert sum(bool(one.output) for one in tracker.latest()) == 1


def test_a_record_of_exec_names_the_workload_of_the_launch_in_the_output() -> None:
    tracker = LaunchTracker()
    come_up(tracker)
    tracker.tick(T + 2 * SETTLE_SECONDS)
    environment = {"TPU_LOG_DIR": "/logs"}
    theirs = Launch(PID, T - 2, init_seconds=7.25, outcome=Outcome.OK, environment=environment)
    tracker.add_record(ExecRecord("a1", "train", T - 3, T + 5000, 0, (theirs,)))
    (launch,) = tracker.latest()
    assert (launch.workload, launch.environment, launch.exit_status, launch.ended) == (
        "train",
        environment,
        None,
        T + 5000,
    )
    assert outcomes(tracker) == [Outcome.OK]
    other = replace(theirs, pid=PID + 1, init_seconds=90.0)
    tracker.add_record(ExecRecord("a2", "train", T - 3, T + 5000, 0, (other,)))
    assert [one.pid for one in tracker.latest() if not one.output] == [PID + 1]


def test_it_goes_on_after_a_restart() -> None:
    tracker = LaunchTracker()
    start(tracker)
    (stored,) = tracker.changed()
    tracker = LaunchTracker([stored])
    tracker.mark("init_done", {"init_seconds": 7.25}, OUTPUT, T + 8, b"")
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, OUTPUT, T + 60, b"1")
    (launch,) = tracker.changed()
    assert facts(launch) == (T, 4 * GIB, 7.25, Outcome.OK, "/jobs/train.log")
    assert launch.faults == {"hbm_oom_runtime": 60.0}
    assert (launch.pid, launch.started) == (stored.pid, stored.started)


def test_the_streams_that_are_known_are_bounded() -> None:
    tracker = LaunchTracker()
    for number in range(1000):
        start(tracker, origin=replace(OUTPUT, stream=f"/jobs/{number}.log"))
    assert len(tracker.latest()) <= 257
