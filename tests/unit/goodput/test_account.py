"""Each second has one state: small trainings by a table, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpuwatch.goodput.account import (
    ENOUGH_LOOKS,
    NodePeriods,
    Period,
    TrainingAttempt,
    account,
    best_step_seconds,
    kept_steps,
)
from tpuwatch.model.goodput import Interruption, InterruptionReason, StepPause, StepRun, StepSpan, TrainingState
from tpuwatch.model.progress import ProgressSource

S = TrainingState
RUN = StepRun(
    source=ProgressSource.OUTPUT,
    name="job.log",
    pid=None,
    user="",
    watched_since=-100.0,
    began=102.0,
    first_step=1,
    stride=1,
    step_seconds=2.0,
    looks=99,
    spans=(StepSpan(300.0, 100, 99, 198.0, 0.0),),
)
RUNNING = TrainingAttempt(0.0, 40.0, None, (RUN,), heard=300.0)
ENDED = replace(RUNNING, ended=310.0)
FAILED = replace(ENDED, interruption=Interruption(310.0, InterruptionReason.FAILED, "exit status 1"))
AGAIN = TrainingAttempt(
    400.0, 440.0, None, (replace(RUN, began=502.0, first_step=81, spans=(StepSpan(540.0, 100, 19, 38.0, 0.0),)),)
)
NEXT = replace(AGAIN, runs=(replace(AGAIN.runs[0], first_step=101, spans=(StepSpan(540.0, 120, 19, 38.0, 0.0),)),))
EPOCHS = replace(
    RUNNING, runs=(RUN, replace(RUN, began=310.0, continues=True, spans=(StepSpan(508.0, 100, 99, 198.0, 0.0),)))
)
CALM = NodePeriods()


def seconds(attempts: list[TrainingAttempt], now: float, node: NodePeriods = CALM) -> dict[str, float]:
    """The seconds of each state that has any."""
    found: dict[str, float] = {}
    at = attempts[0].began
    for segment in account(attempts, node, now):
        assert segment.since == at, "no hole, no overlap"
        assert sum(segment.seconds.values()) == pytest.approx(segment.until - segment.since)
        at = segment.until
        for state, amount in segment.seconds.items():
            found[state.value] = found.get(state.value, 0.0) + amount
    return {state: round(amount, 6) for state, amount in found.items() if amount > 1e-9}


def test_a_launch_from_its_start_to_its_end() -> None:
    expected = {"initialisation": 40.0, "startup": 60.0, "productive": 200.0, "ending": 10.0}
    assert seconds([ENDED], 1000.0) == expected


def test_a_loop_that_runs_has_its_next_step_to_make_and_then_pauses() -> None:
    whole = {"initialisation": 40.0, "startup": 60.0, "productive": 200.0}
    assert seconds([RUNNING], 301.0) == {**whole, "productive": 201.0}
    assert seconds([RUNNING], 400.0) == {**whole, "productive": 202.0, "pause": 98.0}
    assert seconds([RUNNING], 10_000.0)["unknown"] == 10_000.0 - 300.0 - 3600.0


def test_a_hang_is_stuck_from_the_last_step_on() -> None:
    stuck = NodePeriods(stuck=(Period(900.0, 1500.0),))
    assert seconds([RUNNING], 1500.0, stuck)["stuck"] == 1200.0
    killed = replace(RUNNING, ended=1500.0)
    assert "ending" not in seconds([killed], 1500.0, stuck)


def test_a_pause_that_a_stuck_verdict_meets_is_stuck() -> None:
    run = replace(RUN, spans=(StepSpan(800.0, 100, 99, 198.0, 0.0),), pauses=(StepPause(700.0, 75, 500.0),))
    attempt = replace(ENDED, runs=(run,), ended=800.0)
    assert seconds([attempt], 800.0)["pause"] == 500.0
    stuck = NodePeriods(stuck=(Period(600.0, 700.0),))
    assert seconds([attempt], 800.0, stuck) == {
        "initialisation": 40.0,
        "startup": 60.0,
        "productive": 200.0,
        "stuck": 500.0,
    }


def test_what_takes_longer_than_the_best_pace_is_slow() -> None:
    slow = replace(RUN, step_seconds=2.5, spans=(StepSpan(349.5, 100, 99, 247.5, 0.0),))
    found = seconds(
        [
            FAILED,
            replace(
                AGAIN, runs=(replace(slow, began=502.0, first_step=101, spans=(StepSpan(749.5, 200, 99, 247.5, 0.0),)),)
            ),
        ],
        749.5,
    )
    assert found["slow"] == 49.5


def test_launches_that_are_as_fast_within_the_noise_give_the_pace_together() -> None:
    runs = [replace(RUN, step_seconds=seconds, looks=looks) for seconds, looks in ((2.0, 100), (2.01, 300), (2.5, 900))]
    attempts = [replace(ENDED, runs=(run,)) for run in runs]
    assert best_step_seconds(attempts) == pytest.approx(2.0075)
    few = replace(ENDED, runs=(replace(RUN, step_seconds=0.1, looks=ENOUGH_LOOKS - 1),))
    assert best_step_seconds([few, *attempts]) == pytest.approx(2.0075)
    assert best_step_seconds([few]) == 0.1
    assert best_step_seconds([replace(ENDED, runs=())]) is None


def test_noise_of_spans_cancels_out_and_a_fast_hour_hides_no_slow_one() -> None:
    def slow(*ordinary: float) -> float:
        at, spans = RUN.began, []
        for number, amount in enumerate(ordinary, 1):
            at += amount
            spans.append(StepSpan(at, 1 + 100 * number, 100, amount, 0.0))
        return seconds([replace(ENDED, ended=at, runs=(replace(RUN, spans=tuple(spans)),))], at).get("slow", 0.0)

    assert slow(199.0, 201.0, 199.0, 201.0) == 0.0
    assert slow(200.0, 240.0) == 40.0
    assert slow(150.0, 240.0) == 40.0 - 1.5


def test_steps_that_are_done_again_are_repeated() -> None:
    found = seconds([FAILED, AGAIN], 541.0)
    assert found == {
        "initialisation": 80.0,
        "startup": 120.0,
        "productive": 160.0 + 41.0,
        "repeated": 40.0,
        "ending": 10.0,
        "down": 90.0,
    }
    assert "repeated" not in seconds([FAILED, NEXT], 541.0)
    assert kept_steps([FAILED, AGAIN, NEXT]) == [80, 100, None]


def test_a_launch_that_resumes_further_back_repeats_the_steps_of_all_before() -> None:
    far = replace(AGAIN, runs=(replace(AGAIN.runs[0], first_step=41),))
    assert kept_steps([FAILED, AGAIN, far]) == [40, 40, None]


def test_epochs_that_count_anew_tell_nothing_of_repeated_steps() -> None:
    assert kept_steps([FAILED, EPOCHS]) == [None, None]
    found = seconds([EPOCHS], 508.0)
    assert found == {"initialisation": 40.0, "startup": 60.0, "productive": 400.0, "pause": 8.0}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (CALM, {"down": 90.0}),
        (NodePeriods(absent=(Period(320.0, 380.0),)), {"down": 30.0, "capacity": 60.0}),
        (NodePeriods(maintenance=(Period(300.0, 350.0),)), {"down": 50.0, "maintenance": 40.0}),
        (
            NodePeriods(maintenance=(Period(300.0, 350.0),), absent=(Period(340.0, 400.0),)),
            {"maintenance": 40.0, "capacity": 50.0},
        ),
    ],
)
def test_without_a_process_the_node_says_which_state_it_is(node: NodePeriods, expected: dict[str, float]) -> None:
    found = seconds([FAILED, AGAIN], 541.0, node)
    assert {state: found[state] for state in ("down", "capacity", "maintenance") if state in found} == expected


def test_after_an_interruption_the_next_launch_is_waited_for_a_day() -> None:
    assert seconds([FAILED], 1310.0)["down"] == 1000.0
    assert seconds([FAILED], 1e6)["down"] == 86_400.0
    assert "down" not in seconds([ENDED], 1310.0)


def test_time_of_which_nothing_is_known_is_unknown_and_never_productive() -> None:
    silent = TrainingAttempt(0.0, 40.0, 5000.0)
    assert seconds([silent], 5000.0) == {"initialisation": 40.0, "unknown": 4960.0}
    assert seconds([replace(silent, initialised=None, came_up=False)], 5000.0) == {"initialisation": 5000.0}
    assert seconds([replace(silent, initialised=None)], 5000.0) == {"unknown": 5000.0}


def test_a_launch_that_makes_no_step_while_others_do_was_starting() -> None:
    short = TrainingAttempt(600.0, 640.0, 700.0)
    assert seconds([FAILED, short], 700.0)["startup"] == 60.0 + 60.0
    long = replace(short, ended=9000.0)
    assert seconds([FAILED, long], 9000.0)["unknown"] == 9000.0 - 640.0


def test_what_was_before_tpuwatch_looked_is_unknown() -> None:
    late = replace(RUN, watched_since=95.0)
    assert seconds([replace(ENDED, runs=(late,))], 310.0) == {
        "initialisation": 40.0,
        "unknown": 50.0,
        "startup": 10.0,
        "productive": 200.0,
        "ending": 10.0,
    }


def test_steps_while_tpuwatch_did_not_run_count_by_the_pace_and_the_rest_is_unknown() -> None:
    later = replace(RUN, watched_since=395.0, began=400.0, first_step=140, spans=(StepSpan(420.0, 150, 10, 20.0, 0.0),))
    found = seconds([replace(ENDED, runs=(RUN, later), ended=420.0)], 420.0)
    assert found == {"initialisation": 40.0, "startup": 60.0, "productive": 300.0, "unknown": 20.0}


def test_lines_for_every_tenth_step_count_the_steps_before_the_first_line() -> None:
    run = replace(RUN, began=120.0, first_step=10, stride=10, spans=(StepSpan(300.0, 100, 90, 180.0, 0.0),))
    assert seconds([replace(ENDED, runs=(run,))], 310.0)["productive"] == 200.0
