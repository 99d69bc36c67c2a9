"""Recognises a failure that is reported twice: libtpu logs it, and the program prints the exception."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.model import Cause, Event

REPORT_SECONDS = 10.0  # between the record in the log and the line that is printed
_MAX_REPORTS = 1000
_MAX_UNPAIRED = 100  # of a cause


class DoubleReports:
    """What was reported in the last seconds. A record of a log is paired with at most one printed exception."""

    def __init__(self) -> None:
        self._reports: dict[bytes, tuple[float, bool]] = {}  # by key: when it was read, and whether it was a second one
        # What is not paired yet, by cause and by whether a program printed it: a record has a severity.
        self._unpaired: dict[tuple[Cause, bool], deque[Event]] = {}

    def is_second(self, event: Event) -> bool:
        """Whether the failure was reported already, in the other way. A record has one answer in all its files.

        Old text has no time to go by: its failures are never reported twice. Nor is a record's later line in a job's
        output, which has a severity and no time: it has the record's key.
        """
        if event.history or not event.cause.is_fault or (event.severity and event.time is None):
            return False
        self._forget(event.observed - 2 * REPORT_SECONDS)
        if event.key not in self._reports:
            self._reports[event.key] = (event.observed, self._pair(event))
        return self._reports[event.key][1]

    def _pair(self, event: Event) -> bool:
        """Take the report that it is the second to, if there is one."""
        printed = not event.severity
        others = self._unpaired.get((event.cause, not printed), deque())
        same = next((other for other in others if _is_same(other, event)), None)
        if same is None:
            self._unpaired.setdefault((event.cause, printed), deque(maxlen=_MAX_UNPAIRED)).append(event)
            return False
        others.remove(same)
        return True

    def _forget(self, before: float) -> None:
        """Forget what was read before that time."""
        while self._reports:
            oldest = next(iter(self._reports))
            if self._reports[oldest][0] >= before and len(self._reports) <= _MAX_REPORTS:
                break
            del self._reports[oldest]
        for events in self._unpaired.values():
            while events and events[0].observed < before:
                events.popleft()


def _is_same(one: Event, other: Event) -> bool:
    return (
        abs(_moment(one) - _moment(other)) <= REPORT_SECONDS
        and (one.pid is None or other.pid is None or one.pid == other.pid)
        and _agree(one.details, other.details)
    )


def _moment(event: Event) -> float:
    return event.observed if event.time is None else event.time


def _agree(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether no detail has two values."""
    return all(others[name] == value for name, value in some.items() if name in others)
