"""Confirmation over time, and what breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.policy_scenes import NOW, judged
from tpuwatch.model.answers import Signal
from tpuwatch.model.verdict import Action, Judgement, Reason, Verdict
from tpuwatch.restart.policy.situation import GAP_SECONDS, Confirmation, confirm


def at(seconds: float, *, cloud: float | None = None, runtime: float | None = None, **more: object) -> Judgement:
    reported = {Signal.CLOUD: cloud, Signal.RUNTIME: runtime, Signal.LOGS: seconds}
    reasons = tuple(Reason(one, "Bad.", NOW + when) for one, when in reported.items() if when is not None)
    return replace(judged(reasons=reasons), at=NOW + seconds, **more)


def after(*judgements: Judgement) -> Confirmation:
    held = None
    for judgement in judgements:
        held = confirm(held, judgement)
    assert held is not None
    return held


def test_it_holds_for_as_long_as_the_same_is_reported() -> None:
    held = after(at(0, cloud=0), at(60, cloud=30), at(120, cloud=90))
    assert (held.seconds, held.polls) == (120, 3)


def test_the_same_answer_judged_again_is_no_further_one() -> None:
    held = after(at(0, cloud=0), at(5, cloud=0), at(10, cloud=0))
    assert (held.seconds, held.polls) == (10, 1)


def test_an_answer_that_comes_late_does_not_count_twice() -> None:
    assert after(at(0, cloud=0), at(5, cloud=5), at(10, cloud=0), at(15, cloud=5)).polls == 2


def test_of_two_signals_the_slower_one_counts() -> None:
    turns = [at(5 * turn, cloud=30 * (5 * turn // 30), runtime=5 * turn) for turn in range(13)]
    assert after(*turns).polls == 3


def test_logs_are_no_answers() -> None:
    assert after(at(0), at(60), at(120)).polls == 0


@pytest.mark.parametrize(
    "other", [{"verdict": Verdict.UNKNOWN}, {"verdict": Verdict.RUNTIME_STUCK}, {"action": Action.MANUAL}]
)
def test_whatever_else_is_said_in_between_starts_it_again(other: dict[str, object]) -> None:
    held = after(at(0, cloud=0), at(60, cloud=60, **other), at(120, cloud=120))
    assert (held.seconds, held.polls) == (0, 1)


@pytest.mark.parametrize(("gap", "seconds"), [(GAP_SECONDS, 10 + GAP_SECONDS), (GAP_SECONDS + 1, 0)])
def test_a_gap_starts_it_again(gap: float, seconds: float) -> None:
    held = after(at(0, cloud=0), at(10, cloud=10), at(10 + gap, cloud=10 + gap))
    assert held.seconds == seconds


def test_a_clock_that_is_set_back_starts_it_again() -> None:
    held = after(at(0, cloud=0), at(100, cloud=100), at(50, cloud=50))
    assert (held.seconds, held.polls) == (0, 1)
