"""What a launch gathers after its start: faults, failures of its buffer, its end, and the word of `tpuwatch exec`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.fake_processes import FakeProcesses
from tests.unit.tune.recorded import NOW, launch, record
from tpuwatch.launches.tracker import LaunchTracker, Origin
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

T = NOW - 100
PID = 4711
OURS = Origin(PID, "alice", "vm")
GIB = 1 << 30
FAILURE = {"requested_bytes": 3 * GIB, "free_bytes": GIB}


class Named(FakeProcesses):
    """Processes with an environment of the test's."""

    variables: Mapping[str, str] = {}

    def environment(self, pid: int) -> dict[str, str]:
        return dict(self.variables) or super().environment(pid)


def begin(tracker: LaunchTracker, *, size: int | None = 4 * GIB, origin: Origin = OURS, when: float = T) -> Launch:
    tracker.mark("banner", {"build": "libtpu_lts_1"}, origin, when)
    if size is not None:
        tracker.mark("premapped", {"premapped_bytes": size}, origin, when)
    tracker.mark("init_started", {}, origin, when)
    return next(one for one in tracker.latest() if one.pid == origin.pid)


def come_up(tracker: LaunchTracker, **fields: Any) -> Launch:
    found = begin(tracker, **fields)
    tracker.mark("init_done", {"init_seconds": 3.0}, fields.get("origin", OURS), T + 3)
    tracker.changed()
    return found


def fail(tracker: LaunchTracker, key: bytes = b"1", **details: Any) -> None:
    tracker.event(Cause.PREMAPPED_EXHAUSTED, details or FAILURE, OURS, T + 50, key)


# -- faults


def test_the_first_of_each_fault_is_known_also_after_the_tpu_was_up() -> None:
    tracker = LaunchTracker()
    come_up(tracker)
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, OURS, T + 60)
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, OURS, T + 40)
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, OURS, T + 80)
    (changed,) = tracker.changed()
    assert changed.faults == {"hbm_oom_runtime": 40.0}
    assert changed.outcome is Outcome.OK


def test_a_fault_that_says_nothing_new_changes_nothing() -> None:
    tracker = LaunchTracker()
    come_up(tracker)
    tracker.event(Cause.HANG, {}, OURS, T + 60)
    tracker.changed()
    before = tracker.version
    for _ in range(10):
        tracker.event(Cause.HANG, {}, OURS, T + 60)
    assert (tracker.changed(), tracker.version) == ([], before)


def test_a_table_that_others_may_read_is_replaced_and_never_changed() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    before = found.faults
    tracker.event(Cause.HANG, {}, OURS, T + 60)
    assert (before, found.faults) == ({}, {"hang": 60.0})


def test_a_fault_of_a_later_process_with_the_same_number_is_not_the_launchs() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    tracker.mark("banner", {}, OURS, T + 500)
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, OURS, T + 501)
    assert found.faults == {}


def test_a_fault_in_output_that_names_no_process_is_the_only_running_launchs() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    found = come_up(tracker)
    tracker.tick(T + 4)
    tracker.event(Cause.PREMAPPED_EXHAUSTED, FAILURE, Origin(None), T + 50, b"1")
    tracker.event(Cause.HANG, {}, Origin(None, history=True), T + 51)
    assert (list(found.faults), found.premapped_failures) == (["premapped_exhausted"], 1)
    processes.alive.clear()
    tracker.tick(T + 60)
    tracker.event(Cause.HBM_OOM_RUNTIME, {}, Origin(None), T + 100)
    assert list(found.faults) == ["premapped_exhausted"]


def test_a_fault_in_output_is_nobodys_when_two_run() -> None:
    tracker = LaunchTracker(processes=FakeProcesses((PID, T - 2), (PID + 1, T - 2)))
    both = [come_up(tracker), come_up(tracker, origin=Origin(PID + 1, "alice", "vm"))]
    tracker.tick(T + 4)
    tracker.event(Cause.HANG, {}, Origin(None), T + 50)
    assert [one.faults for one in both] == [{}, {}]


