"""Events and cursors with default values for tests, and what a store holds."""

from __future__ import annotations

from typing import Any

from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Cursor, Event
from tpuwatch.model.verdict import Judgement
from tpuwatch.store import EventStore, rows

NOW = 1_790_000_000.0  # where ManualClock starts


def event(key: str, **changes: Any) -> Event:
    facts: dict[str, Any] = {
        "rule": "vmem-oom",
        "cause": Cause.VMEM_OOM,
        "observed": NOW,
        "time": NOW,
        "severity": "E",
        "pid": 42,
        "file": "/logs/tpu_driver.host.user.log.INFO.20261120-134414.42",
        "offset": 100,
        "text": "Ran out of memory in memory space vmem",
        "details": {"used_bytes": 20 << 20},
    }
    return Event(key=key.encode(), **(facts | changes))


def cursor(offset: int = 0, **changes: Any) -> Cursor:
    facts: dict[str, Any] = {"path": "/logs/a", "device": 1, "inode": 2, "head": b"Log file created at:"}
    return Cursor(offset=offset, **(facts | changes))


def stored_verdicts(store: EventStore, node: str = "") -> list[Judgement]:
    """All changes of verdict in a store, of one node or of all, the newest first."""
    found = store._select("SELECT node, verdict, at, since, facts FROM verdicts ORDER BY id DESC")
    judgements = [judgement for row in found if (judgement := rows.verdict_of(row)) is not None]
    return [one for one in judgements if node in ("", one.node)]
