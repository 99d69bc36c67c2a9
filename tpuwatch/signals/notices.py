"""The signal of the metadata server's notices: maintenance and preemption, minutes before they happen.

One request covers all of them: the whole instance as JSON, to be answered when something in it changes. Google's own
guest agent waits in the same way. Replies are bounded by the client.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import Pacing
from tpuwatch.google import MetadataError
from tpuwatch.model import Answer, Cause, Event, Maintenance, Notices, Problem, Signal
from tpuwatch.signals.identity import metadata_client

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tpuwatch.core import Clock
    from tpuwatch.google import MetadataClient
    from tpuwatch.signals.sources import SignalSources


PATH: Final = "instance/?recursive=true&alt=json"
WAIT_SECONDS: Final = 60.0  # how long one request waits for a change
INTERVAL: Final = 1.0  # between two requests, lest a server that does not wait be asked without end
MAX_PAUSE: Final = 120.0  # between two requests after faults
SOURCE = "metadata server"  # stands where a log's events have their file
KUBERNETES = "Kubernetes"  # the same, of what only Kubernetes announces
QUIET = frozenset({"", "NONE"})  # values of maintenance-event that announce nothing
_MAX_WORD: Final = 64
_FRACTION: Final = re.compile(r"\.\d+")

_NO_NOTICES = (
    "The metadata server has no notices of maintenance and preemption, so they are seen only when they happen: it "
    "is not Compute Engine's own, or keeps that from this machine."
)
_CLOSED = "tpuwatch is being stopped, so the metadata server is no longer asked."


class NoticesSignal:
    """Waits for notices. `ask` is for one thread, `close` for any. Times in seconds."""

    def __init__(
        self, metadata: MetadataClient, *, clock: Clock, rng: random.Random, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        """Takes over `metadata`, whose waiting request `close` ends by closing it."""
        self._metadata = metadata
        self._clock = clock
        self._wait = wait_seconds
        self._pacing = Pacing(INTERVAL, clock=clock, rng=rng, max_pause=MAX_PAUSE)
        self._etag = ""
        self._last: Answer[Notices] = Answer()
        self._closed = False

    @property
    def due_in(self) -> float:
        """Seconds until it wants to be asked again."""
        return self._pacing.due_in

    @property
    def server_epoch(self) -> float | None:
        """The server's time at the zero of the monotonic clock; None before its first answer."""
        return self._metadata.server_epoch

    def ask(self) -> Answer[Notices]:
        """What is announced, as soon as that changes, or after `wait_seconds`; at first, and after faults, at once."""
        if self._closed:
            return self._failed(Problem.OFF, _CLOSED)
        try:
            text, etag = self._metadata.wait(PATH, self._etag, self._wait)
        except MetadataError as error:
            if self._closed:
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

    def close(self) -> None:
        """Cancel the request that waits, and make no more. May be called from any thread."""
        self._closed = True
        self._metadata.close()

    def _failed(self, problem: Problem, detail: str, retry_after: float | None = None) -> Answer[Notices]:
        self._etag = ""  # a change in the meantime must be reported at once
        self._pacing.failed(retry_after)
        self._last = Answer(self._last.value, self._last.at, problem, detail, self._clock.time())
        return self._last


def parse_notices(text: str) -> Notices | None:
    """The notices in the JSON of `instance/`; None where it contains none at all."""
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


def combined(metadata: Notices | None, kubernetes: Notices | None) -> Notices | None:
    """What both announce, so that what both know of is one notice; None if nothing is known.

    Of a maintenance the metadata server's word counts: it has the window, and whether it can be moved.
    """
    if metadata is None or kubernetes is None:
        return metadata or kubernetes
    return replace(
        metadata,
        maintenance=metadata.maintenance or kubernetes.maintenance,
        terminating=kubernetes.terminating,
        conditions=kubernetes.conditions,
    )


def new_events(
    notices: Notices, before: Notices | None, *, now: float, boot_id: str, kubernetes: Notices | None = None
) -> list[Event]:
    """Return the events for notices that hold now and did not hold `before`. Some may be of `kubernetes`."""
    others = set(_notices(kubernetes)) if kubernetes is not None else set()
    known = set(_notices(before)) if before is not None else set()
    return [
        _event(*notice, now=now, boot_id=boot_id, source=KUBERNETES if notice in others else SOURCE)
        for notice in _notices(notices)
        if notice not in known
    ]


def _notices(notices: Notices) -> Iterator[tuple[Cause, str]]:
    """What is announced: the cause, and the text of the rule that stands for it."""
    if notices.preempted:
        yield Cause.PREEMPTED, "preempted: the VM was preempted"
    if notices.maintenance_event not in QUIET:
        yield Cause.MAINTENANCE, f"maintenance-event: {notices.maintenance_event}"
    if (coming := notices.maintenance) is not None:
        start = "an unknown time" if coming.start is None else f"{coming.start:.0f}"
        yield Cause.MAINTENANCE, f"upcoming_maintenance: {coming.kind} {coming.status}, from {start}"
    if notices.terminating:
        yield Cause.MAINTENANCE, "upcoming_maintenance: Kubernetes is about to terminate the node"


def _event(cause: Cause, text: str, *, now: float, boot_id: str, source: str) -> Event:
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
        file=source,
        offset=0,
        text=text,
    )


def start(sources: SignalSources) -> None:
    """Add the source that waits for the metadata server's notices."""
    source = NoticesSignal(metadata_client(sources), clock=sources.clock, rng=sources.rng)

    def on_answer(answer: Answer[Notices]) -> None:
        sources.post(Signal.METADATA, answer)
        sources.post_server_epoch(source.server_epoch)

    sources.add("notices", source, WAIT_SECONDS, on_answer)