# -- the premapped buffer


@pytest.mark.parametrize(
    ("size", "details", "need", "asked"),
    [
        pytest.param(4 * GIB, FAILURE, 6 * GIB, 3 * GIB, id="no room"),
        pytest.param(4 * GIB, {"requested_bytes": GIB, "free_bytes": 2 * GIB}, 5 * GIB, GIB, id="in pieces"),
        pytest.param(4 * GIB, {"requested_bytes": GIB}, 5 * GIB, GIB, id="free memory not reported"),
        pytest.param(None, FAILURE, None, 3 * GIB, id="size unknown"),
        pytest.param(4 * GIB, {"free_bytes": GIB}, None, None, id="request not reported"),
        pytest.param(4 * GIB, {"requested_bytes": 1 << 90, "free_bytes": 1}, None, None, id="no size"),
        pytest.param(4 * GIB, {"requested_bytes": "3", "free_bytes": -1}, None, None, id="no numbers"),
    ],
)
def test_a_failure_shows_what_was_needed(
    size: int | None, details: Mapping[str, Any], need: int | None, asked: int | None
) -> None:
    tracker = LaunchTracker()
    come_up(tracker, size=size)
    tracker.event(Cause.PREMAPPED_EXHAUSTED, details, OURS, T + 50, b"1")
    (found,) = tracker.changed()
    assert (found.premapped_failures, found.premapped_need_bytes, found.premapped_asked_bytes) == (1, need, asked)
    assert found.faults == {"premapped_exhausted": 50.0}


def test_copies_of_a_failure_count_once_and_the_largest_need_stays() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    for key in (b"1", b"2", b"1", b"1"):
        fail(tracker, key)
    fail(tracker, b"3", requested_bytes=10, free_bytes=5)
    assert (found.premapped_failures, found.premapped_need_bytes) == (3, 6 * GIB)
    fail(tracker, b"4", requested_bytes=9 * GIB, free_bytes=0)
    assert (found.premapped_need_bytes, found.premapped_asked_bytes) == (13 * GIB, 9 * GIB)


def test_a_copy_that_is_read_after_a_restart_is_not_counted_again() -> None:
    first = LaunchTracker()
    come_up(first)
    fail(first)
    (stored,) = first.changed()
    later = LaunchTracker([stored], counted=[b"1"])
    fail(later)
    assert later.changed() == []
    fail(later, b"2")
    assert later.changed()[0].premapped_failures == 2


def is_duplicate(tracker: LaunchTracker, key: bytes, *, output: bool) -> bool:
    """A failure in the launch's log or its output; whether it is one that the other one had."""
    tracker.event(Cause.PREMAPPED_EXHAUSTED, FAILURE, replace(OURS, output=output), T + 50, key)
    return tracker.is_duplicate(key)


def test_what_the_log_and_the_output_of_a_launch_report_counts_once() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    seen = [is_duplicate(tracker, bytes([number]), output=output) for number, output in enumerate(map(int, "0110001"))]
    #       log    output  again  log   new    new    output
    assert seen == [False, True, False, True, False, False, True]
    assert found.premapped_failures == 4
    assert is_duplicate(tracker, b"\1", output=True)  # read again, it is what it was
    assert not is_duplicate(tracker, b"\0", output=False)
    assert found.premapped_failures == 4


def test_what_two_launches_report_counts_twice() -> None:
    tracker = LaunchTracker()
    other = Origin(PID + 1, "alice", "vm", output=True)
    both = [come_up(tracker), come_up(tracker, origin=other)]
    tracker.event(Cause.PREMAPPED_EXHAUSTED, FAILURE, OURS, T + 50, b"1")
    tracker.event(Cause.PREMAPPED_EXHAUSTED, FAILURE, other, T + 50, b"2")
    assert [one.premapped_failures for one in both] == [1, 1]
    assert not tracker.is_duplicate(b"2")


