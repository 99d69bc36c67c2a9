"""The alerts as they are shipped."""

from __future__ import annotations

from typing import Any, Final

import yaml

from tests.paths import ROOT

PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RULES: Final = (PROMETHEUS / "tpuwatch.rules.yml", PROMETHEUS / "gke.rules.yml")
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
RUNBOOK_URL: Final = "https://tpuwatch.example.com/runbooks/"


def rules() -> list[dict[str, Any]]:
    """All rules, those that record and those that alert."""
    documents = (yaml.safe_load(file.read_text()) for file in RULES)
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """All alerting rules by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
