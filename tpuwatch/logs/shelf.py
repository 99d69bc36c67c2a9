"""Files that are known but not open: those waiting to be read, those read to the end, and those refused.

There may be a hundred thousand of them, so each is little more than a name and a cursor, and they are looked at a few
at a time. Names and cursors are kept apart: a file may have several names, and that one is refused says nothing of the
others.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.logs.files import FileKey, Refusal
    from tpuwatch.logs.sources import Source

_CHECKS = 128  # files that are looked at in one go
_RETRIES = 64  # refused files that are tried again in one go
_MAX_STRAYS = 10_000


@dataclass(slots=True)
class Resting:
    """A name of a file that is not open."""

    source: Source
    path: str
    key: FileKey
    size: int  # bytes, when it was last looked at
    offset: int  # bytes that are done
    mtime_ns: int = -1
    refusal: Refusal | None = None


class Shelf:
    """Keeps the names of files that are not open, and how far all such files were read."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._names: dict[str, Resting] = {}
        self._waiting: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._cursors: dict[FileKey, bytes] = {}  # packed: there may be very many
        self._strays = {(cursor.device, cursor.inode): cursor for cursor in cursors}  # of files without a name
        self._max_strays = max(_MAX_STRAYS, len(self._strays))
        self._round: Iterator[str] = iter(())

    def __iter__(self) -> Iterator[Resting]:
        return iter(self._names.values())

    @property
    def waiting(self) -> int:
        """How many files are to be opened."""
        return len(self._waiting)

    def is_waiting(self, name: Resting) -> bool:
        """Whether a file is to be opened, or could not be."""
        return name.path in self._waiting or name.path in self._refused

    @property
    def unread(self) -> int:
        """Bytes in files that are to be opened."""
        names = (self._names[path] for path in self._waiting)
        return sum(max(0, name.size - name.offset) for name in names)

    @property
    def refused(self) -> Iterator[Resting]:
        """The files that could not be opened when that was last tried."""
        return (self._names[path] for path in self._refused)

    def cursor(self, name: Resting) -> Cursor:
        """How far a file was read."""
        packed = self._cursors.get(name.key)
        if packed is not None:
            return _unpack(packed, name)
        return self._strays.get(name.key) or Cursor(name.path, *name.key, b"", 0)

    def add(self, source: Source, path: str, key: FileKey, *, history: bool) -> Cursor | None:
        """A name was found. Gives the first cursor of a file that is history, which is to be kept before it is read."""
        self.remove(path)  # of another file
        self._names[path] = name = Resting(source, path, key, _size(path), 0)
        self._waiting[path] = None
        if history and key not in self._cursors and key not in self._strays:
            first = Cursor(path, *key, b"", 0, history_until=name.size)
            self._cursors[key] = _pack(first)
            return first
        name.offset = self.cursor(name).offset
        return None

    def remove(self, path: str) -> None:
        """A name is gone; its file may come back under another."""
        name = self._names.pop(path, None)
        self._waiting.pop(path, None)
        self._refused.pop(path, None)
        if name is not None and name.key in self._cursors:
            self.keep(_unpack(self._cursors.pop(name.key), name))

    def put(self, name: Resting, cursor: Cursor) -> None:
        """A file that was open is now at rest."""
        self._names[name.path] = name
        self._strays.pop(name.key, None)
        self._cursors[name.key] = _pack(cursor)

    def put_back(self, name: Resting) -> None:
        """A name need not or cannot be opened now; look at it again when its file changes."""
        self._names[name.path] = name

    def keep(self, cursor: Cursor) -> None:
        """Remember how far a file was read that has no name now."""
        self._strays[cursor.device, cursor.inode] = cursor
        if len(self._strays) > self._max_strays:
            del self._strays[next(iter(self._strays))]

    def opened(self, key: FileKey) -> None:
        """A file is open: whoever reads it keeps its cursor from now on."""
        self._cursors.pop(key, None)
        self._strays.pop(key, None)

    def take_waiting(self, limit: int) -> list[Resting]:
        """Hand over names of files to be opened, first come first served."""
        paths = list(itertools.islice(self._waiting, limit))
        for path in paths:
            del self._waiting[path]
            self._refused.pop(path, None)
        return [self._names.pop(path) for path in paths]

    def refuse(self, name: Resting, refusal: Refusal) -> bool:
        """A file could not be opened. Whether that is news."""
        news = name.refusal is not refusal
        name.refusal = refusal
        self._names[name.path] = name
        self._refused[name.path] = None
        return news

    def look(self, path: str) -> None:
        """Have a file opened if it has changed since it was last looked at."""
        name = self._names.get(path)
        if name is None or name.refusal is not None:
            return
        try:
            entry = os.stat(path)
        except OSError:
            return  # the next look through its directory will tell
        if (entry.st_size, entry.st_mtime_ns) != (name.size, name.mtime_ns):
            name.size = entry.st_size
            self._waiting[path] = None

    def look_round(self) -> None:
        """Look at the next few files, and have some of the refused ones tried again."""
        paths = list(itertools.islice(self._round, _CHECKS))
        if len(paths) < _CHECKS:
            self._round = iter(list(self._names))
        for path in paths:
            self.look(path)
        for path in list(itertools.islice(self._refused, _RETRIES)):
            self._waiting[path] = None


def _pack(cursor: Cursor) -> bytes:
    """A cursor without its path and key, in a third of the space."""
    parts = (cursor.head.decode("latin-1"), cursor.offset, cursor.state, cursor.history_until)
    return zlib.compress(json.dumps(parts).encode(), 1)


def _unpack(packed: bytes, name: Resting) -> Cursor:
    head, offset, state, history_until = json.loads(zlib.decompress(packed))
    return Cursor(name.path, *name.key, head.encode("latin-1"), offset, state, history_until)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
