"""The JSON documents of what logs tell: events, launches, findings.

Sizes are bytes, durations seconds, times as in tpuwatch.core.json_text. Apart from those of the daemon, as
`tpuwatch diagnose` needs no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import redact
from tpuwatch.web.fields import fields, rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Event, Finding, Launch

_PLACE: Final = "file time text rule"  # of an event


def event(event: Event) -> dict[str, Any]:
    """An event with everything that the store holds of it."""
    shown = fields(
        event, "id cause rule time observed severity pid file offset text details history repeats since spread key"
    )
    return {**shown, "key": event.key.hex(), "places": rows(event.places, "file offset time severity")}


def launch(launch: Launch) -> dict[str, Any]:
    """A launch: one process that initialised the TPU, or tried to."""
    document = fields(
        launch,
        "id pid user host started outcome cause init_seconds build chips chip_kind"
        " premapped_bytes premapped_threshold_bytes premapped_partitions last_heard environment workload faults"
        " premapped_failures premapped_need_bytes premapped_asked_bytes boot_id ended exit_status history output",
    )
    document["pid"] = None if launch.output else launch.pid
    whole = {name: redact(f"{name}={value}") for name, value in launch.environment.items()}
    return {
        **document,
        "failed_after_start": launch.failed_after_start or None,
        "environment": {name: text.partition("=")[2] for name, text in whole.items()},
    }


def finding(finding: Finding) -> dict[str, Any]:
    """A finding: what is wrong, where it was first seen, and what to do, the first step first."""
    return {
        **fields(finding, "cause count summary"),
        "first": {**fields(finding.first, _PLACE), "line": finding.line},
        "last": fields(finding.last, _PLACE),
        "details": finding.details,
        "remedy": rows(finding.remedy, "do source"),
    }


def diagnosis(findings: Iterable[Finding], launches: Iterable[Launch]) -> dict[str, Any]:
    """What `tpuwatch diagnose --json` prints: findings in the order in which to act, and launches."""
    return {"findings": [finding(one) for one in findings], "launches": [launch(one) for one in launches]}
