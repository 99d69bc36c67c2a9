"""What a follower tells: what one poll read, what happened to files, and how far each was read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tpuwatch.logs.files import LogFile, Refusal
    from tpuwatch.logs.tail import Sighting
    from tpuwatch.model import Cursor


@dataclass(slots=True)
class Reading:
    """What one poll read. Sightings and cursors belong into one transaction."""

    sightings: list[Sighting] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)  # of every file whose offset or state moved
    bytes_read: int = 0
    records: Counter[str] = field(default_factory=Counter)  # by severity letter, each once whatever files hold it
    more: bool = False  # there is unread data: poll again at once
    due_in: float = 0.0  # seconds after which to poll again even if nothing wakes


@dataclass(slots=True)
class Counters:
    """What happened to files since the start."""

    truncations: int = 0  # cut off or written anew
    refusals: Counter[Refusal] = field(default_factory=Counter)


class FileStatus(NamedTuple):
    """A known file, for people to see."""

    file: LogFile
    size: int  # bytes
    read: int  # bytes
    written: float | None  # when it last changed, in seconds since the epoch
