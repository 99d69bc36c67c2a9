"""Notices of the metadata server as a witness: maintenance and preemption, minutes before they happen.

One request covers all of them: the whole instance as JSON, to be answered when something in it changes. Google's own
guest agent waits in the same way. Replies are bounded by the client.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.evidence import Answer, Maintenance, Notices, Problem
from tpuwatch.node.metadata import MetadataError
from tpuwatch.node.pacing import Pacing

if TYPE_CHECKING:
    import random

    from tpuwatch.clock import Clock
    from tpuwatch.node.metadata import Metadata

PATH: Final = "instance/?recursive=true&alt=json"
WAIT_SECONDS: Final = 60.0  # how long one request waits for a change
INTERVAL: Final = 1.0  # between two requests, lest a server that does not wait be asked without end
LONGEST_PAUSE: Final = 120.0  # between two requests after faults
_MAX_WORD: Final = 64
_FRACTION: Final = re.compile(r"\.\d+")

_NO_NOTICES = (
    "The metadata server tells nothing of maintenance and preemption, so they are seen only when they happen: it is "
    "not Compute Engine's own, or keeps that from this machine."
)
_CLOSED = "tpuwatch is being stopped, so the metadata server is no longer asked."


class NoticesWitness:
    """Waits for notices. `ask` is for one thread, `stop` for any. Times in seconds."""

    def __init__(
        self, metadata: Metadata, *, clock: Clock, dice: random.Random, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        """Takes over `metadata`, whose waiting request `stop` ends by closing it."""
        self._metadata = metadata
        self._clock = clock
        self._wait = wait_seconds
        self._pacing = Pacing(INTERVAL, clock=clock, dice=dice, longest=LONGEST_PAUSE)
        self._etag = ""
        self._last: Answer[Notices] = Answer()
        self._stopped = False

    @property
    def due_in(self) -> float:
        """Seconds until it wants to be asked again."""
        return self._pacing.due_in

    def ask(self) -> Answer[Notices]:
        """What is announced, as soon as that changes, or after `wait_seconds`; at first, and after faults, at once."""
        if self._stopped:
            return self._failed(Problem.OFF, _CLOSED)
        try:
            text, etag = self._metadata.wait(PATH, self._etag, self._wait)
        except MetadataError as error:
            if self._stopped:
                return self._failed(Problem.OFF, _CLOSED)
            return self._failed(error.problem, str(error), error.retry_after)
        notices = parse_notices(text)
        if notices is None:
            return self._failed(Problem.FOREIGN, _NO_NOTICES)
        self._etag = etag
        self._pacing.succeeded()
        now = self._clock.time()
        self._last = Answer(notices, now, None, "", now)
        return self._last

    def stop(self) -> None:
        """End the request that waits, and ask no more."""
        self._stopped = True
        self._metadata.close()

    close = stop

    def _failed(self, problem: Problem, detail: str, retry_after: float | None = None) -> Answer[Notices]:
        self._etag = ""  # what changed meanwhile must be told at once
        self._pacing.failed(retry_after)
        self._last = Answer(self._last.value, self._last.at, problem, detail, self._clock.time())
        return self._last


def parse_notices(text: str) -> Notices | None:
    """The notices in the JSON of `instance/`; None where it tells of none at all."""
    try:
        instance = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(instance, dict):
        return None
    event, preempted = instance.get("maintenanceEvent"), instance.get("preempted")
    if event is None and preempted is None:
        return None
    return Notices(
        maintenance_event=_word(event) or "NONE",
        preempted=_yes(preempted),
        maintenance=parse_maintenance(instance.get("upcomingMaintenance")),
    )


def parse_maintenance(value: Any) -> Maintenance | None:
    """The value of `upcoming-maintenance`; None where nothing is announced. Its keys are in snake or camel case."""
    if not isinstance(value, dict):
        return None
    fields = {name.replace("_", "").lower(): part for name, part in value.items()}
    kind, status, start = (
        _word(fields.get("type")),
        _word(fields.get("maintenancestatus")),
        fields.get("windowstarttime"),
    )
    if not (kind or status or start):
        return None  # {}, or {"error": "no notifications …"}
    return Maintenance(
        kind=kind,
        status=status,
        start=_time(start),
        end=_time(fields.get("windowendtime")),
        latest_start=_time(fields.get("latestwindowstarttime")),
        can_reschedule=_yes(fields.get("canreschedule")),
    )


def _word(value: Any) -> str:
    """One of the server's words, such as MIGRATE_ON_HOST_MAINTENANCE; "" for anything else."""
    text = value if isinstance(value, str) and len(value) <= _MAX_WORD else ""
    return text.upper() if text.isascii() and text.replace("_", "").isalnum() else ""


def _yes(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.upper() == "TRUE")


def _time(value: Any) -> float | None:
    """An RFC 3339 time in whole seconds since the epoch; one without an offset is UTC."""
    if not isinstance(value, str) or len(value) > _MAX_WORD:
        return None
    try:
        when = datetime.fromisoformat(_FRACTION.sub("", value.strip().upper()).replace("Z", "+00:00"))
        at = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if math.isfinite(at) else None
