"""The next launches on the status page: what each workload gets, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.export.markup import Markup, element, join
from tpuwatch.export.page_parts import moment, section, table, tag
from tpuwatch.export.tunes import buffer
from tpuwatch.tune.model import Step

if TYPE_CHECKING:
    from tpuwatch.export.view import TunedStatus, TuneStatus

_MOST: Final = 20
_MOST_REASONS: Final = 8
_TONES: Final = {Step.KEEP: "good", Step.START: "good", Step.PINNED: "plain", Step.STUCK: "bad"}  # else "warn"
_NONE: Final = "None is decided: no launch has been seen yet."


def next_launches(status: TuneStatus, now: float) -> Markup:
    """What is decided, a row for each workload, and what keeps that from its place."""
    rows = [
        (
            join(element("code", one.plan.workload), *([" ", _trial()] if one.plan.decision.trial else [])),
            tag(one.plan.decision.step.value, _TONES.get(one.plan.decision.step, "warn")),
            buffer(one.plan.decision.size_bytes),
            _why(one),
            join(f"{one.launches}, last ", moment(one.last_launch, now)),
        )
        for one in status.workloads[:_MOST]
    ]
    columns = ("Workload", "Step", "Premapped buffer", "Why", "Launches")
    parts = [element("p", problem, class_="warn") for problem in (*status.problems, *_unwritten(status))]
    parts.append(table(columns, rows, _NONE))
    if len(status.workloads) > _MOST:
        parts.append(element("p", f"{len(status.workloads) - _MOST} more: /api/v1/tune", class_="quiet"))
    parts.append(element("p", _mode(status), class_="quiet"))
    return section("Next launch", join(*parts))


def _trial() -> Markup:
    return tag("trial", "plain")


def _why(one: TunedStatus) -> Markup:
    made = one.plan.decision
    said = [*made.reasons[:_MOST_REASONS], *filter(None, [made.conflict])]
    settings = [
        element("li", element("code", f"{each.name}={each.value}"), f" {each.why}") for each in one.plan.settings
    ]
    return element(
        "details",
        element("summary", said[0] if said else "No reason is given."),
        *(element("p", sentence) for sentence in said[1:]),
        element("ul", *settings) if settings else "",
    )


def _unwritten(status: TuneStatus) -> list[str]:
    return list(dict.fromkeys(one.problem for one in status.workloads if one.problem))[:_MOST_REASONS]


def _mode(status: TuneStatus) -> str:
    if status.applies:
        return f"Environment files for systemd are written to {status.directory}."
    return f"This is advice, in {status.directory}; `tpuwatch exec` and `tpuwatch env` give it."
