"""Events, findings, and the cursors up to which logs are read.

Everything here is plain data without I/O. Sizes are bytes, durations seconds, times seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.model.causes import Cause


EXEC: Final = (
    "exec of "  # and the workload, in place of the file that a log's event has, where `tpuwatch exec` found it
)
MAX_PLACES = 8
MAX_VALUES = 8  # that are shown of a detail


@dataclass(frozen=True, slots=True)
class Place:
    """Where else the failure of an event was reported. `key` is that report's own."""

    key: bytes
    file: str
    offset: int
    time: float | None  # when the record says it happened
    severity: str  # I, W, E, F, or "" where the text has no such mark


@dataclass(frozen=True, slots=True)
class Event:
    """One record that a rule recognised. `key` is equal for every copy of the record, in whichever file it is read.

    With `repeats` it is the last of many that differ in digits alone.
    """

    key: bytes
    rule: str
    cause: Cause
    observed: float  # when tpuwatch read it
    time: float | None  # when the record says it happened
    severity: str  # I, W, E, F, or "" where the text has no such mark
    pid: int | None
    file: str
    offset: int
    text: str  # the lines of the record that its rule matched, cleaned and truncated
    details: dict[str, Any] = field(default_factory=dict)
    history: bool = False  # written before tpuwatch first ran here: no alert, no action
    id: int | None = None  # the store's number for it
    places: tuple[Place, ...] = ()  # of the failure's other reports, MAX_PLACES at most; not of copies of the record
    repeats: int = 0  # so many others that are no events of their own
    since: float | None = None  # when the first of them happened
    # Of each detail that differs among it and its repeats the values; of numbers the lowest and the highest, else at
    # most MAX_VALUES and one more, which is not shown and says that there are others.
    spread: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def when(self) -> float:
        """The record's own time if it has one, else the time of reading."""
        return self.observed if self.time is None else self.time

    @property
    def is_from_exec(self) -> bool:
        """Whether `tpuwatch exec` found it, and not the daemon. A log's path begins with a slash."""
        return self.file.startswith(EXEC)

    @property
    def workload(self) -> str:
        """The workload of the run that it is of; empty unless `tpuwatch exec` found it."""
        return self.file.removeprefix(EXEC).partition(" ")[0] if self.is_from_exec else ""


def values_together(*values: Sequence[Any]) -> list[Any]:
    """Values of a detail as one list, as `Event.spread` has them."""
    found = sorted({one for some in values for one in some}, key=lambda one: (isinstance(one, str), one))
    if len(found) < 2:
        return found
    return found[: MAX_VALUES + 1] if isinstance(found[-1], str) else [found[0], found[-1]]


def _nothing_stated(_keys: Sequence[bytes]) -> dict[str, Sequence[Any]]:
    return {}


@dataclass(frozen=True, slots=True)
class Repetition:
    """Records that are stored with an event, as they differ from it in digits alone."""

    event: Event
    keys: Sequence[bytes]  # of the records
    since: float | None  # when the first one happened
    stated: Callable[[Sequence[bytes]], Mapping[str, Sequence[Any]]] = _nothing_stated  # details of those of such keys


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a file has been read. Device, inode and first bytes identify the file, not its name."""

    path: str
    device: int
    inode: int
    head: bytes  # the file's first bytes (up to 256), as they were when first seen
    offset: int  # everything below has been processed
    state: dict[str, Any] = field(default_factory=dict)  # what the parser must remember
    history_until: int = 0  # bytes below were written before tpuwatch first ran here


@dataclass(frozen=True, slots=True)
class Remedy:
    """One step to take, and its public source."""

    do: str
    source: str


class CauseConfidence(str, Enum):
    """The certainty of a finding's cause. The value is what users see."""

    CERTAIN = "certain"  # a program said exactly this
    LIKELY = "likely"  # a status and its subject, of a component that says no more
    POSSIBLE = "possible"  # a person's words, or words that programs print and go on

    @property
    def doubt(self) -> str:
        """What views put after the cause; empty where it is certain."""
        return "" if self is CauseConfidence.CERTAIN else f" ({self.value})"


@dataclass(slots=True)
class Finding:
    """All events of one cause, folded into what the operator acts on."""

    cause: Cause
    count: int
    first: Event
    last: Event
    line: int | None
    details: dict[str, Any]
    summary: str
    remedy: tuple[Remedy, ...]
    latest: tuple[Event, ...] = ()  # the last one of each process or file that had it
    rule: str = ""  # the id of the one that has the summary
    confidence: CauseConfidence = CauseConfidence.CERTAIN
