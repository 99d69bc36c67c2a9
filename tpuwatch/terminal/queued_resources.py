"""Queued resources for a person at a terminal, printed from their documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_age
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.findings import print_remedy
from tpuwatch.terminal.table import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import JudgedQueuedResourceDocument
    from tpuwatch.terminal.console import Console

COLUMNS: Final = ("QUEUED-RESOURCE", "ZONE", "STATE", "AGE", "NODES", "PROBLEM")
_MAX_ROWS: Final = 20
_MAX_IN_FULL: Final = 5
_MAX_NAMES: Final = 3


def print_queued_resources(console: Console, queued: Sequence[JudgedQueuedResourceDocument], now: float) -> None:
    """A table with one line for each, and what to do about those that have a problem."""
    rows = [("yellow" if one.problem else "", _cells(one, now)) for one in queued[:_MAX_ROWS]]
    print_table(console, COLUMNS, rows)
    if len(queued) > _MAX_ROWS:
        console.line(f"{len(queued) - _MAX_ROWS} more queued resources; --json lists them.", style="dim")
    wrong = [one for one in queued if one.problem]
    for one in wrong[:_MAX_IN_FULL]:
        console.line()
        console.line(f"Queued resource {one.label}: {one.problem}", style="bold yellow", hang=3)
        console.line(one.summary, indent=3)
        print_remedy(console, one.remedy, indent=3, title="What to do")
    if len(wrong) > _MAX_IN_FULL:
        console.line(f"{len(wrong) - _MAX_IN_FULL} more with a problem; --json has what to do.", style="dim")


def print_queued_problems(console: Console, queued: Sequence[JudgedQueuedResourceDocument]) -> None:
    """Those that have a problem, a line each."""
    for one in queued[:_MAX_NAMES]:
        text = f"Queued resource {one.label}: {one.problem}. {one.summary} What to do: `tpuwatch nodes`"
        print_text(console, text, indent=3, hang=2, style="yellow")
    if len(queued) > _MAX_NAMES:
        console.line(f"and {len(queued) - _MAX_NAMES} more: tpuwatch nodes --problems", style="yellow")


def _cells(one: JudgedQueuedResourceDocument, now: float) -> list[str]:
    more = len(one.nodes) - _MAX_NAMES
    names = ",".join((*one.nodes[:_MAX_NAMES], *([f"+{more}"] if more > 0 else [])))
    age = "" if one.created is None else format_age(now - one.created)
    return [one.name, one.zone, one.state, age, names, one.problem or ""]
