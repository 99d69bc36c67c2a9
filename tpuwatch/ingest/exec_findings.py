"""What `tpuwatch exec` found in a run, as events of the daemon; none where the daemon has read of the failure itself.

Any user may leave a record, so it can claim no more than a job's output can. The daemon's own rule has the summary and
the remedy. A text among the details is what that rule captures in the recognised lines, or has nothing in it that a
shell or a terminal obeys. No event of the daemon's own reading is left out for a record's sake.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.ingest.double_reports import REPORT_SECONDS
from tpuwatch.logs import agree
from tpuwatch.model import EXEC, Cause, Event, Place, Repetition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tpuwatch.launches import ExecRecord, RecordedFinding
    from tpuwatch.logs import Rule

LATE_SECONDS: Final = 60.0  # between the reading of a record and that of an output which was written long before
_MAX_COUNTED: Final = 100  # failures of a finding
_PLAIN: Final = re.compile(r"[\w .,:/=+@%()\[\]{}-]*", re.ASCII)
_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """A finding as an event."""

    event: Event
    first: float  # when it happened first,
    last: float  # and last, as the record has it
    count: int

    def known_event(self, known: Iterable[Event], taken: frozenset[bytes] = frozenset()) -> Event | None:
        """The event of the daemon's own reading that is of the same failure; None if there is none.

        `taken`: keys of those that are another run's.
        """
        return next((one for one in known if one.key not in taken and self._is_same(one)), None)

    def place(self, known: Event) -> Place:
        """This report as a place of an event that is known. The severity is the event's: it is no other pair."""
        return Place(self.event.key, self.event.file, 0, self.event.time, known.severity)

    def repetition(self) -> Repetition | None:
        """The failures beside the event's own; None if there are none."""
        keys = [_digest(self.event.key, b"%d" % number) for number in range(1, self.count)]
        return Repetition(self.event, keys, min(self.first, self.event.when)) if keys else None

    def _is_same(self, known: Event) -> bool:
        if known.cause is not self.event.cause or known.is_from_exec or known.history:
            return False
        if any(place.file.startswith(EXEC) and place.key != self.event.key for place in known.places):
            return False
        then = self.first - REPORT_SECONDS <= known.when <= self.last + REPORT_SECONDS
        late = known.time is None and abs(known.observed - self.event.observed) <= LATE_SECONDS
        # Of several failures the details are those of one.
        return (then or late) and (self.count > 1 or agree(known.details, self.event.details))


def reported_failures(
    record: ExecRecord, rules: Mapping[str, Rule], now: float, begun: float
) -> Iterator[ReportedFailure]:
    """The findings of a record. `begun`: when tpuwatch first ran here; what was before is history."""
    for finding in record.findings:
        when = min(max(finding.last, record.started), record.ended)
        event = Event(
            key=_digest(record.owner.encode(), record.id.encode(), finding.cause.encode()),
            rule=finding.rule,
            cause=Cause(finding.cause),
            observed=now,
            time=when,
            severity="",
            pid=None,
            file=f"{EXEC}{record.workload}" + (f" ({record.owner})" if record.owner else ""),
            offset=0,
            text=finding.text,
            details=_details(finding, rules.get(finding.rule)),
            history=when < begun,
        )
        yield ReportedFailure(event, finding.first, finding.last, min(finding.count, _MAX_COUNTED))


def _details(finding: RecordedFinding, rule: Rule | None) -> dict[str, Any]:
    captured = {} if rule is None else rule.details(finding.text.encode("utf-8", "replace"))
    return {
        name: value
        for name, value in finding.details.items()
        if not isinstance(value, str) or captured.get(name) == value or _PLAIN.fullmatch(value)
    }


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=_KEY_BYTES).digest()
