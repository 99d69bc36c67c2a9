"""docs/verdicts.md names what there is, no less and no more."""

from __future__ import annotations

import re
from enum import Enum

import pytest

from tests.paths import ROOT
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Signal
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.verdict import Action, Confidence, Source, Verdict

PAGE = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    return [re.split(r"\s*\|\s*", line.strip("| ")) for line in section.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("Signals", Signal),
        ("Sources", Source),
        ("Verdicts and their evidence", Verdict),
        ("Queued resources with a problem", QueuedProblem),
        ("Actions", Action),
        ("Confidence", Confidence),
    ],
)
def test_every_word_has_its_row_and_no_other(heading: str, words: type[Enum]) -> None:
    named = [cells[0].strip("`") for cells in rows(heading)]
    assert sorted(named) == sorted(word.value for word in words)


def test_actions_that_the_verdicts_name_exist() -> None:
    named = {action for cells in rows("Verdicts and their evidence") for action in re.findall(r"`(\w+)`", cells[2])}
    assert named == {action.value for action in Action}


def test_the_numbers_are_those_of_the_limits() -> None:
    limits = JudgeLimits()
    ages = {cells[0].strip("`"): cells[2] for cells in rows("Signals")}
    assert ages["host"] == f"{limits.host_seconds:.0f} s"
    assert ages["logs"] == f"{limits.logs_seconds:.0f} s"
    assert ages["metadata"] == f"{limits.notices_seconds / 60:.0f} min"
    assert ages["monitoring"].startswith(f"{limits.monitoring_seconds / 60:.0f} min")
    assert f"has been on its way for {limits.transition_seconds / 60:.0f} min" in PAGE
    assert f"more than {limits.skew_seconds:.0f} s ahead" in PAGE
    assert f"when it has gone on for {limits.repair_seconds / 3600:.0f} h" in PAGE
    assert limits.over_seconds == 3600
    assert f"within the last {limits.slow_step_seconds / 60:.0f} min" in PAGE
    assert (limits.again_count, f"within {limits.again_seconds / 60:.0f} min are no accident" in PAGE) == (3, True)