def test_after_a_restart_no_new_failure_is_missed() -> None:
    tracker = LaunchTracker([launch(premapped_failures=2, started=T)])
    assert not is_duplicate(tracker, b"1", output=True)
    assert tracker.latest()[0].premapped_failures == 3


def test_what_exec_has_recorded_is_not_added_again_by_the_log() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    tracker.add_record(record(launch(started=T, premapped_failures=1), workload="train"))
    assert not is_duplicate(tracker, b"1", output=False)  # the record's were counted nowhere
    assert found.premapped_failures == 1


def test_a_size_that_is_logged_after_the_failure_gives_the_need() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker, size=None)
    fail(tracker)
    tracker.mark("premapped", {"premapped_bytes": 4 * GIB}, OURS, T)
    assert found.premapped_need_bytes == 6 * GIB


def test_what_is_remembered_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.launches.tracker._KEPT_FAILURES", 10)
    tracker = LaunchTracker()
    found = come_up(tracker)
    for number in range(1000):
        fail(tracker, number.to_bytes(16, "big"))
    assert found.premapped_failures == 1000
    assert len(tracker._counted) == 10


# -- workload, boot, end


@pytest.mark.parametrize(("name", "workload"), [("train-1", "train-1"), ("../../etc/passwd", "")])
def test_the_environment_names_the_workload_unless_that_is_no_name(name: str, workload: str) -> None:
    processes = Named((PID, T - 2))
    processes.variables = {"TPUWATCH_WORKLOAD": name, "TPUWATCH_SET": "TPU_LOG_DIR"}
    tracker = LaunchTracker(processes=processes)
    found = begin(tracker)
    tracker.tick(T + 1)
    assert (found.workload, found.environment) == (workload, processes.variables)


@pytest.mark.parametrize(
    ("origin", "booted", "boot_id"),
    [(OURS, T - 50, "b-1"), (OURS, T + 50, ""), (replace(OURS, history=True), T - 50, "")],
    ids=["of this boot", "of an earlier boot", "of history"],
)
def test_a_launch_knows_the_boot_that_it_ran_in(origin: Origin, booted: float, boot_id: str) -> None:
    tracker = LaunchTracker(boot_id="b-1", booted=booted)
    assert begin(tracker, origin=origin).boot_id == boot_id


def test_the_end_of_a_process_is_noted_whatever_its_launch_came_to() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    come_up(tracker)
    tracker.tick(T + 10)
    processes.alive.clear()
    tracker.changed()
    tracker.tick(T + 20)
    (found,) = tracker.changed()
    assert (found.ended, found.outcome, found.exit_status) == (T + 20, Outcome.OK, None)
    tracker.tick(T + 40)
    assert tracker.changed() == []


def vanish(tracker: LaunchTracker, processes: FakeProcesses) -> Launch:
    found = come_up(tracker)
    tracker.tick(T + 10)
    processes.alive.clear()
    tracker.tick(T + 20)
    return found


@pytest.mark.parametrize(
    ("killed", "blamed"), [(T + 34, True), (T + 16, True), (T + 36, False), (T + 14, False)], ids=repr
)
@pytest.mark.parametrize("first", [True, False], ids=["kill first", "end first"])
def test_a_launch_that_vanished_when_memory_ran_out_was_killed_for_it(killed: float, blamed: bool, first: bool) -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    if first:
        tracker.oom_kill(killed)
    found = vanish(tracker, processes)
    tracker.oom_kill(killed)
    tracker.oom_kill(killed)
    assert found.faults == ({"host_oom": 20.0} if blamed else {})


# -- what `tpuwatch exec` saw


