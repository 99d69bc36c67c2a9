"""One open log file, read and parsed as it grows.

What is read is decided by fstat and pread alone. Once open, a file is followed whatever becomes of its name, so a
rename or a deletion loses nothing; a file that is cut off or written anew is begun again.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.files import LogFile, read_head
from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from tpuwatch.clock import Clock
    from tpuwatch.logs.files import FileKey
    from tpuwatch.logs.parser import LogParser, Match

ParserFactory = Callable[[LogFile, int, Mapping[str, Any]], "LogParser"]  # file, offset, state

CHUNK_BYTES = 1 << 18  # twice as fast as 1 MiB: it stays in the cache, and malloc need not ask the kernel for it
PARTIAL_SECONDS = 10.0  # a last line without its end waits this long before its writer is asked for
_BEFORE = "before"  # in a cursor's state: a checksum of the bytes before its offset
_BEFORE_BYTES = 64
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Sighting:
    """A match and the file that it stands in."""

    match: Match
    file: LogFile
    history: bool  # written before tpuwatch first ran here


class Tail:
    """A followed file. Times are monotonic seconds; the system's errors in reading it come through as OSError."""

    def __init__(
        self, descriptor: int, file: LogFile, cursor: Cursor, parser_factory: ParserFactory, clock: Clock
    ) -> None:
        """Takes over `descriptor`. Goes on at `cursor` if that is about this very file, else begins at 0."""
        self.file = file
        self.rotated = False  # its process has begun a newer file of the same severity
        self.unlisted = False  # its name is gone, and maybe the file
        self.restarts = 0  # how often it was found cut off or written anew
        self.bytes_read = 0  # so far
        self.served = 0  # when its turn to be read was last; kept by whoever gives turns
        self._descriptor = descriptor
        self._parser_factory = parser_factory
        self._clock = clock
        entry = os.fstat(descriptor)
        self.key: FileKey = (entry.st_dev, entry.st_ino)
        self.size = entry.st_size
        self.mtime_ns = entry.st_mtime_ns
        self.deleted = entry.st_nlink == 0
        self._sparse = _is_sparse(entry)
        self._head = read_head(descriptor)
        if not _continues(descriptor, cursor, self._head, self.size):
            self.restarts += 1
            cursor = Cursor(file.path, *self.key, self._head, 0)
        self._history_until = cursor.history_until
        self._parser = parser_factory(file, cursor.offset, cursor.state)
        self.position = cursor.offset
        self.reported = cursor  # what moved_cursor() last gave
        self._finished = False
        self._records: Counter[str] = Counter()
        age = max(
            0.0, clock.time() - entry.st_mtime
        )  # a file that was quiet before it was opened need not prove it again
        self._grown = clock.monotonic() - age

    # -- what it is

    @property
    def unread(self) -> int:
        """Bytes that are there and not read."""
        return max(0, self.size - self.position)

    @property
    def quiet_seconds(self) -> float:
        """How long ago the file last changed."""
        return self._clock.monotonic() - self._grown

    @property
    def gone(self) -> bool:
        """Whether no name leads to it any more."""
        return self.deleted or self.unlisted

    @property
    def ended(self) -> bool:
        """Whether nobody is going to write to it, as far as can be told."""
        if self.rotated:
            return True
        return self.gone if self.file.pid is None else not _is_alive(self.file.pid)

    @property
    def unsettled(self) -> bool:
        """Whether the parser holds a record that may match, to be settled once the file is quiet."""
        return self._parser.open

    def renamed(self, file: LogFile) -> None:
        """The file has got another name."""
        self.file = file
        self.unlisted = False

    # -- reading

    def check(self) -> list[Sighting]:
        """Look whether the file has changed. Gives what the parser held if it was cut off or written anew."""
        entry = os.fstat(self._descriptor)
        self.deleted = entry.st_nlink == 0
        if entry.st_size == self.size and entry.st_mtime_ns == self.mtime_ns:
            return []
        self.size, self.mtime_ns = entry.st_size, entry.st_mtime_ns
        self._sparse = _is_sparse(entry)
        self._grown = self._clock.monotonic()
        self._finished = False
        head = read_head(self._descriptor)
        same = self.size >= self.position and head.startswith(self._head)
        self._head = head
        return [] if same else self._restart()

    def read(self, limit: int) -> list[Sighting]:
        """Read and parse what comes next: at most `limit` bytes and one chunk."""
        sightings = self._skip_hole() if self._sparse else []
        data = os.pread(self._descriptor, min(limit, CHUNK_BYTES, self.unread), self.position)
        self.position += len(data)
        self.bytes_read += len(data)
        return sightings + self._sighted(self._parser.feed(data))

    def rest(self, settle_seconds: float) -> list[Sighting] | None:
        """All is read: give what the parser holds, if the file is quiet for long enough. None: nothing to do."""
        quiet = self.quiet_seconds
        if self.holds_partial and (quiet >= PARTIAL_SECONDS or self.gone) and self.ended:
            self._finished = True
            return self._sighted(self._parser.finish())
        if self._parser.open and quiet >= settle_seconds:
            return self._sighted(self._parser.settle())
        return None

    @property
    def holds_partial(self) -> bool:
        """Whether some of what was read is not done, and could be if the file were known to have ended."""
        return not self._finished and self._parser.offset < self.position

    def _restart(self) -> list[Sighting]:
        sightings = self._end_parser()
        self.restarts += 1
        self.position = self._history_until = 0
        self._parser = self._parser_factory(self.file, 0, {})
        return sightings

    def _end_parser(self) -> list[Sighting]:
        sightings = self._sighted(self._parser.finish())
        self._records.update(self._parser.take_records())
        return sightings

    def _skip_hole(self) -> list[Sighting]:
        """Step over a gap that nobody wrote: a writer with an offset of its own leaves one when its file is cut off."""
        try:
            start = os.lseek(self._descriptor, self.position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return []  # a file system that does not tell
            start = self.size
        if start <= self.position:
            return []
        block = os.pread(self._descriptor, _BLOCK_BYTES, start)  # the gap ends within a block
        start += len(block) - len(block.lstrip(b"\0"))
        sightings = self._end_parser()
        self._parser = self._parser_factory(self.file, start, self._parser.state())
        self.position = start
        return sightings

    def _sighted(self, matches: list[Match]) -> list[Sighting]:
        return [Sighting(match, self.file, match.offset < self._history_until) for match in matches]

    # -- for others

    def take_records(self) -> Counter[str]:
        """Records by severity since this was last asked."""
        self._records.update(self._parser.take_records())
        records, self._records = self._records, Counter()
        return records

    def cursor(self) -> Cursor:
        """How far the file's bytes have been turned into matches."""
        offset = self._parser.offset
        state = {**self._parser.state(), _BEFORE: _checksum_before(self._descriptor, offset)}
        return Cursor(self.file.path, *self.key, self._head, offset, state, self._history_until)

    def moved_cursor(self) -> Cursor | None:
        """The cursor, if it is another than when this was last asked."""
        cursor = self.cursor()
        if cursor == self.reported:
            return None
        self.reported = cursor
        return cursor

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def _continues(descriptor: int, cursor: Cursor, head: bytes, size: int) -> bool:
    """Whether an open file is the one that a cursor is about: inodes are used again, and jobs begin alike each time."""
    if cursor.offset > size or not head.startswith(cursor.head):
        return False
    before = cursor.state.get(_BEFORE)
    return before is None or before == _checksum_before(descriptor, cursor.offset)


def _checksum_before(descriptor: int, offset: int) -> int:
    start = max(0, offset - _BEFORE_BYTES)
    return zlib.crc32(os.pread(descriptor, offset - start, start))


def _is_sparse(entry: os.stat_result) -> bool:
    return entry.st_blocks * 512 < entry.st_size


def _is_alive(pid: int) -> bool:
    """Whether a process of this number exists; one that may not be signalled does."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
