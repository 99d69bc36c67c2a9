"""The table of restarts on the status page: those under way first, then the latest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.model import Phase
from tpuwatch.restart import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Attempt, RestartRecord, Tone

MOST: Final = 10
_TONES: Final[dict[Phase, Tone]] = {
    Phase.DONE: "good",
    Phase.FAILED: "bad",
    Phase.NEEDS_OPERATOR: "bad",
    Phase.NOT_VERIFIED: "warn",
    Phase.CANCELLED: "plain",
}


@dataclass(frozen=True, slots=True)
class RestartRow:
    """One restart. Times are seconds since the epoch; `ended` is None while it is under way."""

    key: str  # that no other has
    node: str
    zone: str
    action: str
    phase: str
    tone: Tone
    began: float
    ended: float | None
    actor: str
    reason: str
    note: str


def restart_rows(records: Iterable[RestartRecord]) -> list[RestartRow]:
    """At most MOST rows; a record has the restart that is under way, and those of its node that have ended."""
    rows = [row for record in records for row in _rows(record)]
    rows.sort(key=lambda row: (row.ended is not None, -row.began))
    return rows[:MOST]


def _rows(record: RestartRecord) -> Iterable[RestartRow]:
    if record.open:
        yield _row(record, record, record.requested, None)
    for attempt in record.history:
        yield _row(record, attempt, attempt.began, attempt.ended)


def _row(record: RestartRecord, one: RestartRecord | Attempt, began: float, ended: float | None) -> RestartRow:
    target = record.target
    return RestartRow(
        key=f"{target.path} {began}",
        node=target.node,
        zone=target.zone,
        action=words(one.action),
        phase=words(one.phase),
        tone=_TONES.get(one.phase, "warn"),
        began=began,
        ended=ended,
        actor=one.actor,
        reason=one.reason,
        note="" if one.phase is Phase.DONE else one.note,
    )
