"""Next launches as JSON, and in sentences for the status page and `tpuwatch status`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.words import clean
from tpuwatch.jsontext import times
from tpuwatch.units import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.export.view import TunedStatus, TuneStatus
    from tpuwatch.tune.model import Decision

_TEXT: Final = 500
_MOST_REASONS: Final = 20


def document(status: TuneStatus, now: float, limit: int) -> dict[str, Any]:
    """What is decided for the next launches of `limit` workloads, the one that was launched last first."""
    return {
        **times("now", now),
        "mode": "apply" if status.applies else "observe",
        "directory": status.directory,
        "problems": [clean(one, _TEXT) for one in status.problems],
        "workloads": [workload(one) for one in status.workloads[:limit]],
    }


def workload(one: TunedStatus) -> dict[str, Any]:
    """A workload: its plan, and what that rests on."""
    plan = one.plan
    return {
        "workload": plan.workload,
        **times("decided", plan.decided),
        "launches": one.launches,
        **times("last_launch", one.last_launch),
        "environment_file": one.file or None,
        "problem": clean(one.problem, _TEXT) or None,
        "settings": [
            {"name": setting.name, "value": clean(setting.value, _TEXT), "why": clean(setting.why, _TEXT)}
            for setting in plan.settings
        ],
        "decision": decision(plan.decision),
    }


def decision(decision: Decision) -> dict[str, Any]:
    """What is decided about the premapped buffer, and why."""
    return {
        **asdict(decision),
        "step": decision.step.value,
        "reasons": [clean(one, _TEXT) for one in decision.reasons[:_MOST_REASONS]],
        "conflict": clean(decision.conflict, _TEXT) or None,
    }


def buffer(size_bytes: int | None) -> str:
    """The premapped buffer in a few words."""
    if size_bytes is None:
        return "libtpu's default"
    return format_size(size_bytes) if size_bytes else "none"


def lines(document: dict[str, Any], limit: int) -> list[str]:
    """A `document` in sentences, one for each of `limit` workloads; empty where nothing is decided."""
    found: Sequence[dict[str, Any]] = document["workloads"]
    told = [_line(one) for one in found[:limit]]
    if len(found) > limit:
        told.append(f"… and {len(found) - limit} more workloads: `tpuwatch tune` tells of them.")
    return [*document["problems"], *told]


def _line(one: dict[str, Any]) -> str:
    made = one["decision"]
    why = " ".join([*made["reasons"][:1], *filter(None, [made["conflict"]])])
    trial = ", on trial" if made["trial"] else ""
    return f"{one['workload']}: {made['step']}{trial}, premapped buffer {buffer(made['size_bytes'])}. {why}".rstrip()
