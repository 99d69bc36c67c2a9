"""Trainings whose truth is known: each state within 0.5 points of it, and Google's terms within 0.1."""

from __future__ import annotations

import pytest

from tests.unit.goodput.simulated import START, Plan, Simulated, simulate
from tpuwatch.goodput.goodput import accounted, goodput_of
from tpuwatch.goodput.trainings import node_periods, trainings_of
from tpuwatch.model.goodput import STEPPING, Goodput, InterruptionReason, TrainingState, shares

PLANS = {
    "crashes, a hang, slow steps, evaluations, a machine that is away": Plan(),
    "the last restart repeats no step": Plan(crashes=(900, 1750, 2801), graceful=(2801,)),
    "no restart repeats a step": Plan(graceful=(900, 1750, 2900)),
    "output that goes on as one loop": Plan(graceful=(900, 1750, 2900), one_loop=True),
    "output that goes back by a few steps": Plan(save_every=100, crashes=(907, 1705, 2901), one_loop=True),
    "a hang that is the end of a launch": Plan(hang_ends=True),
    "neither a hang nor slow steps": Plan(hang_at=None, slow=(0, 0, 1.0)),
    "one launch": Plan(crashes=(), away_after=None),
    "steps of less than a second": Plan(seconds=0.8),
    "many steps a second": Plan(
        seconds=0.05, steps=100_000, crashes=(20_000, 50_000), save_every=5000, evaluate_every=9000
    ),
    "a line for every tenth step": Plan(print_every=10),
    "noisy steps": Plan(noise=0.05),
    "long steps": Plan(
        seconds=40.0, steps=600, crashes=(130, 340), save_every=50, evaluate_every=100, slow=(200, 280, 1.3)
    ),
}
SEEDS = range(3)


def judged(given: Simulated, *, since: float = 0.0) -> Goodput:
    trainings = trainings_of(given.launches, given.runs, given.spans, given.now)
    known = accounted(trainings, node_periods(given.spans), given.now)
    return goodput_of(known, since=since, now=given.now)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", PLANS)
def test_every_state_is_near_the_truth_and_the_sum_is_exact(name: str, seed: int) -> None:
    plan = PLANS[name]
    given = simulate(Plan(**{**plan.__dict__, "seed": seed}))
    found = judged(given)
    assert len(found.trainings) == 1
    assert found.total_seconds == pytest.approx(given.total, abs=1e-6)
    assert sum(round(10_000 * share) for share in shares(found.seconds).values()) == 10_000
    off = {state: 100 * (found.seconds[state] - given.truth[state]) / given.total for state in TrainingState}
    assert {state.value: round(points, 2) for state, points in off.items() if abs(points) > 0.5} == {}
    assert found.seconds[TrainingState.UNKNOWN] == 0.0
    of_google = sum(given.truth[state] for state in STEPPING) / given.total
    assert found.google_goodput == pytest.approx(of_google, abs=0.001)


def test_a_restart_that_repeats_nothing_costs_no_steps() -> None:
    found = judged(simulate(PLANS["no restart repeats a step"]))
    assert found.seconds[TrainingState.REPEATED] == 0.0
    assert len(found.interruptions) == 3
    recoveries = [one.recovery_seconds for one in found.interruptions]
    assert all(one is not None and 90 < one < 2500 for one in recoveries)


def test_a_machine_that_went_away_is_the_reason() -> None:
    plan = Plan(crashes=(900,), away_after=1)
    given = simulate(plan)
    [boot, _] = [span for span in given.spans if span.kind.value == "watched"]
    given.spans[given.spans.index(boot)] = boot._replace(until=given.launches[0].ended or 0.0)
    [one] = judged(given).interruptions
    assert (one.reason, one.cause) == (InterruptionReason.MACHINE, "exit status 1")


@pytest.mark.parametrize("hours", [0.5, 1.0, 2.0, 3.1])
def test_a_period_has_exactly_its_time(hours: float) -> None:
    given = simulate(Plan())
    found = judged(given, since=given.now - 3600 * hours)
    assert found.total_seconds == pytest.approx(3600 * hours, abs=1e-6)
    assert given.now - START > 3600 * hours
