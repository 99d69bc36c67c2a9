"""Files that are known but not open: waiting to be read, read to the end, or refused.

There may be a hundred thousand of them, so each is little more than a name and a cursor, and a few are checked at a
time. Names and cursors are kept apart: a file may have several names, and the refusal of one does not concern the
others.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.logs.tail.files import FileKey, Refusal
    from tpuwatch.logs.tail.sources import Source

_CHECKS = 256  # files checked per call
_RETRIES = 64  # refused files retried per call
_MAX_NAMELESS = 10_000


@dataclass(slots=True)
class ClosedFile:
    """A name of a file that is not open."""

    source: Source
    path: str
    key: FileKey
    size: int  # bytes, when it was last checked
    offset: int  # bytes that are processed
    mtime_ns: int = -1
    refusal: Refusal | None = None


class ClosedFiles:
    """Keeps the names of files that are not open, and how far all such files were read."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._names: dict[str, ClosedFile] = {}
        self._urgent: dict[str, int] = {}  # waiting to be opened first: unread bytes by path
        self._waiting: dict[str, int] = {}  # waiting to be opened after those
        self._refused: dict[str, None] = {}
        self._cursors: dict[FileKey, bytes] = {}  # packed: there may be very many
        self._nameless = {(cursor.device, cursor.inode): cursor for cursor in cursors}  # of files without a name
        self._max_nameless = max(_MAX_NAMELESS, len(self._nameless))
        self._remaining: Iterator[str] = iter(())
        self.unread = 0  # bytes in files that wait to be opened
        self.waiting_texts = 0  # how many of them are jobs' output

    def __iter__(self) -> Iterator[ClosedFile]:
        """All files, those that wait to be opened first."""
        for path in itertools.chain(self._urgent, self._waiting):
            yield self._names[path]
        for path, name in self._names.items():
            if not self._waits(path):
                yield name

    def __len__(self) -> int:
        return len(self._names)

    @property
    def waiting(self) -> int:
        """How many files wait to be opened."""
        return len(self._urgent) + len(self._waiting)

    def _waits(self, path: str) -> bool:
        return path in self._urgent or path in self._waiting

    def is_waiting(self, name: ClosedFile) -> bool:
        """Whether a file waits to be opened, or could not be opened."""
        return self._waits(name.path) or name.path in self._refused

    def _queue(self, name: ClosedFile, *, urgent: bool) -> None:
        queue, other = (self._urgent, self._waiting) if urgent else (self._waiting, self._urgent)
        unread = max(0, name.size - name.offset)
        if not self._waits(name.path):
            self.waiting_texts += name.source.kind is StreamKind.TEXT
        self.unread += unread - queue.get(name.path, 0) - other.pop(name.path, 0)
        queue[name.path] = unread  # in its place, if it waits there already

    def _unqueue(self, name: ClosedFile) -> None:
        path = name.path
        if self._waits(path):
            self.waiting_texts -= name.source.kind is StreamKind.TEXT
        self.unread -= self._urgent.pop(path, 0) + self._waiting.pop(path, 0)

    @property
    def readable(self) -> bool:
        """Whether any of the files was not refused."""
        return len(self._names) > len(self._refused)

    @property
    def refused(self) -> Iterator[ClosedFile]:
        """The files that could not be opened at the last try."""
        return (self._names[path] for path in self._refused)

    def cursor(self, name: ClosedFile) -> Cursor:
        """How far a file was read."""
        packed = self._cursors.get(name.key)
        if packed is not None:
            return _unpack(packed, name)
        return self._nameless.get(name.key) or Cursor(name.path, *name.key, b"", 0)

    def add(
        self, source: Source, path: str, key: FileKey, *, history: bool, urgent_since: float = 0.0
    ) -> Cursor | None:
        """Add a new name. Returns the first cursor of a file that is history, to be stored before it is read.

        Files that were written since `urgent_since`, a time, are opened before all others.
        """
        self.remove(path)  # of another file
        size, written = _size_and_time(path)
        self._names[path] = name = ClosedFile(source, path, key, size, 0)
        name.offset = self.cursor(name).offset
        self._queue(name, urgent=written >= urgent_since)
        if history and key not in self._cursors and key not in self._nameless:
            first = Cursor(path, *key, b"", 0, history_until=name.size)
            self._cursors[key] = _pack(first)
            return first
        return None

    def remove(self, path: str) -> int:
        """A name is gone; its file may reappear under another. Returns how many bytes waited to be read."""
        name = self._names.pop(path, None)
        if name is None:
            return 0
        waited = self._waits(path) and path not in self._refused
        self._unqueue(name)
        self._refused.pop(path, None)
        if name.key in self._cursors:
            self.keep(_unpack(self._cursors.pop(name.key), name))
        return max(0, name.size - name.offset) if waited else 0

    def add_closed(self, name: ClosedFile, cursor: Cursor) -> None:
        """Add a file that was open until now."""
        self._names[name.path] = name
        self._nameless.pop(name.key, None)
        self._cursors[name.key] = _pack(cursor)

    def add_back(self, name: ClosedFile) -> None:
        """Add a name that need not or cannot be opened now; it is checked again when its file changes."""
        self._names[name.path] = name

    def keep(self, cursor: Cursor) -> None:
        """Keep the cursor of a file that has no name now."""
        self._nameless[cursor.device, cursor.inode] = cursor
        if len(self._nameless) > self._max_nameless:
            del self._nameless[next(iter(self._nameless))]

    def opened(self, key: FileKey) -> None:
        """Drop the cursor of a file that is open now: its reader keeps it."""
        self._cursors.pop(key, None)
        self._nameless.pop(key, None)

    def take_waiting(self, limit: int) -> list[ClosedFile]:
        """Remove and return files to be opened: those that are urgent, then those that have waited longest."""
        paths = list(itertools.islice(itertools.chain(self._urgent, self._waiting), limit))
        names = [self._names.pop(path) for path in paths]
        for name in names:
            self._unqueue(name)
            self._refused.pop(name.path, None)
        return names

    def refuse(self, name: ClosedFile, refusal: Refusal) -> bool:
        """Add a file that could not be opened. Returns whether the reason is new."""
        is_new = name.refusal is not refusal
        name.refusal = refusal
        self._names[name.path] = name
        self._refused[name.path] = None
        return is_new

    def check(self, path: str) -> None:
        """Queue a file to be opened if it has changed since it was last checked."""
        name = self._names.get(path)
        if name is None or name.refusal is not None:
            return
        try:
            entry = os.stat(path)
        except OSError:
            return  # the next scan of its directory decides
        if (entry.st_size, entry.st_mtime_ns) != (name.size, name.mtime_ns):
            name.size = entry.st_size
            self._queue(name, urgent=True)

    def check_some(self) -> None:
        """Check the next few files, and queue some of the refused ones again."""
        paths = list(itertools.islice(self._remaining, _CHECKS))
        if len(paths) < _CHECKS:
            self._remaining = iter(list(self._names))
        for path in paths:
            self.check(path)
        for path in list(itertools.islice(self._refused, _RETRIES)):
            self._queue(self._names[path], urgent=False)


def _pack(cursor: Cursor) -> bytes:
    """A cursor without its path and key, in a third of the space."""
    parts = (cursor.head.decode("latin-1"), cursor.offset, cursor.state, cursor.history_until)
    return zlib.compress(json.dumps(parts).encode(), 1)


def _unpack(packed: bytes, name: ClosedFile) -> Cursor:
    head, offset, state, history_until = json.loads(zlib.decompress(packed))
    return Cursor(name.path, *name.key, head.encode("latin-1"), offset, state, history_until)


def _size_and_time(path: str) -> tuple[int, float]:
    """A file's size, and when it was last written; zero for one that is gone."""
    try:
        entry = os.stat(path)
    except OSError:
        return 0, 0.0
    return entry.st_size, entry.st_mtime
