"""docs/restart.md names what there is, no less and no more."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from tests.unit.restart.policy_scenes import ALL_ON
from tpuwatch.config.restart import LedgerConfig, RestartConfig
from tpuwatch.model.restart import FOR_OPERATOR, Blocked
from tpuwatch.model.verdict import Action
from tpuwatch.restart.policy.objections import AHEAD_SECONDS, STALE_SECONDS
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, OF_THE_NODE, REQUEST_SECONDS

PAGE = (ROOT / "docs" / "restart.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_reason_has_its_row_in_its_order_and_says_who_is_asked() -> None:
    reported = [(name.strip("`"), asked == "yes") for name, _, asked in rows("Why nothing was done")]
    assert reported == [(reason.value, reason in FOR_OPERATOR) for reason in Blocked]


def test_every_action_has_its_row_and_says_who_does_it() -> None:
    reported = {name: who for names, _, who in rows("The ladder") for name in re.findall(r"`(\w+)`", names)}
    assert sorted(reported) == sorted(action.value for action in Action)
    assert {name for name, who in reported.items() if who == "the machine itself"} == {
        one.value for one in OF_THE_MACHINE
    }
    assert {name for name, who in reported.items() if who == "another machine"} == {one.value for one in OF_THE_NODE}


@pytest.mark.parametrize("cells", rows("Budgets"), ids=lambda cells: cells[0])
def test_keys_and_defaults_of_the_budgets_are_the_real_ones(cells: list[str]) -> None:
    units = {"": 1, "s": 1, "%": 1, "min": 60, "h": 3600}
    given = re.findall(r"`(\w+)` \((?:(\d+) ?(s|min|h|%|)|(a day|an hour))\)", cells[1])
    for key, number, unit, words in given:
        value = {"a day": 86_400, "an hour": 3600}[words] if words else int(number) * units[unit]
        assert RestartConfig.model_fields[key].default == value == getattr(ALL_ON, key)
    assert len(given) == cells[1].count("(")


def test_other_numbers_and_names_are_the_real_ones() -> None:
    assert (STALE_SECONDS, AHEAD_SECONDS, REQUEST_SECONDS, ALL_ON.signal_seconds) == (120, 3600, 600, 600)
    keys = {*RestartConfig.model_fields, *LedgerConfig.model_fields}
    named = set(re.findall(r"`(\w+_(?:seconds|max|percent|polls|tries|nodes|failures))`", PAGE))
    assert named - keys == {"boot_grace_seconds", "compile_grace_seconds", "idle_seconds"}
