"""One open log file, read and parsed as it grows.

Only fstat and pread decide what is read. An open file is followed whatever happens to its name, so a rename or a
deletion loses nothing. A file that is truncated or rewritten is read again from its start, even if its new bytes are
the old ones. A copy of another file is read from where that one was: see `continue_as`.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.logs.parse.progress import TAIL_BYTES, last_progress
from tpuwatch.logs.tail.files import LogFile, is_on_network, read_head
from tpuwatch.model import Cursor

if TYPE_CHECKING:
    from tpuwatch.core import Clock
    from tpuwatch.logs.parse.job_output import JobOutputParser
    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.parser import LogParser
    from tpuwatch.logs.tail.files import FileKey
    from tpuwatch.model import StepReport

ParserFactory = Callable[[LogFile, int, Mapping[str, Any]], "LogParser | JobOutputParser"]  # file, offset, state

CHUNK_BYTES = 1 << 18  # twice as fast as 1 MiB: it stays in the cache, and malloc need not ask the kernel for it
MIN_CHUNK_BYTES = 1 << 14  # the first one, and those of a text that takes long
CHUNK_SECONDS = 0.05  # when reading and parsing one takes longer, the next one is smaller
PARTIAL_SECONDS = 10.0  # an incomplete last line waits this long before the writer is checked
PROGRESS_SECONDS = 0.5  # between two looks for the progress that a job's output shows
REWRITE_SECONDS = 2.0  # a new mtime without growth is an append that is not complete, or after so long a rewrite
GONE_SECONDS = 3600.0  # a job's file that was renamed out of its glob is followed until it was quiet for so long,
DELETED_SECONDS = 60.0  # and one that was deleted: an open file takes its space on disk
_SAMPLES = "samples"  # in a cursor's state: a checksum of samples of the bytes that are processed
_SAMPLE_COUNT = 8
_SAMPLE_BYTES = 256
_WRITTEN = "written"  # in a cursor's state: when the file was last written, if it was read to its end
_RECENT_CURSORS = 4
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A match and the file that it was found in."""

    match: Match
    file: LogFile
    history: bool  # written before tpuwatch first ran here
    at: float  # when the file was last written, in seconds since the epoch


@dataclass(frozen=True, slots=True)
class FileProgress:
    """The progress that the end of a job's output shows."""

    progress: StepReport
    file: LogFile
    at: float  # when the file was last written, in seconds since the epoch


