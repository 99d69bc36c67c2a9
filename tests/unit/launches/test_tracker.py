"""Launches, put together from facts in the order in which they are read."""

from __future__ import annotations

import pytest

from tests.standins.fake_processes import OUTSIDE, FakeProcesses
from tpuwatch.host.procfs import Process
from tpuwatch.launches.tracker import LaunchTracker, Life, Origin
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome

T = 1_790_000_000.0
PID = 4711
OURS = Origin(PID, "alice", "vm")


def begin(tracker: LaunchTracker, origin: Origin = OURS, when: float = T) -> None:
    tracker.mark("banner", {"build": "libtpu_lts_1", "pid": origin.pid}, origin, when)
    tracker.mark("premapped", {"premapped_bytes": 4096, "premapped_partitions_count": 2}, origin, when + 0.1)
    tracker.mark("init_started", {}, origin, when + 0.2)
    tracker.mark("chips", {"chips_count": 4, "chip_kind": "TPU v5 lite"}, origin, when + 0.3)


def outcomes(tracker: LaunchTracker) -> list[Outcome]:
    return [launch.outcome for launch in tracker.concluded()]


def test_a_healthy_launch_is_put_together() -> None:
    tracker = LaunchTracker(processes=FakeProcesses((PID, T - 2)))
    begin(tracker)
    tracker.mark("init_done", {"init_seconds": 7.5}, OURS, T + 8)
    tracker.tick(T + 8)
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
def test_a_slow_launch_is_slow_whichever_is_logged_first(first: bool) -> None:
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
    tracker = LaunchTracker(processes=FakeProcesses((PID, T - 2)), silent_after=300)
    begin(tracker)
    tracker.tick(T + 299)
    assert outcomes(tracker) == []
    tracker.tick(T + 301)
    tracker.tick(T + 302)
    assert outcomes(tracker) == [Outcome.SILENT]
    tracker.mark("init_done", {"init_seconds": 400.0}, OURS, T + 400)
    assert outcomes(tracker) == [Outcome.OK]


def test_a_launch_whose_process_goes_away_was_killed() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    tracker.tick(T + 9)
    processes.alive.clear()
    tracker.tick(T + 10)
    assert outcomes(tracker) == []  # its last lines may still be on the way
    tracker.tick(T + 20)
    assert outcomes(tracker) == [Outcome.KILLED]
    tracker.event(Cause.NO_TPU_FOUND, {}, OURS, T + 2)
    assert tracker.latest()[0].outcome is Outcome.FAILED  # they were


def test_a_process_that_was_never_seen_is_not_called_killed() -> None:
    tracker = LaunchTracker(processes=FakeProcesses())
    begin(tracker)
    tracker.tick(T + 20)
    tracker.tick(T + 40)
    assert outcomes(tracker) == []


def test_a_reused_process_number_is_another_launch() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    processes.alive = [(PID, T + 5000)]
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


# -- which process is the launch's


def life(tracker: LaunchTracker) -> Life:
    (launch,) = tracker.latest()
    return tracker.life(launch)


def test_a_process_in_a_container_is_found_by_the_number_that_it_knows() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    assert life(tracker) is Life.ALIVE
    assert tracker.process(tracker.latest()[0]) == Process(OUTSIDE + PID, int(100 * (T - 2)), T - 2)
    processes.alive.clear()
    assert life(tracker) is Life.GONE
    assert tracker.process(tracker.latest()[0]) is not None  # whose log it was is still known


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        (FakeProcesses(), Life.GONE),
        (FakeProcesses(sees_all=False), Life.UNKNOWN),  # hidden, or not there
        (FakeProcesses((PID, T + 60)), Life.GONE),  # the number was given to another one since
        (FakeProcesses((PID, T + 60), sees_all=False), Life.UNKNOWN),
        (FakeProcesses((PID, T - 800)), Life.ALIVE),  # it prepared its data first
        (FakeProcesses((PID, T - 5000)), Life.UNKNOWN),  # a notebook, or a stranger with the container's number
        (FakeProcesses((PID, T - 5000), (PID, T - 2)), Life.ALIVE),
        (FakeProcesses((PID, T - 20), (PID, T - 2)), Life.UNKNOWN),  # one in each of two containers
        (FakeProcesses((PID + 1, T - 2)), Life.GONE),
    ],
)
def test_a_number_is_not_enough_to_know_a_process_by(processes: FakeProcesses, expected: Life) -> None:
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    assert life(tracker) is expected
    tracker.tick(T + 10)
    tracker.tick(T + 30)
    assert outcomes(tracker) == []


def test_a_log_of_another_host_reports_nothing_of_the_processes_here() -> None:
    tracker = LaunchTracker(processes=FakeProcesses((PID, T - 2)))
    begin(tracker, Origin(PID, "alice", "another-vm"))
    assert life(tracker) is Life.UNKNOWN
    tracker.tick(T + 10)
    assert tracker.latest()[0].environment == {}


def test_a_number_that_is_given_to_another_process_does_not_bring_the_launch_back() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    begin(tracker)
    tracker.tick(T + 1)
    processes.alive = [(PID, T + 5)]
    assert life(tracker) is Life.GONE
    tracker.tick(T + 10)
    tracker.tick(T + 20)
    assert outcomes(tracker) == [Outcome.KILLED]


def test_all_processes_are_looked_through_only_for_a_new_launch() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    tracker.tick(T - 1)
    begin(tracker)
    for second in range(5):
        tracker.tick(T + second)
        assert life(tracker) is Life.ALIVE
    assert processes.looks == 1
    begin(tracker, Origin(PID + 1, "alice", "vm"), T + 10)
    tracker.tick(T + 11)
    assert processes.looks == 2


def test_the_version_grows_with_each_change_and_only_then() -> None:
    tracker = LaunchTracker(processes=FakeProcesses())
    begin(tracker)
    tracker.tick(T + 1)
    before = tracker.version
    tracker.tick(T + 2)
    assert tracker.version == before
    tracker.mark("init_done", {"init_seconds": 1.0}, OURS, T + 3)
    assert tracker.version > before


def test_without_processes_to_look_at_nothing_is_known_of_them() -> None:
    tracker = LaunchTracker()
    begin(tracker)
    assert life(tracker) is Life.UNKNOWN
