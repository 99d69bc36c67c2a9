"""docs/goodput.md has the states, the reasons and the numbers of the code."""

from __future__ import annotations

import re

from tests.paths import ROOT
from tests.unit.goodput.test_simulated import PLANS, SEEDS
from tpuwatch.goodput import poisson, recorder
from tpuwatch.model.goodput import GOODPUT_SECONDS, InterruptionReason, TrainingState
from tpuwatch.store import store

PAGE = (ROOT / "docs" / "goodput.md").read_text(encoding="utf-8")


def test_every_state_has_its_row() -> None:
    section = PAGE.partition("## States\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sorted(
        state.value for state in TrainingState
    )


def test_every_reason_is_explained() -> None:
    reasons = PAGE.partition("The reasons of interruptions:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", reasons)) == {reason.value for reason in InterruptionReason}


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"{GOODPUT_SECONDS / 86_400:g} days by default" in PAGE
    assert f"more than {recorder.LONG_STEPS:g} ordinary steps" in PAGE
    assert f"last {store.KEPT_STEP_RUNS} runs of steps ({store.KEPT_USER_STEP_RUNS} of one user)" in PAGE
    assert f"{recorder.MAX_SPANS} spans and {recorder.MAX_PAUSES} pauses" in PAGE
    assert f"({len(PLANS) * len(SEEDS)}:" in PAGE
    assert poisson.ENOUGH == 3
    assert "From three interruptions on" in PAGE