class HalfLine(NamedTuple):
    """The line at the end of what was read of a file before it was truncated. It may be whole in a copy of the file."""

    matches: Sequence[FileMatch] = ()
    stop: int = 0  # up to where the file was read
    salt: str = ""  # of its parser

    def stands_in(self, copy: FollowedFile, cursor: Cursor) -> bool:
        """Whether it is read in the copy of the file, which goes on from the cursor."""
        return cursor.state.get("salt") == self.salt and copy.size >= self.stop


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
        self.half_line = HalfLine()
        self.lost_bytes = 0  # that were known to exist when it was truncated or rewritten, and were not read
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
        self.first_path = file.path
        self.is_new = not (cursor.state or cursor.head)  # nothing was ever read of what it holds
        self.deleted = entry.st_nlink == 0
        self._sparse = _is_sparse(entry)
        self._head = read_head(descriptor)
        if not _continues(descriptor, cursor, self._head, self.size):
            self.is_new = True
            self.rewrites += cursor.path == file.path  # else it has the inode of one that was deleted
            cursor = self._start()
        grown = read_until(cursor) != self.size
        # Its mtime when the content was last known to be new.
        self._written = self.mtime_ns if grown else cursor.state.get(_WRITTEN, self.mtime_ns)
        # Written without growth: an append that is not complete, or a rewrite with the same bytes.
        self.suspect = self._written != self.mtime_ns and _is_written(entry)
        self._history_until = cursor.history_until
        self._parser = parser_factory(file, cursor.offset, cursor.state)
        self.position = cursor.offset
        self.reported = cursor  # the last result of moved_cursor()
        self.recent = deque([cursor], _RECENT_CURSORS)  # its last results since the file's start, the newest last
        self._finished = False
        self._records: Counter[str] = Counter()
        self._tail = b""  # the end of what was read since the last look for progress
        self._look_due = float("-inf")
        # A file that was quiet before it was opened need not prove it again.
        self._grown = clock.monotonic() - max(0.0, clock.time() - entry.st_mtime)
        self._checked = clock.monotonic()

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
    def head(self) -> bytes:
        """The first bytes, at most HEAD_BYTES."""
        return self._head

    @property
    def gone(self) -> bool:
        """Whether it no longer has a name."""
        return self.deleted or self.unlisted

    @property
    def ended(self) -> bool:
        """Whether no process is expected to write to it again."""
        if self.rotated:
            return True
        if self.file.pid is not None:
            return not _is_alive(self.file.pid)
        return self.gone and self.quiet_seconds >= (DELETED_SECONDS if self.deleted else GONE_SECONDS)

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
        last_check, self._checked = self._checked, self._clock.monotonic()
        self.deleted = entry.st_nlink == 0
        if entry.st_size == self.size and entry.st_mtime_ns == self.mtime_ns:
            settled = self.suspect and self.quiet_seconds >= REWRITE_SECONDS
            return self._confirm_rewrite() if settled else []
        unread, suspected, known_ns = self.unread, self.suspect, self.mtime_ns
        self.suspect = entry.st_size == self.size and _is_written(entry)
        self.size, self.mtime_ns = entry.st_size, entry.st_mtime_ns
        self._sparse = _is_sparse(entry)
        # When it says that it was written, but not before the last check: anybody can set that.
        self._grown = max(last_check, self._checked - max(0.0, self._clock.time() - entry.st_mtime))
        self._finished = False
        head = read_head(self._descriptor)
        same = self.size >= self.position and head.startswith(self._head)
        same = same and _continues(self._descriptor, self.reported, head, self.size)
        self._head = head
        if not same:
            self.lost_bytes += unread
            self.suspect = False
            return self._restart(cut=unread > 0)
        if suspected and self.suspect:  # written twice without growth; the second write may be incomplete
            found = self._confirm_rewrite()
            self.suspect, self._written = True, known_ns
            return found
        if not self.suspect:
            self._written = self.mtime_ns
        return []

    def _confirm_rewrite(self) -> list[FileMatch]:
        self.suspect = False
        if is_on_network(self.key[0]):  # the server sets mtime again when it gets the bytes
            self._written = self.mtime_ns
            return []
        return self._restart()

    def read(self, limit: int) -> list[FileMatch]:
        """Read and parse what comes next: at most `limit` bytes and one chunk.

        Chunks grow while parsing is quick, so that a step through a text that is slow to parse stays short.
        """
        begun = self._clock.monotonic()
        self.is_new = False
        matches = self._skip_hole() if self._sparse else []
        data = os.pread(self._descriptor, min(limit, self._chunk, self.unread), self.position)
        self.position += len(data)
        self.bytes_read += len(data)
        if self.file.kind is StreamKind.TEXT and self.position > self._history_until:
            self._tail = (data if len(data) >= TAIL_BYTES else self._tail + data)[-TAIL_BYTES:]
        matches += self._file_matches(self._parser.feed(data))
        self._chunk = _next_chunk(self._chunk, len(data), self._clock.monotonic() - begun)
        return matches

    def take_progress(self, now: float) -> FileProgress | None:
        """The progress at the end of what was read, if something was since the last look, and that is a while ago."""
        if not self._tail or now < self._look_due:
            return None
        self._look_due = now + PROGRESS_SECONDS
        progress = last_progress(self._tail)
        self._tail = self._tail[max(self._tail.rfind(b"\n"), self._tail.rfind(b"\r")) + 1 :]
        return None if progress is None else FileProgress(progress, self.file, self.mtime_ns / 1e9)

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

    def _restart(self, *, cut: bool = False) -> list[FileMatch]:
        """Begin again at the file's start. `cut`: the last line that was read is not whole, and goes on in a copy."""
        matches = self._file_matches(self._parser.settle())
        state = self._parser.state()
        self.half_line = HalfLine(
            [] if cut else self._file_matches(self._parser.finish()), self.position, state.get("salt", "")
        )
        self._records.update(self._parser.take_records())
        self.rewrites += 1
        self.is_new = False
        self._tail = b""
        self.position = self._history_until = 0
        self._written = self.mtime_ns
        self._parser = self._parser_factory(self.file, 0, {})
        self.reported = self._start()
        self.recent = deque([self.reported], _RECENT_CURSORS)
        return matches

    def _start(self) -> Cursor:
        return Cursor(self.file.path, *self.key, self._head, 0)

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
        return [
            FileMatch(match, self.file, match.offset < self._history_until, self.mtime_ns / 1e9)
            for each in matches
            for match in self._of_one_time(each)
        ]

    def _of_one_time(self, match: Match) -> Iterable[Match]:
        """The match, or each for which it stands if some of them are history and it is not."""
        if match.repeats is None or not match.repeats.offsets[0] < self._history_until <= match.offset:
            return (match,)
        return (*match.repeats.matches(), replace(match, repeats=None))

    # -- copies

    def continues(self, cursor: Cursor) -> bool:
        """Whether all that was read of another file up to `cursor` stands in this one."""
        return _continues(self._descriptor, cursor, self._head, self.size)

    def common_start(self, other: FollowedFile) -> Cursor | None:
        """How far to skip this file if it or `other` is a copy of the other one's start; None if they differ."""
        size = min(self.size, other.size)
        if _sample(self._descriptor, size) != _sample(other._descriptor, size):
            return None
        cursor = other.cursor()
        if read_until(cursor) <= self.size:
            return cursor
        return replace(cursor, offset=_line_start(self._descriptor, size), state={"salt": cursor.state["salt"]})

    def continue_as(self, cursor: Cursor) -> None:
        """Go on where another file, of which this one is a copy, was read up to.

        The parser's state makes events of both equal at equal places, so that what is read of both counts once.
        """
        self.is_new = False
        self.position = cursor.offset
        self._history_until = max(self._history_until, cursor.history_until)
        self._parser = self._parser_factory(self.file, cursor.offset, cursor.state)

    # -- reporting

    def take_records(self) -> Counter[str]:
        """Records by severity since the last call."""
        self._records.update(self._parser.take_records())
        records, self._records = self._records, Counter()
        return records

    def cursor(self) -> Cursor:
        """How far the file's bytes have been turned into matches."""
        offset = self._parser.offset
        cursor = Cursor(self.file.path, *self.key, self._head, offset, self._parser.state(), self._history_until)
        until = read_until(cursor)
        cursor.state[_SAMPLES] = _sample(self._descriptor, until)
        if until == self.size:
            cursor.state[_WRITTEN] = self._written
        return cursor

    def moved_cursor(self) -> Cursor | None:
        """The cursor if it has changed since the last call, else None. A file that nothing was read of stays new."""
        if self.is_new:
            return None
        cursor = self.cursor()
        if cursor == self.reported:
            return None
        if os.fstat(self._descriptor).st_size < self.position:  # just truncated: the samples are not of what was read
            cursor = replace(cursor, offset=0, state={"salt": cursor.state["salt"]})
        self.reported = cursor
        self.recent.append(cursor)
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
    until = read_until(cursor)
    if until > size or not head.startswith(cursor.head):
        return False
    sample = cursor.state.get(_SAMPLES)
    return sample is None or sample == _sample(descriptor, until)


def read_until(cursor: Cursor) -> int:
    """Up to where a file is processed: some lines more than `offset`, as the parser needs those again as context."""
    return max(cursor.offset, int(cursor.state.get("done", 0)))


def _sample(descriptor: int, offset: int) -> int:
    """A checksum of samples of the bytes before `offset`, the last ones among them; of all if they are few."""
    checksum = 0
    for number in range(1, _SAMPLE_COUNT + 1):
        stop = offset * number // _SAMPLE_COUNT
        start = max(0, stop - _SAMPLE_BYTES)
        checksum = zlib.crc32(os.pread(descriptor, stop - start, start), checksum)
    return checksum


def _line_start(descriptor: int, offset: int) -> int:
    """Where the line at `offset` begins; `offset` itself if that is far away."""
    start = max(0, offset - _BLOCK_BYTES)
    newline = os.pread(descriptor, offset - start, start).rfind(b"\n")
    return start + newline + 1 if newline >= 0 else offset


def _is_written(entry: os.stat_result) -> bool:
    """Whether mtime is that of a write: `touch` sets both times, a write does not change the time of access."""
    return entry.st_mtime_ns != entry.st_atime_ns


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
