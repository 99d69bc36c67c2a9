"""The JSON that tpuwatch prints and serves: one place for the commands and for the HTTP API.

Times appear twice: `started` as ISO 8601 in UTC, `started_epoch` as seconds since the Unix epoch. Sizes are bytes,
durations seconds, a cause or an outcome its value, an event's key hexadecimal. What was read from logs is made valid
Unicode, and a number that JSON cannot carry becomes null. Imports nothing heavy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpuwatch.model import Event, Finding, Launch


def dumps(document: Any, *, indent: int | None = None) -> str:
    """A document as JSON text in ASCII, without a newline at its end; whatever it holds, the result is valid JSON."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """A value in JSON's own types."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [plain(entry) for entry in value]
    return plain(str(value))


def iso(epoch: float | None) -> str | None:
    """A time as `2026-11-20T13:44:14.250Z`; null for no time, and for one that no calendar has."""
    if epoch is None:
        return None
    try:
        moment = datetime.fromtimestamp(epoch, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def times(name: str, epoch: float | None) -> dict[str, Any]:
    """A time under its name as ISO 8601, and under `<name>_epoch` as a number."""
    return {name: iso(epoch), f"{name}_epoch": epoch}


def parse_time(text: str) -> float:
    """Seconds since the Unix epoch of an epoch number or an ISO 8601 time; without a zone it is UTC.

    Raises ValueError for anything else, and for a time that is not finite.
    """
    try:
        epoch = _epoch(text)
    except ValueError:
        epoch = math.nan
    if not math.isfinite(epoch):
        raise ValueError(f"{text!r} is no time: write seconds since the epoch or 2026-11-20T13:44:14Z")
    return epoch


def _epoch(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # datetime reads a final Z only from Python 3.11 on
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def event(event: Event) -> dict[str, Any]:
    """An event with all that the journal knows of it."""
    return {
        "id": event.id,
        "cause": event.cause.value,
        "rule": event.rule,
        **times("time", event.time),
        **times("observed", event.observed),
        "severity": event.severity,
        "pid": event.pid,
        "file": event.file,
        "offset": event.offset,
        "text": event.text,
        "details": event.details,
        "history": event.history,
        "key": event.key.hex(),
    }


def launch(launch: Launch) -> dict[str, Any]:
    """A launch: one process that initialised the TPU, or tried to."""
    return {
        "id": launch.id,
        "pid": launch.pid,
        "user": launch.user,
        "host": launch.host,
        **times("started", launch.started),
        "outcome": launch.outcome.value,
        "cause": launch.cause.value if launch.cause else None,
        "init_seconds": launch.init_seconds,
        "build": launch.build,
        "chips": launch.chips,
        "chip_kind": launch.chip_kind,
        "premapped_bytes": launch.premapped_bytes,
        "premapped_threshold_bytes": launch.premapped_threshold_bytes,
        "premapped_partitions": launch.premapped_partitions,
        **times("last_heard", launch.last_heard),
        "environment": launch.environment,
        "history": launch.history,
    }


def finding(finding: Finding) -> dict[str, Any]:
    """A finding: what is wrong, where it was first seen, and what to do, the first step first."""
    return {
        "cause": finding.cause.value,
        "count": finding.count,
        "summary": finding.summary,
        "first": {**_place(finding.first), "line": finding.line},
        "last": _place(finding.last),
        "details": finding.details,
        "remedy": [{"do": step.do, "source": step.source} for step in finding.remedy],
    }


def diagnosis(findings: Iterable[Finding], launches: Iterable[Launch]) -> dict[str, Any]:
    """What `tpuwatch diagnose --json` prints: findings in the order in which to act, and launches."""
    return {"findings": [finding(one) for one in findings], "launches": [launch(one) for one in launches]}


def _place(event: Event) -> dict[str, Any]:
    return {"file": event.file, **times("time", event.time), "text": event.text, "rule": event.rule}
