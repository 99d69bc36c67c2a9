"""Files that are known but not open: those waiting to be read, those read to the end, and those refused.

There may be a hundred thousand of them, so each is little more than its cursor, and they are looked at a few at a time.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.logs.files import FileKey, Refusal
    from tpuwatch.logs.sources import Source

_CHECKS = 256  # files that are looked at in one go
_RETRIES = 64  # refused files that are tried again in one go
_MAX_STRAYS = 10_000


@dataclass(slots=True)
class Resting:
    """A known file that is not open."""

    source: Source
    cursor: Cursor
    size: int = -1  # bytes, when it was last looked at
    mtime_ns: int = -1
    refusal: Refusal | None = None

    @property
    def key(self) -> FileKey:
        return (self.cursor.device, self.cursor.inode)

    @property
    def unread(self) -> int:
        """Bytes that are known to be there and not read."""
        return max(0, self.size - self.cursor.offset)


class Shelf:
    """Keeps resting files, and the cursors of files that are nowhere to be seen."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._strays = {(cursor.device, cursor.inode): cursor for cursor in cursors}
        self._max_strays = max(_MAX_STRAYS, len(self._strays))
        self._files: dict[FileKey, Resting] = {}
        self._waiting: dict[FileKey, None] = {}
        self._refused: dict[FileKey, None] = {}
        self._round: Iterator[FileKey] = iter(())

    def __iter__(self) -> Iterator[Resting]:
        return iter(self._files.values())

    @property
    def waiting(self) -> int:
        """How many files are to be opened."""
        return len(self._waiting)

    @property
    def unread(self) -> int:
        """Bytes in files that are to be opened."""
        return sum(self._files[key].unread for key in self._waiting)

    @property
    def refused(self) -> Iterator[Resting]:
        return (self._files[key] for key in self._refused)

    def add(self, source: Source, path: str, key: FileKey, *, history: bool) -> Cursor | None:
        """A name was found for a file that is not open. Gives the first cursor of one that is history."""
        known = self._files.get(key)
        cursor = self._strays.pop(key, None) if known is None else known.cursor
        fresh = cursor is None
        if cursor is None:
            cursor = Cursor(path, *key, head=b"", offset=0, history_until=_size(path) if history else 0)
        self._files[key] = Resting(source, replace(cursor, path=path), _size(path))
        self._waiting[key] = None
        return cursor if fresh and history else None

    def put(self, resting: Resting) -> None:
        """A file that was open is now at rest."""
        self._files[resting.key] = resting

    def keep(self, cursor: Cursor) -> None:
        """Remember how far a file was read that is out of sight: it may come back under another name."""
        self._strays[cursor.device, cursor.inode] = cursor
        if len(self._strays) > self._max_strays:
            del self._strays[next(iter(self._strays))]

    def remove(self, path: str, key: FileKey) -> None:
        """A name is gone; and with it the file, unless it has another name."""
        resting = self._files.get(key)
        if resting is not None and resting.cursor.path == path:
            self.keep(self._forget(key).cursor)

    def _forget(self, key: FileKey) -> Resting:
        self._waiting.pop(key, None)
        self._refused.pop(key, None)
        return self._files.pop(key)

    def take_waiting(self, limit: int) -> list[Resting]:
        """Hand over files to be opened, first come first served. They come back by put() or refuse(), or not at all."""
        return [self._forget(key) for key in list(itertools.islice(self._waiting, limit))]

    def refuse(self, resting: Resting, refusal: Refusal) -> bool:
        """A file could not be opened. Whether that is news."""
        news = resting.refusal is not refusal
        resting.refusal = refusal
        self._files[resting.key] = resting
        self._refused[resting.key] = None
        return news

    def look(self, key: FileKey) -> None:
        """Have a file opened if it has changed since it was."""
        resting = self._files.get(key)
        if resting is None or resting.refusal is not None:
            return
        try:
            entry = os.stat(resting.cursor.path)
        except OSError:
            return  # the next look through its directory will tell
        if (entry.st_size, entry.st_mtime_ns) != (resting.size, resting.mtime_ns):
            resting.size = entry.st_size
            self._waiting[key] = None

    def look_round(self) -> None:
        """Look at the next few files, and have some of the refused ones tried again."""
        keys = list(itertools.islice(self._round, _CHECKS))
        if len(keys) < _CHECKS:
            self._round = iter(list(self._files))
        for key in keys:
            self.look(key)
        for key in list(itertools.islice(self._refused, _RETRIES)):
            del self._refused[key]
            self._waiting[key] = None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
