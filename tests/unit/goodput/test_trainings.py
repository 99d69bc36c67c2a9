"""What belongs to a training: launches by their workload, steps by their process or time, and how a launch ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.goodput.test_account import RUN
from tpuwatch.goodput.goodput import accounted, goodput_of
from tpuwatch.goodput.trainings import Training, node_periods, trainings_of
from tpuwatch.model.causes import Cause
from tpuwatch.model.goodput import InterruptionReason, NodeSpan, NodeSpanKind, StepPause, StepRun, StepSpan
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.workload import KIND_VARIABLE

NOW = 10_000.0


def launch(started: float = 0.0, ended: float | None = 310.0, **changes: object) -> Launch:
    base = Launch(42, started, user="alice", workload="job", init_seconds=40.0, outcome=Outcome.OK, ended=ended)
    return replace(base, last_heard=started + 50.0, **changes)  # type: ignore[arg-type] # the tests name fields


def run(began: float = 102.0, first: int = 1, **changes: object) -> StepRun:
    span = StepSpan(began + 198.0, first + 99, 99, 198.0, 0.0)
    return replace(RUN, began=began, first_step=first, spans=(span,), **changes)  # type: ignore[arg-type] # the same


def trainings(launches: list[Launch], runs: list[StepRun], spans: list[NodeSpan] | None = None) -> list[Training]:
    return trainings_of(launches, runs, spans or [], NOW)


def reasons(launches: list[Launch], runs: list[StepRun], spans: list[NodeSpan] | None = None) -> list[tuple[str, str]]:
    found = trainings(launches, runs, spans)
    everything = goodput_of(accounted(found, node_periods(spans or []), NOW), since=0.0, now=NOW)
    return [(one.reason.value, one.cause) for one in everything.interruptions]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exit_status": 1}, ("failed", "exit status 1")),
        ({"exit_status": 139}, ("killed", "exit status 139")),
        ({"exit_status": 1, "faults": {"hbm_oom_runtime": 200.0}}, ("program", "hbm_oom_runtime")),
        ({"exit_status": 137, "faults": {"host_oom": 200.0}}, ("setup", "host_oom")),
        ({"faults": {"core_halted": 200.0}}, ("node", "core_halted")),
        ({"exit_status": 1, "faults": {"heartbeat_lost": 200.0, "core_halted": 201.0}}, ("worker", "heartbeat_lost")),
        ({"exit_status": 1, "faults": {"hang": 200.0}}, ("failed", "hang")),
        ({}, ("unknown", "")),
    ],
)
def test_the_reason_of_an_interruption(changes: dict[str, object], expected: tuple[str, str]) -> None:
    both = [launch(**changes), launch(400.0, None)]
    assert reasons(both, [run(), run(502.0, 81)]) == [expected]


@pytest.mark.parametrize("status", [130, 143, 129])
def test_what_was_told_to_end_was_not_interrupted(status: int) -> None:
    both = [launch(exit_status=status), launch(400.0, None)]
    assert reasons(both, [run(), run(502.0, 101)]) == []
    assert len(trainings(both, [run(), run(502.0, 101)])) == 1


def test_a_launch_that_has_finished_is_the_end_of_a_training() -> None:
    for first in ([launch(exit_status=0)], [launch()]):
        runs = [run(done=first[0].exit_status is None), run(502.0, 1)]
        found = trainings([*first, launch(400.0, None)], runs)
        assert [len(one.attempts) for one in found] == [1, 1]
        assert reasons([*first, launch(400.0, None)], runs) == []


def test_without_a_known_failure_steps_from_the_first_one_on_are_another_training() -> None:
    assert len(trainings([launch(), launch(400.0, None)], [run(), run(502.0, 1)])) == 2
    assert len(trainings([launch(exit_status=1), launch(400.0, None)], [run(), run(502.0, 1)])) == 1


def test_launches_a_day_apart_are_two_trainings() -> None:
    later = 310.0 + 86_401.0
    assert len(trainings([launch(exit_status=1), launch(later, None)], [run(), run(later + 102.0, 81)])) == 2


def test_the_machine_that_went_away_explains_the_end_and_the_time() -> None:
    spans = [
        NodeSpan(NodeSpanKind.WATCHED, -50.0, 305.0, "a"),
        NodeSpan(NodeSpanKind.WATCHED, 390.0, 900.0, "b"),
    ]
    both = [launch(ended=None, boot_id="a"), launch(400.0, None, boot_id="b")]
    assert reasons(both, [run(), run(502.0, 81)], spans) == [("machine", "")]
    [training] = trainings(both, [run(), run(502.0, 81)], spans)
    assert training.attempts[0].ended == 300.0  # its last sign
    [alone] = trainings([launch(ended=None, boot_id="a")], [run()], spans)
    assert alone.attempts[0].ended == 300.0


def test_maintenance_is_the_reason_before_the_machine_that_goes_away_for_it() -> None:
    spans = [
        NodeSpan(NodeSpanKind.WATCHED, -50.0, 305.0, "a"),
        NodeSpan(NodeSpanKind.MAINTENANCE, 300.0, 305.0, "a"),
        NodeSpan(NodeSpanKind.WATCHED, 390.0, 900.0, "b"),
    ]
    both = [launch(exit_status=143), launch(400.0, None)]
    assert reasons(both, [run(), run(502.0, 81)], spans) == [("maintenance", "")]


def test_a_reboot_of_tpuwatch_alone_is_no_absence() -> None:
    spans = [NodeSpan(NodeSpanKind.WATCHED, 0.0, 100.0, "a"), NodeSpan(NodeSpanKind.WATCHED, 200.0, 300.0, "a")]
    assert node_periods(spans).absent == []


def test_processes_that_run_at_the_same_time_are_one_launch() -> None:
    both = [launch(pid=1), launch(3.0, 320.0, pid=2, init_seconds=50.0)]
    [training] = trainings(both, [run()])
    [attempt] = training.attempts
    assert (attempt.began, attempt.initialised, attempt.ended) == (0.0, 53.0, 320.0)


def test_steps_go_to_the_process_that_made_them_and_never_to_another_user() -> None:
    both = [launch(pid=1, workload="one"), launch(3.0, 320.0, pid=2, workload="two")]
    found = {one.workload: one.shows_steps for one in trainings(both, [run(pid=1)])}
    assert found == {"one": True, "two": False}
    assert not any(one.shows_steps for one in trainings(both, [run(pid=1, user="mallory")]))
    assert any(one.shows_steps for one in trainings(both, [run(pid=1, user="alice")]))


def test_of_several_loops_the_one_that_steps_for_longest_counts() -> None:
    short = replace(run(103.0), name="eval", spans=(StepSpan(110.0, 5, 4, 7.0, 0.0),))
    [training] = trainings([launch()], [run(), short])
    assert [one.name for one in training.attempts[0].runs] == ["job.log"]


def test_output_that_goes_on_as_one_loop_is_parted_where_a_launch_began() -> None:
    spans = (
        StepSpan(300.0, 100, 99, 198.0, 0.0),
        StepSpan(500.0, 101, 1, 2.0, 0.0),
        StepSpan(540.0, 121, 20, 40.0, 0.0),
    )
    whole = replace(RUN, spans=spans, pauses=(StepPause(500.0, 101, 198.0),))
    [training] = trainings([launch(exit_status=1), launch(400.0, None)], [whole])
    first, second = (attempt.runs[0] for attempt in training.attempts)
    assert (first.first_step, first.step, first.until, first.pauses) == (1, 100, 300.0, ())
    assert (second.first_step, second.step, second.began, second.pauses) == (101, 121, 500.0, ())
    [alone] = trainings([launch(ended=None)], [whole])
    assert alone.attempts[0].runs == (whole,)
    other = launch(400.0, 600.0, workload="other", pid=43)
    first = trainings([launch(ended=700.0), other], [whole])[0]
    assert first.attempts[0].runs == (whole,)


def test_the_last_step_of_an_epoch_is_not_the_end_of_a_training() -> None:
    epochs = [run(done=True), run(302.0, 1, continues=True, done=True)]
    both = [launch(ended=600.0), launch(700.0, None)]
    assert [one[0] for one in reasons(both, [*epochs, run(802.0, 50)])] == ["unknown"]
    assert reasons(both, [run(done=True), run(802.0, 50)]) == []


def test_history_servers_and_notebooks_are_no_trainings() -> None:
    for changes in (
        {"history": True},
        {"superseded": True},
        {"environment": {KIND_VARIABLE: "serving"}},
        {"environment": {KIND_VARIABLE: "interactive"}},
    ):
        assert trainings([launch(**changes)], [run()]) == []


def test_launches_without_a_workload_are_told_apart_by_user() -> None:
    both = [launch(workload=""), launch(400.0, None, workload="", user="bob", pid=43)]
    assert [(one.workload, one.user) for one in trainings(both, [])] == [("default", "alice"), ("default", "bob")]


def test_of_launches_without_any_step_only_their_own_time_counts() -> None:
    both = [launch(exit_status=1), launch(400.0, 500.0, exit_status=1)]
    everything = goodput_of(accounted(trainings(both, []), node_periods([]), NOW), since=0.0, now=NOW)
    assert everything.total_seconds == 410.0
    assert (everything.goodput, everything.interruptions) == (None, ())


def test_a_fault_after_which_the_program_went_on_is_not_the_reason() -> None:
    early = launch(ended=5000.0, faults={"premapped_exhausted": 50.0}, exit_status=1)
    late = replace(early, faults={**early.faults, "hbm_oom_runtime": 4900.0})
    runs = [run(), run(5202.0, 81)]
    assert reasons([early, launch(5100.0, None)], runs) == [("failed", "exit status 1")]
    assert reasons([late, launch(5100.0, None)], runs) == [("program", "hbm_oom_runtime")]


def test_the_cause_of_a_launch_that_never_came_up() -> None:
    failed = launch(ended=30.0, init_seconds=None, outcome=Outcome.FAILED, cause=Cause.TPU_IN_USE, exit_status=1)
    assert reasons([failed, launch(400.0, None)], [run(502.0, 1)]) == [("setup", "tpu_in_use")]


def test_one_workload_can_be_asked_for() -> None:
    both = [launch(), launch(400.0, 710.0, workload="other", pid=43)]
    found = trainings(both, [run(), run(502.0, pid=43)])
    known = accounted(found, node_periods([]), NOW)
    one = goodput_of(known, since=0.0, now=NOW, workload="other")
    assert [each.workload for each in one.trainings] == ["other"]
    assert goodput_of(known, since=0.0, now=NOW, workload="none").trainings == ()


def test_a_reason_is_a_label() -> None:
    assert all(reason.value.isalpha() for reason in InterruptionReason)
