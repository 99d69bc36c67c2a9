"""The queries of the dashboards, asked of a real Prometheus over all that went wrong: each has an answer with data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT
from tests.proof.monitoring.stack import WINDOW, Stack

DASHBOARDS: Final = ROOT / "deploy" / "grafana" / "dashboards"
STEP_SECONDS: Final = 2.0


@dataclass(frozen=True)
class PanelQuery:
    """A query of a panel, with its variables."""

    dashboard: str
    panel: str
    expr: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.expr}"


def queries(directory: Path = DASHBOARDS) -> Iterator[PanelQuery]:
    """All queries of all panels."""
    for path in sorted(directory.glob("*.json")):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield PanelQuery(path.stem, panel["title"], target["expr"])


def with_values(expr: str, values: dict[str, str]) -> str:
    """The query as Grafana would send it: hours and days, too, are the time that has passed."""
    return re.sub(r"\[(?:\d+[mhd])\]", f"[{WINDOW}]", with_variables(expr, values))


def with_variables(expr: str, values: dict[str, str]) -> str:
    """The query with values in place of the dashboard's variables."""
    for name, value in values.items():
        expr = re.sub(rf"\${name}\b", value, expr)
    return expr


def without_data(stack: Stack, since: float, until: float, choices: list[dict[str, str]]) -> list[str]:
    """Queries that Prometheus refuses, or that have no data with any of these choices of zone, node and instance."""
    found = []
    for query in queries():
        answers = []
        for chosen in choices:
            values = {"__rate_interval": WINDOW, "__range": f"{max(1, round(until - since))}s", **chosen}
            answers.append(stack.range(with_values(query.expr, values), since, until, STEP_SECONDS))
            if answers[-1]:
                break
        if not any(answers):
            found.append(str(query))
    return found
