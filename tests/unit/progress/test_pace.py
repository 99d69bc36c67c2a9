"""The pace of a launch: what the program does itself is no slow-down, and what is known survives."""

from __future__ import annotations

import json
import math
import random

import pytest

from tpuwatch.model import PacePoint, SlowdownKind
from tpuwatch.progress.blocks import StepSample
from tpuwatch.progress.pace import MAX_POINTS, Pace

NOW = 1_790_000_000.0


class Run:
    """A launch whose steps take ten seconds."""

    def __init__(self, pace: Pace, first: int = 0, seed: int = 1) -> None:
        self.pace, self.step, self.now, self.rng = pace, first, NOW, random.Random(seed)

    def steps(self, number: int, seconds: float, hbm: float | None = None, tokens: float | None = None) -> Run:
        for _ in range(number):
            self.step += 1
            took = seconds * (1 + self.rng.gauss(0.0, 0.004))
            self.now += took
            used = None if hbm is None else hbm * (1 + self.rng.gauss(0.0, 0.0005))
            self.pace.add(StepSample(self.now, self.step, 1, took, tokens, used))
        return self


def test_a_slow_down_has_its_step_and_time() -> None:
    run = Run(Pace(0.05)).steps(400, 10.0)
    since = run.now
    slow = run.steps(200, 11.2).pace.slowdown
    assert slow is not None
    assert slow.kind is SlowdownKind.STEPS
    assert slow.slower == pytest.approx(0.12, abs=0.01)
    assert abs(slow.since - since) < 180
    assert abs(slow.step - 400) <= 16
    assert not slow.gradual


def test_another_amount_of_hbm_since_the_onset_is_the_programs_doing() -> None:
    run = Run(Pace(0.05)).steps(400, 10.0, hbm=60e9).steps(400, 11.2, hbm=61e9)
    assert run.pace.slowdown is None
    ((alarm, shown_by),) = run.pace.explained
    assert abs(alarm.step - 400) <= 16
    assert "HBM" in shown_by
    assert run.pace.baseline_seconds == pytest.approx(11.2, rel=0.01)


@pytest.mark.parametrize("first", [60e9, 60.2e9])
def test_hbm_that_moved_long_before_or_hardly_is_none(first: float) -> None:
    run = Run(Pace(0.05)).steps(200, 10.0, hbm=first).steps(400, 10.0, hbm=60.3e9).steps(300, 11.2, hbm=60.3e9)
    assert run.pace.slowdown is not None
    later = Run(Pace(0.05)).steps(200, 10.0, hbm=first).steps(400, 10.0, hbm=62e9).steps(300, 11.2, hbm=62e9)
    assert later.pace.slowdown is not None


def test_tokens_a_second_that_keep_their_value_are_the_programs_doing() -> None:
    run = Run(Pace(0.05)).steps(400, 10.0, tokens=1e6).steps(400, 15.0, tokens=1.5e6)
    assert run.pace.slowdown is None
    assert run.pace.baseline_seconds == pytest.approx(15.0, rel=0.01)


def earlier(step: int, slower: float) -> list[PacePoint]:
    """The points of a launch that became slower at that step."""
    return Run(Pace(0.05), seed=2).steps(step, 10.0).steps(300, 10.0 * (1 + slower)).pace.points


@pytest.mark.parametrize(
    ("step", "slower", "explained"), [(400, 0.12, True), (430, 0.10, True), (400, 0.30, False), (800, 0.12, False)]
)
def test_an_earlier_launch_that_became_as_slow_at_the_same_step(step: int, slower: float, explained: bool) -> None:
    run = Run(Pace(0.05, [earlier(step, slower)])).steps(400, 10.0).steps(200, 11.2)
    assert (run.pace.slowdown is None) is explained
    assert len(run.pace.explained) == explained


def test_pauses_that_take_more_of_the_time_are_a_slow_down_of_their_own() -> None:
    run = Run(Pace(0.05))
    for _ in range(45):  # eight hours, 2 % in checkpoints
        run.steps(59, 10.0).steps(1, 20.0 + 10.0)
    for _ in range(20):
        run.steps(59, 10.0).steps(1, 110.0)
    slow = run.pace.slowdown
    assert slow is not None
    assert slow.kind is SlowdownKind.PAUSES
    assert "more of the time in pauses since step" in slow.words(run.now)


def test_points_are_bounded_and_go_over_the_whole_launch() -> None:
    points = Run(Pace(0.05)).steps(24_000, 10.0).pace.points
    assert MAX_POINTS / 2 < len(points) <= MAX_POINTS
    assert points[0].step < 100
    assert points[-1].step > 23_000
    steps = [one.step for one in points]
    assert steps == sorted(set(steps))


def test_a_pace_goes_on_where_it_was_stored() -> None:
    run = Run(Pace(0.05)).steps(400, 10.0).steps(200, 11.2)
    again = Pace(0.05)
    assert again.restore(json.loads(json.dumps(run.pace.state())), run.pace.points)
    assert again.slowdown == run.pace.slowdown
    assert again.baseline_seconds == run.pace.baseline_seconds
    assert again.points == run.pace.points
    assert len(json.dumps(run.pace.state())) < 16_000


def test_what_is_no_state_changes_nothing() -> None:
    pace = Pace(0.05)
    assert not pace.restore({"ordinary": 1.0, "detector": {}}, [])
    assert pace.usual_seconds is None


def test_whatever_a_job_says_is_taken() -> None:
    rng, pace = random.Random(1), Pace(0.05, [[PacePoint(step, NOW, 1.0) for step in range(100)]])
    extremes = (0.0, 1e-300, 1e-6, 1.0, 60.0, 1e8, 1e300, math.inf, -math.inf, math.nan)
    for step in range(20_000):
        tokens = rng.choice((None, *extremes))
        pace.add(StepSample(NOW, step, rng.choice((1, 10**15)), rng.choice(extremes), tokens, rng.choice((None, 1.0))))
        assert pace.slowdown is None or math.isfinite(pace.slowdown.slower)
    json.dumps(pace.state(), allow_nan=False)
