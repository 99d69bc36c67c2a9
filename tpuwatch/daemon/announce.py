"""From the metadata server's notices to events, so that a maintenance or a preemption is on record minutes ahead."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tpuwatch.model import Cause, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.health.evidence import Notices

SOURCE = "metadata server"  # stands where a log's events have their file
QUIET = frozenset({"", "NONE"})  # values of maintenance-event that announce nothing


def announce(notices: Notices, before: Notices | None, *, now: float, boot_id: str) -> list[Event]:
    """The events of notices that hold now and did not hold `before`."""
    known = set(_notices(before)) if before is not None else set()
    return [_event(*notice, now=now, boot_id=boot_id) for notice in _notices(notices) if notice not in known]


def _notices(notices: Notices) -> Iterator[tuple[Cause, str]]:
    """What is announced: the cause, and the text of the rule that stands for it."""
    if notices.preempted:
        yield Cause.PREEMPTED, "preempted: the VM was preempted"
    if notices.maintenance_event not in QUIET:
        yield Cause.MAINTENANCE, f"maintenance-event: {notices.maintenance_event}"
    if (coming := notices.maintenance) is not None:
        start = "an unknown time" if coming.start is None else f"{coming.start:.0f}"
        yield Cause.MAINTENANCE, f"upcoming_maintenance: {coming.kind} {coming.status}, from {start}"


def _event(cause: Cause, text: str, *, now: float, boot_id: str) -> Event:
    # A daemon that starts again under the same notice has no new one; the same notice days later is one.
    key = hashlib.sha256(f"{boot_id}\0{cause.value}\0{text}\0{now // 86_400:.0f}".encode()).digest()[:16]
    return Event(
        key=key,
        rule=cause.value,  # the built-in rule of each of these causes has the cause's name
        cause=cause,
        observed=now,
        time=now,
        severity="W",
        pid=None,
        file=SOURCE,
        offset=0,
        text=text,
    )
