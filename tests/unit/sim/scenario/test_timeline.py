from __future__ import annotations

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.scenario.actions import ScenarioAction, ShowMessage
from tpuwatch.sim.scenario.executor import ActionFailedError
from tpuwatch.sim.scenario.timeline import ScaledClock, Timeline


def step(at: float, word: str, say: str = "") -> ScenarioAction:
    return ShowMessage.model_construct(at=at, do=word, say=say)


def do(action: ScenarioAction) -> str:
    if action.do == "fail":
        raise ActionFailedError("there is no node x")
    return f"{action.do} was done"


@pytest.fixture
def told() -> list[tuple[float, str]]:
    return []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_steps_happen_at_their_times_in_order(clock: ManualClock, told: list[tuple[float, str]]) -> None:
    timeline = Timeline([step(30, "second"), step(10, "first"), step(30, "third")], clock, do)

    def play() -> list[tuple[float, str]]:
        told.clear()
        timeline.play_due(lambda at, what: told.append((at, what)))
        return list(told)

    assert timeline.due_in == 10
    assert play() == []
    clock.advance(9.5)
    assert timeline.due_in == 0.5
    assert play() == []
    clock.advance(0.5)
    assert play() == [(10, "first was done")]
    assert (timeline.played, timeline.total, timeline.due_in) == (1, 3, 20)
    clock.advance(100)
    assert play() == [(30, "second was done"), (30, "third was done")]
    assert timeline.due_in is None
    assert play() == []


def test_a_step_may_be_reported_in_its_own_words(clock: ManualClock, told: list[tuple[float, str]]) -> None:
    Timeline([step(0, "x", "Look.")], clock, do).play_due(lambda at, what: told.append((at, what)))
    assert told == [(0, "Look.")]


def test_a_step_that_cannot_be_done_is_reported_and_the_next_one_comes(
    clock: ManualClock, told: list[tuple[float, str]]
) -> None:
    timeline = Timeline([step(0, "fail", "All is well."), step(0, "x")], clock, do)
    timeline.play_due(lambda at, what: told.append((at, what)))
    assert told == [(0, "could not be done: there is no node x"), (0, "x was done")]


def test_a_scaled_clock_runs_faster_and_does_not_jump(clock: ManualClock) -> None:
    fast = ScaledClock(clock, 60)
    start = clock.time()
    assert (fast.time(), fast.monotonic()) == (start, 0)
    clock.advance(2)
    assert (fast.time(), fast.monotonic()) == (start + 120, 120)
    clock.wall -= 3600  # somebody sets the machine's clock
    assert (fast.time(), fast.monotonic()) == (start + 120, 120)
