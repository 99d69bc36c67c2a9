"""Recognises a failure that is reported twice: libtpu logs it, and the program prints the exception.

What it has to know after a restart is in the store: the events of the last seconds, and where else each was reported.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tpuwatch.logs import agree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Cause, Event

REPORT_SECONDS = 10.0  # between the record in the log and the line that is printed
_MAX_REPORTS = 1000
MAX_UNPAIRED = 100  # of a cause


class DoubleReports:
    """What was reported in the last seconds. A record of a log is paired with at most one printed exception."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        """`events`: what earlier runs stored in the last 2 * REPORT_SECONDS, the oldest first."""
        # By key: when it was read, and the key of the other report if it was the second one.
        self._reports: dict[bytes, tuple[float, bytes | None]] = {}
        # What is not paired yet, by cause and by whether a program printed it: a record has a severity.
        self._unpaired: dict[tuple[Cause, bool], deque[tuple[Event, float]]] = {}  # and when each happened
        for event in filter(_may_pair, events):
            self._reports[event.key] = event.observed, None
            self._reports |= {
                place.key: (event.observed, event.key) for place in event.places if place.key != event.key
            }
            if all(bool(place.severity) == bool(event.severity) for place in event.places):
                self._add_unpaired(event, event.when)

    def first_key(self, event: Event, written: float | None = None) -> bytes | None:
        """The key of the failure's first report, in the other way; None if this is the first one.

        A record has one answer in all its files. `written`: when its file was last written, before which text without a
        time was, in seconds since the epoch; it may be read long after.

        Old text has no time to go by: its failures are never reported twice. Nor is a record's later line in a job's
        output, which has a severity and no time: it has the record's key.
        """
        if not _may_pair(event):
            return None
        self._forget(event.observed - 2 * REPORT_SECONDS)
        if event.key not in self._reports:
            self._reports[event.key] = (event.observed, self._pair(event, _moment(event, written)))
        return self._reports[event.key][1]

    def may_answer(self, event: Event, keys: Iterable[bytes]) -> bool:
        """Whether `first_key` may name another report of one of many such events, `keys`, of which this is the last."""
        if not _may_pair(event):
            return False
        self._forget(event.observed - 2 * REPORT_SECONDS)
        paired = {key for key, (_, first) in self._reports.items() if first is not None}
        return bool(self._unpaired.get((event.cause, bool(event.severity)))) or not paired.isdisjoint(keys)

    def _pair(self, event: Event, at: float) -> bytes | None:
        """Take the report that it is the second to, if there is one; its key."""
        others = self._unpaired.get((event.cause, bool(event.severity)), deque())
        same = next((one for one in others if abs(one[1] - at) <= REPORT_SECONDS and _is_same(one[0], event)), None)
        if same is None:
            self._add_unpaired(event, at)
            return None
        others.remove(same)
        return same[0].key

    def _add_unpaired(self, event: Event, at: float) -> None:
        printed = not event.severity
        self._unpaired.setdefault((event.cause, printed), deque(maxlen=MAX_UNPAIRED)).append((event, at))

    def _forget(self, before: float) -> None:
        """Forget what was read before that time."""
        while self._reports:
            oldest = next(iter(self._reports))
            if self._reports[oldest][0] >= before and len(self._reports) <= _MAX_REPORTS:
                break
            del self._reports[oldest]
        for events in self._unpaired.values():
            while events and events[0][0].observed < before:
                events.popleft()


def _may_pair(event: Event) -> bool:
    """Whether it may be one of a pair. What `tpuwatch exec` found gives way to what is read, and never the reverse."""
    if event.is_from_exec or event.history or not event.cause.is_fault:
        return False
    return not event.severity or event.time is not None


def _is_same(one: Event, other: Event) -> bool:
    return (one.pid is None or other.pid is None or one.pid == other.pid) and agree(one.details, other.details)


def _moment(event: Event, written: float | None) -> float:
    return event.when if event.time is not None or written is None else min(event.observed, written)
