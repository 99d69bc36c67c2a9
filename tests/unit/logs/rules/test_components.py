"""docs/reference/components.md names rules and causes that are there."""

from __future__ import annotations

import re

from tests.paths import ROOT
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause

PAGE = ROOT / "docs" / "reference" / "components.md"
RULES = load_catalogue().rules
CAUSES = {cause.value for cause in Cause}
NEW = ("coordination", "kernels", "input", "torch", "tensorflow", "serving", "trainers", "kubernetes", "launchers")


def test_each_rule_that_it_names_is_there_and_each_of_these_families_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    recognised = " ".join(row.split("|")[4] for row in page.splitlines() if row.startswith("| "))
    named = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", recognised))
    assert named - {rule.id for rule in RULES} == set()
    assert {rule.id for rule in RULES if rule.family in NEW} - named == set()
    assert set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", recognised)) - CAUSES == set()
