"""The doctor's findings as a JSON document, and for a person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpuwatch.doctor.check import Area, Status
from tpuwatch.export.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.doctor.check import Finding
    from tpuwatch.export.paper import Paper

_ORDER = (Status.WRONG, Status.WARN, Status.UNKNOWN)
_MARKS = {Status.WRONG: ("wrong", "bold red"), Status.WARN: ("warning", "yellow"), Status.UNKNOWN: ("unknown", "blue")}
_INDENT = 2


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings in the order of the checks, and how many of each kind that is not well."""
    return {
        "checks": [
            {
                "id": finding.check.id,
                "area": finding.check.area.value,
                "status": finding.result.status.value,
                "title": finding.check.title,
                "text": printable(finding.result.text),
                "fix": printable(finding.result.fix),
                "source": finding.result.source,
            }
            for finding in findings
        ],
        "wrong": count(findings, Status.WRONG),
        "warnings": count(findings, Status.WARN),
        "unknown": count(findings, Status.UNKNOWN),
    }


def count(findings: Sequence[Finding], status: Status) -> int:
    """How many findings are of a kind."""
    return sum(finding.result.status is status for finding in findings)


def tell(paper: Paper, findings: Sequence[Finding]) -> None:
    """By area: what is wrong first, each with its fix; then in a line what is well, and what there is not."""
    for area in Area:
        of_area = [finding for finding in findings if finding.check.area is area]
        if of_area:
            paper.line(area.value.capitalize(), style="bold")
            _tell_area(paper, of_area)
            paper.line()
    _tell_sum(paper, findings)


def _tell_area(paper: Paper, findings: Sequence[Finding]) -> None:
    for status in _ORDER:
        for finding in findings:
            if finding.result.status is status:
                _tell_finding(paper, finding)
    bad = {finding.check.id for finding in findings if finding.result.status in _ORDER}
    for status, word, style in ((Status.OK, "ok", "green"), (Status.SKIPPED, "not here", "dim")):
        titles = dict.fromkeys(
            finding.check.title
            for finding in findings
            if finding.result.status is status and finding.check.id not in bad
        )
        if titles:
            paper.line(f"{word}: {', '.join(titles)}", style=style, indent=_INDENT, hang=len(word) + 2)


def _tell_finding(paper: Paper, finding: Finding) -> None:
    word, style = _MARKS[finding.result.status]
    paper.line(f"{word}: {finding.check.title}", style=style, indent=_INDENT)
    paper.line(printable(finding.result.text), indent=_INDENT + 2)
    if finding.result.fix:
        paper.line(f"Fix: {printable(finding.result.fix)}", indent=_INDENT + 2, hang=5)
    if finding.result.source:
        paper.line(f"See: {finding.result.source}", indent=_INDENT + 2, hang=5, style="dim")


def _tell_sum(paper: Paper, findings: Sequence[Finding]) -> None:
    wrong, warnings, unknown = (count(findings, status) for status in _ORDER)
    well = count(findings, Status.OK)
    parts = [
        f"{wrong} wrong" if wrong else "Nothing is wrong",
        *([f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []),
        *([f"{unknown} could not be found out"] if unknown else []),
        f"{well} ok",
    ]
    paper.line(f"{', '.join(parts)}.", style="bold red" if wrong else "yellow" if warnings else "green")