def test_a_record_is_added_to_what_the_logs_show() -> None:
    tracker = LaunchTracker(boot_id="b-1")
    come_up(tracker)
    theirs = launch(started=T + 2, environment={"TPU_LOG_DIR": "/logs"}, faults={"hang": 20.0})
    tracker.add_record(record(theirs, workload="train"))
    (found,) = tracker.changed()
    assert (found.workload, found.exit_status, found.ended) == ("train", 137, NOW - 10)
    assert (found.faults, found.environment) == ({"hang": 22.0}, {"TPU_LOG_DIR": "/logs"})
    assert (found.started, found.premapped_failures, found.premapped_need_bytes) == (T, 2, 6 * GIB)
    assert len(tracker.latest()) == 1
    tracker.add_record(record(theirs, workload="train"))
    assert tracker.changed() == []


def test_failures_that_both_saw_count_once() -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    fail(tracker)
    tracker.add_record(record(launch(premapped_failures=1, premapped_need_bytes=5 * GIB)))
    assert (found.premapped_failures, found.premapped_need_bytes) == (1, 6 * GIB)


def test_a_launch_that_only_it_saw_is_one() -> None:
    tracker = LaunchTracker(boot_id="b-1", booted=T - 50)
    tracker.add_record(record(launch(), owner="bob"))
    (found,) = tracker.changed()
    assert found == launch(user="bob", boot_id="b-1", last_heard=found.last_heard)
    assert [one.outcome for one in tracker.concluded()] == [Outcome.OK]


def test_a_launch_that_ended_while_it_came_up_was_killed() -> None:
    tracker = LaunchTracker()
    tracker.add_record(record(launch(outcome=Outcome.STARTING, init_seconds=None)))
    assert tracker.latest()[0].outcome is Outcome.KILLED


@pytest.mark.parametrize(("owner", "counts"), [("root", True), ("alice", True), ("mallory", False)])
def test_nobody_describes_the_launches_of_another_user(owner: str, counts: bool) -> None:
    tracker = LaunchTracker()
    found = come_up(tracker)
    tracker.add_record(record(launch(), owner=owner, workload="theirs"))
    assert (found.workload == "theirs") == counts
    assert len(tracker.latest()) == 1


def test_an_older_launch_of_the_same_number_does_not_take_the_place_of_a_later_one() -> None:
    tracker = LaunchTracker()
    later = begin(tracker, when=NOW)
    tracker.changed()
    tracker.add_record(record(launch(), owner="alice"))
    assert tracker.latest() == [later]
    assert [one.started for one in tracker.changed()] == [T]


def test_a_run_that_saw_no_launch_is_known_by_its_mark() -> None:
    processes = Named((PID, T - 2))
    processes.variables = {"TPUWATCH_LAUNCH": "a1b2c3"}
    tracker = LaunchTracker(processes=processes)
    found = come_up(tracker)
    tracker.tick(T + 4)
    tracker.add_record(record(id="other", workload="other"))
    assert found.workload == ""
    tracker.add_record(record(workload="named"))
    assert (found.workload, found.exit_status, found.ended) == ("named", 137, NOW - 10)


def test_a_launch_that_exec_knows_by_its_output_alone_is_the_one_that_bears_its_mark() -> None:
    processes = Named((PID, T - 2))
    processes.variables = {"TPUWATCH_LAUNCH": "a1b2c3"}
    tracker = LaunchTracker(processes=processes)
    found = come_up(tracker)
    tracker.tick(T + 4)
    shell = launch(pid=PID - 1, started=T - 3, premapped_failures=1, exit_status=3)
    tracker.add_record(record(shell, workload="train"))
    assert tracker.latest() == [found]
    assert (found.workload, found.premapped_failures, found.exit_status) == ("train", 1, 3)


def test_a_program_that_ended_well_was_not_killed() -> None:
    processes = FakeProcesses((PID, T - 2))
    tracker = LaunchTracker(processes=processes)
    found = vanish(tracker, processes)
    tracker.oom_kill(T + 21)
    assert "host_oom" in found.faults
    tracker.add_record(record(launch(exit_status=0, faults={})))
    assert found.faults == {}
