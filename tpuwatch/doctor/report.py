"""The report of all checks, and as text on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.doctor.check import Area, CheckResult, CheckStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.terminal import Console

_ORDER = (CheckStatus.WRONG, CheckStatus.WARN, CheckStatus.UNKNOWN)
_MARKS = {
    CheckStatus.WRONG: ("wrong", "bold red"),
    CheckStatus.WARN: ("warning", "yellow"),
    CheckStatus.UNKNOWN: ("unknown", "blue"),
}
_INDENT = 2


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """All results in the order of the checks, and the number of problems of each status."""

    checks: tuple[CheckResult, ...]
    wrong: int
    warnings: int
    unknown: int

    @classmethod
    def of(cls, results: Iterable[CheckResult]) -> DoctorReport:
        results = tuple(results)
        return cls(results, *(sum(one.status is status for one in results) for status in _ORDER))


def print_report(console: Console, report: DoctorReport) -> None:
    """Print by area: the problems first, each with its fix, then the ids of what is OK and of what is skipped."""
    for area in Area:
        of_area = [one for one in report.checks if one.area is area]
        if of_area:
            console.line(area.value.capitalize(), style="bold")
            _print_area(console, of_area)
            console.line()
    _print_summary(console, report)


def _print_area(console: Console, results: Sequence[CheckResult]) -> None:
    for status in _ORDER:
        for one in results:
            if one.status is status:
                _print_result(console, one)
    bad = {one.id for one in results if one.status in _ORDER}
    for status, word, style in ((CheckStatus.OK, "ok", "green"), (CheckStatus.SKIPPED, "skipped", "dim")):
        ids = dict.fromkeys(one.id for one in results if one.status is status and one.id not in bad)
        if ids:
            console.line(f"{word}: {', '.join(ids)}", style=style, indent=_INDENT, hang=len(word) + 2)


def _print_result(console: Console, one: CheckResult) -> None:
    from tpuwatch.terminal import print_text

    word, style = _MARKS[one.status]
    console.line(f"{word}: {one.title} ({one.id})", style=style, indent=_INDENT)
    print_text(console, one.text, indent=_INDENT + 2)
    if one.fix:
        print_text(console, f"Fix: {one.fix}", indent=_INDENT + 2, hang=2)
    if one.source:
        console.line(f"See: {one.source}", indent=_INDENT + 2, hang=5, style="dim")


def _print_summary(console: Console, report: DoctorReport) -> None:
    parts = [
        f"{report.wrong} wrong" if report.wrong else "Nothing is wrong",
        *([f"{report.warnings} warning{'s' if report.warnings > 1 else ''}"] if report.warnings else []),
        *([f"{report.unknown} unknown"] if report.unknown else []),
        f"{sum(one.status is CheckStatus.OK for one in report.checks)} ok",
    ]
    style = "bold red" if report.wrong else "yellow" if report.warnings else "green"
    console.line(f"{', '.join(parts)}.", style=style)
