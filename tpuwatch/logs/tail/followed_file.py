"""One open log file, read and parsed as it grows.

Only fstat and pread decide what is read. An open file is followed whatever happens to its name, so a rename or a
deletion loses nothing. A file that is truncated or rewritten is read again from its start.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.tail.files import LogFile, read_head
from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from tpuwatch.core import Clock
    from tpuwatch.logs.parse.parser import LogParser, Match
    from tpuwatch.logs.tail.files import FileKey

ParserFactory = Callable[[LogFile, int, Mapping[str, Any]], "LogParser"]  # file, offset, state

CHUNK_BYTES = 1 << 18  # twice as fast as 1 MiB: it stays in the cache, and malloc need not ask the kernel for it
MIN_CHUNK_BYTES = 1 << 14  # the first one, and those of a text that takes long
CHUNK_SECONDS = 0.05  # when reading and parsing one takes longer, the next one is smaller
PARTIAL_SECONDS = 10.0  # an incomplete last line waits this long before the writer is checked
_BEFORE = "before"  # in a cursor's state: a checksum of the bytes before its offset
_BEFORE_BYTES = 64
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A match and the file that it was found in."""

    match: Match
    file: LogFile
    history: bool  # written before tpuwatch first ran here


class FollowedFile:
    """An open file and its parser. Times are monotonic seconds. Methods raise OSError when the file cannot be read."""

    def __init__(
        self, descriptor: int, file: LogFile, cursor: Cursor, parser_factory: ParserFactory, clock: Clock
    ) -> None:
        """Takes ownership of `descriptor`. Continues at `cursor` if it belongs to this file, else starts at 0."""
        self.file = file
        self.rotated = False  # its process has started a newer file of the same severity
        self.unlisted = False  # its name is gone; the file may be gone too
        self.rewrites = 0  # how often it was found truncated or rewritten
        self.bytes_read = 0  # so far
        self.last_turn = 0  # the follower's turn in which it was last read
        self._descriptor = descriptor
        self._parser_factory = parser_factory
        self._clock = clock
        self._chunk = MIN_CHUNK_BYTES  # how much is read next
        entry = os.fstat(descriptor)
        self.key: FileKey = (entry.st_dev, entry.st_ino)
        self.size = entry.st_size
        self.mtime_ns = entry.st_mtime_ns
        self.deleted = entry.st_nlink == 0
        self._sparse = _is_sparse(entry)
        self._head = read_head(descriptor)
        if not _continues(descriptor, cursor, self._head, self.size):
            self.rewrites += 1
            cursor = Cursor(file.path, *self.key, self._head, 0)
        self._history_until = cursor.history_until
        self._parser = parser_factory(file, cursor.offset, cursor.state)
        self.position = cursor.offset
        self.reported = cursor  # the last result of moved_cursor()
        self._finished = False
        self._records: Counter[str] = Counter()
        age = max(
            0.0, clock.time() - entry.st_mtime
        )  # a file that was quiet before it was opened need not prove it again
        self._grown = clock.monotonic() - age

    # -- what it is

    @property
    def unread(self) -> int:
        """Bytes that exist and are not read yet."""
        return max(0, self.size - self.position)

    @property
    def quiet_seconds(self) -> float:
        """How long ago the file last changed."""
        return self._clock.monotonic() - self._grown

    @property
    def gone(self) -> bool:
        """Whether it no longer has a name."""
        return self.deleted or self.unlisted

    @property
    def ended(self) -> bool:
        """Whether no process is expected to write to it again."""
        if self.rotated:
            return True
        return self.gone if self.file.pid is None else not _is_alive(self.file.pid)

    @property
    def unsettled(self) -> bool:
        """Whether the parser holds a record that may match, to be completed once the file is quiet."""
        return self._parser.open

    def renamed(self, file: LogFile) -> None:
        """Set the new name of the file."""
        self.file = file
        self.unlisted = False

    # -- reading

    def check(self) -> list[FileMatch]:
        """Check whether the file has changed. Returns what the parser held if it was truncated or rewritten."""
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

    def read(self, limit: int) -> list[FileMatch]:
        """Read and parse what comes next: at most `limit` bytes and one chunk.

        Chunks grow while parsing is quick, so that a step through a text that is slow to parse stays short.
        """
        begun = self._clock.monotonic()
        matches = self._skip_hole() if self._sparse else []
        data = os.pread(self._descriptor, min(limit, self._chunk, self.unread), self.position)
        self.position += len(data)
        self.bytes_read += len(data)
        matches += self._file_matches(self._parser.feed(data))
        self._chunk = _next_chunk(self._chunk, len(data), self._clock.monotonic() - begun)
        return matches

    def finish_quiet(self, settle_seconds: float) -> list[FileMatch] | None:
        """When all is read and the file is quiet: complete what the parser holds. None if there is nothing to do."""
        quiet = self.quiet_seconds
        if self.has_partial_line and (quiet >= PARTIAL_SECONDS or self.gone) and self.ended:
            self._finished = True
            return self._file_matches(self._parser.finish())
        if self._parser.open and quiet >= settle_seconds:
            return self._file_matches(self._parser.settle())
        return None

    @property
    def has_partial_line(self) -> bool:
        """Whether an incomplete last line was read, which can be processed once the file has ended."""
        return not self._finished and self._parser.offset < self.position

    def _restart(self) -> list[FileMatch]:
        matches = self._end_parser()
        self.rewrites += 1
        self.position = self._history_until = 0
        self._parser = self._parser_factory(self.file, 0, {})
        return matches

    def _end_parser(self) -> list[FileMatch]:
        matches = self._file_matches(self._parser.finish())
        self._records.update(self._parser.take_records())
        return matches

    def _skip_hole(self) -> list[FileMatch]:
        """Skip a hole: a writer with its own offset leaves one when its file is truncated."""
        try:
            start = os.lseek(self._descriptor, self.position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return []  # not supported by the file system
            start = self.size
        if start <= self.position:
            return []
        block = os.pread(self._descriptor, _BLOCK_BYTES, start)  # the gap ends within a block
        start += len(block) - len(block.lstrip(b"\0"))
        matches = self._end_parser()
        self._parser = self._parser_factory(self.file, start, self._parser.state())
        self.position = start
        return matches

    def _file_matches(self, matches: list[Match]) -> list[FileMatch]:
        return [FileMatch(match, self.file, match.offset < self._history_until) for match in matches]

    # -- reporting

    def take_records(self) -> Counter[str]:
        """Records by severity since the last call."""
        self._records.update(self._parser.take_records())
        records, self._records = self._records, Counter()
        return records

    def cursor(self) -> Cursor:
        """How far the file's bytes have been turned into matches."""
        offset = self._parser.offset
        state = {**self._parser.state(), _BEFORE: _checksum_before(self._descriptor, offset)}
        return Cursor(self.file.path, *self.key, self._head, offset, state, self._history_until)

    def moved_cursor(self) -> Cursor | None:
        """The cursor if it has changed since the last call, else None."""
        cursor = self.cursor()
        if cursor == self.reported:
            return None
        self.reported = cursor
        return cursor

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _next_chunk(chunk: int, size: int, seconds: float) -> int:
    """How many bytes to read next, after `size` bytes of a chunk were read and parsed in `seconds`."""
    if seconds <= CHUNK_SECONDS:
        return min(2 * chunk, CHUNK_BYTES)
    return max(MIN_CHUNK_BYTES, min(chunk, int(size * CHUNK_SECONDS / seconds)))


def _continues(descriptor: int, cursor: Cursor, head: bytes, size: int) -> bool:
    """Whether a cursor belongs to an open file: inodes are reused, and the output of jobs often begins alike."""
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
