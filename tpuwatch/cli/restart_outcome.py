"""What became of one node that was to be restarted, and the exit code that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tpuwatch.restart.record import Record, Target

DONE: Final = 0
_WRONG, _MISUSED, _UNKNOWN, _INTERRUPTED = 1, 2, 3, 130
_CODES: Final = {
    "done": DONE,
    "dry_run": DONE,
    "misused": _MISUSED,
    "unknown": _UNKNOWN,
    "interrupted": _INTERRUPTED,
}  # all others: 1
# After these the next nodes are left alone: somebody wants an end, or they would fare no better.
_LAST: Final = frozenset({"interrupted", "unknown", "held"})


@dataclass(slots=True)
class Outcome:
    """What became of one node."""

    # "done", "failed", "needs_person", "cancelled" as the record ended; "held": somebody else is at it; "declined",
    # "dry_run", "misused", "interrupted", "skipped"; "unknown": it could not be found out.
    what: str
    sentence: str = ""
    record: Record | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        return _CODES.get(self.what, _WRONG)

    @property
    def last(self) -> bool:
        """Whether the nodes after this one are to be left alone; also if this one was touched and is not well."""
        return self.what in _LAST or (self.code != DONE and self.record is not None and self.record.stops > 0)

    def document(self, target: Target, seconds: float) -> dict[str, Any]:
        """It for JSON. `seconds`: how long it took."""
        record = self.record
        return {
            "node": target.node,
            "outcome": self.what,
            "phase": record.phase if record is not None else None,
            "operations": record.operations if record is not None else (),
            "seconds": round(seconds, 3),
            "zone": target.zone,
            "project": target.project,
            "note": self.sentence or (record.note if record is not None else ""),
        }
