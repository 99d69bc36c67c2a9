"""Follows a set of log files: finds, opens, reads and closes them.

`Follower.poll` does one bounded piece of work and returns the result. It relies on stat and read alone; file system
events only make the caller poll sooner.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.parse.job_output import JobOutputParser
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.tail.closed_files import ClosedFile, ClosedFiles
from tpuwatch.logs.tail.copies import Copies
from tpuwatch.logs.tail.files import Refusal, RefusedError
from tpuwatch.logs.tail.followed_file import REWRITE_SECONDS, FileMatch, FileProgress, FollowedFile, HalfLine
from tpuwatch.logs.tail.fs_events import FsEvents
from tpuwatch.logs.tail.sources import Discovery
from tpuwatch.model import FileStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.tail.files import FileKey, LogFile
    from tpuwatch.logs.tail.sources import Source
    from tpuwatch.model import Cursor

MAX_OPEN = 512  # files, and up to MAX_OPENINGS more while they are first read; 1024 is a usual limit of descriptors
MAX_FILE_BYTES = 8 << 20  # of one file in one poll
MAX_POLL_BYTES = 32 << 20  # give or take one chunk
MAX_POLL_SECONDS = 0.5  # of reading, give or take one chunk: some texts are slow to parse
MAX_MATCHES = 5000  # in one poll, give or take what one chunk holds
MAX_REPEATS = 50_000  # that matches stand for in one poll, likewise
MAX_OPENINGS = 64  # in one poll
MAX_PROBLEMS = 100  # that are listed
ACTIVE_SECONDS = 60.0  # a file that was quiet for longer is checked once per rescan, or when an event names it
POLL_SECONDS = 0.065  # between two polls while file system events are suspended,
IDLE_POLL_SECONDS = 0.2  # and while nothing has been written for a second,
BUSY_POLL_SECONDS = 0.25  # and after BUSY_POLLS in a row with matches: each costs a transaction, the first are known
BUSY_POLLS = 8
NEXT_LINE_SECONDS = 0.025  # a file that was written so lately while polled soon has a line more, which ends the record
_OF_ALL_PODS = ("/var/log/pods/", "/var/log/containers/")  # of Kubernetes: few of a node's pods are TPU jobs


@dataclass(slots=True)
class LogReading:
    """What one poll read. Matches and cursors must be stored in one transaction."""

    matches: list[FileMatch] = field(default_factory=list)
    repeats: int = 0  # that the matches stand for
    cursors: list[Cursor] = field(default_factory=list)  # of every file whose offset or state moved
    bytes_read: int = 0
    progress: list[FileProgress] = field(default_factory=list)  # of jobs' output, one a file at most
    records: Counter[str] = field(default_factory=Counter)  # by severity letter, each once whatever files hold it
    late: bool = False  # it used up its time: reading or parsing was slow
    more: bool = False  # there is unread data: poll again at once
    due_in: float = 0.0  # seconds after which to poll again even if nothing wakes


@dataclass(slots=True)
class FileCounters:
    """Counts since the start."""

    truncations: int = 0  # files cut off or rewritten
    refusals: Counter[Refusal] = field(default_factory=Counter)
    lost_bytes: int = 0  # that were known and are gone: the file was truncated, or has no watched name any more
    last_loss: Loss | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that are gone before they were read, unless they are found elsewhere within some seconds."""

    path: str
    size: int  # bytes
    at: float  # seconds since the epoch
    since: float  # the same in monotonic seconds
    key: FileKey | None = None  # of a file that may get another name
    salt: str = ""  # of a stream that may have been copied


class Follower:
    """Follows libtpu's logs and jobs' output. Not thread-safe; `wake` alone is called from other threads."""

    def __init__(
        self,
        *,
        log_dirs: Iterable[str],
        job_globs: Iterable[str],
        scanner: Scanner,
        outputs: Scanner | None = None,
        clock: Clock,
        cursors: Iterable[Cursor],
        first_run: bool,
        wake: Callable[[], None],
        settle_seconds: float = 0.05,
        rescan_seconds: float = 1.0,
    ) -> None:
        """`outputs`: for the output of TPU jobs, with general rules. `first_run`: existing content is history.

        `wake` requests a poll() soon.
        """
        self.counters = FileCounters()
        self.changes = 0  # goes up whenever files() may give something else
        self._scanner, self._outputs = scanner, outputs or scanner
        self._clock = clock
        self._wake = wake
        self._settle_seconds = settle_seconds
        self._rescan_seconds = rescan_seconds
        self._next_full_check = float("-inf")
        self._discovery = Discovery(
            log_dirs, job_globs, clock=clock, rescan_seconds=rescan_seconds, first_run=first_run
        )
        stored = list(cursors)
        self._closed = ClosedFiles(stored)
        self._copies = Copies(stored)
        self._open: dict[FileKey, FollowedFile] = {}
        self._active: dict[FileKey, FollowedFile] = {}  # those that this poll checks
        self._sources: dict[FileKey, Source] = {}  # of the open files
        self._newest: dict[tuple[str, str, str, int], FollowedFile] = {}  # of the open files of a process and severity
        self._turn = 0
        self._polls_with_matches = 0  # in a row, up to the last one
        self._moved: dict[FileKey, Cursor] = {}
        self._touched: set[FileKey] = set()
        self._rewritten: set[FileKey] = set()  # files whose former text may stand in a copy that is not read yet,
        self._rewritten_at = float("-inf")  # and when the last of them was found
        self._full = False  # with files that cannot be closed, at the end of the last poll
        self._losses: list[Loss] = []  # not counted yet
        self._fs_events: FsEvents | None = None

    def watch(self) -> None:
        """Start to call `wake` when something is written."""
        if self._fs_events is None:
            self._fs_events = FsEvents(self._wake)
            self._fs_events.watch(self._discovery.directories(), self._clock.monotonic())

    def close(self) -> None:
        """Stop watching and close all files."""
        if self._fs_events is not None:
            self._fs_events.close()
            self._fs_events = None
        for log in self._open.values():
            log.close()
        self._open.clear()

    # -- one poll

    def poll(self) -> LogReading:
        """Check what has changed and read some of it."""
        reading = LogReading()
        self._touched.clear()
        self._moved.clear()
        now = self._clock.monotonic()
        self._select_active(now)
        self._discover()
        self._check(reading, self._active)
        if self._rewritten:  # what was truncated was copied before: store both cursors at once
            self._discover(force=True)
            new = {key: log for key, log in self._open.items() if log.is_new}
            self._active |= new
            self._check(reading, new)
        self._active = {key: log for key, log in self._active.items() if _is_active(log)}
        self._open_waiting()
        self._read(reading)
        for log in self._active.values():
            if (progress := log.take_progress(now)) is not None:
                reading.progress.append(progress)
        self._finish_quiet(reading)
        self._close_surplus(reading)
        self._full = self._room <= 0
        self._update_cursors(reading)
        self._count_losses(now)
        self._polls_with_matches = self._polls_with_matches + 1 if reading.matches else 0
        unread = any(log.unread for key, log in self._active.items() if key not in self._rewritten)
        reading.more = unread or (self._closed.waiting > 0 and self._room > 0)
        reading.due_in = 0.0 if reading.more else self._due_in(now)
        if self._active or self._touched or self._closed.waiting:
            self.changes += 1
        return reading

    def _select_active(self, now: float) -> None:
        """Add the files that events named to those to check; add all files once per rescan."""
        if self._fs_events is not None:
            for path in self._fs_events.take(now):
                key = self._discovery.key_of(path)
                if key in self._open:
                    self._active[key] = self._open[key]
                else:
                    self._closed.check(path)
        if now < self._next_full_check and not (self._fs_events is not None and self._fs_events.resume_due(now)):
            return
        self._next_full_check = now + self._rescan_seconds
        self._active = dict(self._open)
        self._closed.check_some()
        if self._fs_events is not None:
            self._fs_events.watch(self._discovery.directories(), now)

    def _discover(self, *, force: bool = False) -> None:
        changes = self._discovery.scan(force=force)
        for error in changes.refused:
            self.counters.refusals[error.reason] += 1
        if changes.appeared or changes.vanished:
            self.changes += 1
        urgent_since = self._clock.time() - ACTIVE_SECONDS
        for source, path, key, history in changes.appeared:
            log = self._open.get(key)
            if log is not None and (log.unlisted or self._discovery.key_of(log.file.path) != key):
                log.renamed(source.describe(path))
                self._sources[key] = source
                self._touched.add(key)
                continue
            cursor = self._closed.add(source, path, key, history=history, urgent_since=urgent_since)
            if cursor is not None:
                self._moved[key] = cursor
        for path, key in changes.vanished:
            if self._discovery.key_of(path) is None:  # otherwise the name belongs to another file now
                self._note_loss(path, self._closed.remove(path), key=key)
            log = self._open.get(key)
            if log is not None and log.file.path == path:
                log.unlisted = True

    def _check(self, reading: LogReading, logs: Mapping[FileKey, FollowedFile]) -> None:
        """Check whether these open files have changed."""
        for key, log in list(logs.items()):
            rewrites, lost, mtime_ns, recent = log.rewrites, log.lost_bytes, log.mtime_ns, log.recent
            try:
                reading.matches += log.check()
            except OSError:
                self._close_failed(log)
                continue
            if log.rewrites != rewrites:
                self.counters.truncations += 1
                self._note_rewritten(key, recent)
                self._note_loss(log.file.path, log.lost_bytes - lost, salt=recent[-1].state.get("salt", ""))
            if log.rewrites != rewrites or log.mtime_ns != mtime_ns:
                self._touched.add(key)

    def _note_rewritten(self, key: FileKey, former: Iterable[Cursor]) -> None:
        """A file no longer holds what it held: `former` says how far that was read."""
        self._rewritten.add(key)
        self._rewritten_at = self._clock.monotonic()
        self._copies.add(former)

    def _note_loss(self, path: str, size: int, *, key: FileKey | None = None, salt: str = "") -> None:
        if size:
            self._losses.append(Loss(path, size, self._clock.time(), self._clock.monotonic(), key, salt))

    def _count_losses(self, now: float) -> None:
        """Count what was not found elsewhere in two scans."""
        due = [loss for loss in self._losses if now - loss.since >= 2 * self._rescan_seconds]
        if not due:
            return
        self._losses = [loss for loss in self._losses if loss not in due]
        present = set(self.present())
        for loss in due:
            if loss.key not in present:
                self.counters.lost_bytes += loss.size
                self.counters.last_loss = loss

    def _read(self, reading: LogReading) -> None:
        """Read one chunk at a time, new files first, then those read least recently.

        At least one chunk is read, however late it is.
        """
        end = self._clock.monotonic() + MAX_POLL_SECONDS
        left = {log: MAX_FILE_BYTES for log in sorted(self._active.values(), key=_last_turn) if log.unread}
        enough = _is_full(reading)
        while left and not enough:
            for log in list(left):
                if log.key in self._rewritten:
                    if self._copies_wait:
                        del left[log]
                        continue
                    self._take_half_line(log, reading)
                    self._rewritten.discard(log.key)  # what is read is stored with its cursor
                size = self._read_chunk(log, left[log], reading)
                left[log] -= size
                if not (size and log.unread and left[log]):
                    del left[log]
                reading.late = self._clock.monotonic() >= end
                enough = reading.late or reading.bytes_read >= MAX_POLL_BYTES or _is_full(reading)
                if enough:
                    break

    def _take_half_line(self, log: FollowedFile, reading: LogReading) -> None:
        """A file was truncated, and the half line at its end stands in no copy."""
        reading.matches += log.half_line.matches
        log.half_line = HalfLine()

    @property
    def _copies_wait(self) -> bool:
        """Whether there is or may be a job's output of which nothing was read yet: each may be a copy.

        Until then the cursor of a truncated file stays as it is: it alone says how far its copy was read.
        """
        if (self._closed.waiting_texts and not self._full) or not self._discovery.has_seen(self._rewritten_at):
            return True
        return any(
            log.is_new and log.unread and log.key not in self._rewritten
            for log in self._open.values()
            if log.file.kind is StreamKind.TEXT  # others are compared with nothing
        )

    def _read_chunk(self, log: FollowedFile, limit: int, reading: LogReading) -> int:
        """Read one chunk; returns its size in bytes."""
        self._turn += 1
        log.last_turn = self._turn
        before = log.bytes_read
        try:
            if log.is_new and (known := self._copies.find(log, self._open.values())) is not None:
                log.continue_as(known)
                for other in self._open.values():
                    if other.half_line.stands_in(log, known):
                        other.half_line = HalfLine()
                self._losses = [loss for loss in self._losses if loss.salt != known.state.get("salt")]
            found = log.read(limit)
        except OSError:
            self._close_failed(log)
            return 0
        reading.matches += found
        reading.repeats += sum(len(one.match.repeats) for one in found if one.match.repeats is not None)
        size = log.bytes_read - before
        reading.bytes_read += size
        self._touched.add(log.key)
        return size

    def _finish_quiet(self, reading: LogReading) -> None:
        """Finish the records of files that are read to their end, and close files without a name."""
        for log in list(self._active.values()):
            if log.unread:
                continue
            found = log.finish_quiet(self._settle_seconds)
            if found is not None:
                reading.matches += found
                self._touched.add(log.key)
            if log.gone and log.ended and not log.unsettled:
                self._close_unlisted(log, reading)

    def _update_cursors(self, reading: LogReading) -> None:
        if self._rewritten and not self._copies_wait:
            self._touched |= self._rewritten
            for key in self._rewritten & self._open.keys():
                self._take_half_line(self._open[key], reading)
            self._rewritten.clear()
        for key in self._touched - self._rewritten:
            if key in self._open:
                self._update_cursor(self._open[key], reading)
        reading.cursors += self._moved.values()

    def _update_cursor(self, log: FollowedFile, reading: LogReading) -> None:
        reading.records.update(log.take_records())
        try:
            cursor = log.moved_cursor()
        except OSError:
            self._close_failed(log)
            return
        if cursor is not None:
            self._moved[log.key] = cursor

    def _due_in(self, now: float) -> float:
        waits = [self._rescan_seconds]
        polled = self._fs_events is not None and self._fs_events.suspended(now)
        going_on = NEXT_LINE_SECONDS if polled else 0.0
        unsettled = (log.quiet_seconds for log in self._active.values() if log.unsettled)
        waits += [self._settle_seconds - quiet for quiet in unsettled if quiet >= going_on]
        waits += [REWRITE_SECONDS - log.quiet_seconds for log in self._active.values() if log.suspect]
        if self._closed.waiting or self._rewritten:  # there is room when open files have settled; a copy may be found
            waits.append(self._settle_seconds)
        if polled:
            writing = any(log.quiet_seconds < 1.0 for log in self._active.values())
            busy = self._polls_with_matches >= BUSY_POLLS
            waits.append((BUSY_POLL_SECONDS if busy else POLL_SECONDS) if writing else IDLE_POLL_SECONDS)
        return max(0.0, min(waits))

    # -- opening and closing

    @property
    def _room(self) -> int:
        return MAX_OPEN + MAX_OPENINGS - len(self._open)

    def _open_waiting(self) -> None:
        for name in self._closed.take_waiting(min(MAX_OPENINGS, self._room)):
            self._open_file(name)

    def _close_surplus(self, reading: LogReading) -> None:
        """Close the files beyond MAX_OPEN that have been quiet for longest; last those that cannot be opened again."""
        surplus = len(self._open) - MAX_OPEN
        if surplus <= 0:
            return
        idle = [log for log in self._open.values() if not (log.unread or log.unsettled or log.key in self._rewritten)]
        for log in sorted(idle, key=_keep_rank)[:surplus]:
            if log.gone:
                self._close_unlisted(log, reading)
            else:
                self._close_idle(log, reading)

    def _open_file(self, name: ClosedFile) -> None:
        cursor = self._closed.cursor(name)
        try:
            descriptor = name.source.open(name.path)
        except FileNotFoundError:
            self._note_loss(name.path, max(0, name.size - name.offset), key=name.key)
            self._closed.add_back(name)  # the next scan of its directory decides
            return
        except RefusedError as error:
            self._refuse(name, error)
            return
        file = name.source.describe(name.path)
        try:
            log = FollowedFile(descriptor, file, cursor, self._new_parser, self._clock)
            other = log.is_new and cursor.head and self._copies.find(log, self._open.values()) is None
        except OSError:
            os.close(descriptor)
            self._refuse(name, RefusedError(name.path, Refusal.UNREADABLE))
            return
        if log.key != name.key or log.key in self._open:  # the name now belongs to another file, or is a second name
            log.close()
            self._closed.add_back(replace(name, size=log.size, mtime_ns=log.mtime_ns))
            return
        self._closed.opened(log.key)
        self.counters.truncations += log.rewrites
        if log.rewrites or other:  # its inode may be that of one that was deleted, or that was truncated and renamed
            self._note_rewritten(log.key, [cursor])
        self._open[log.key] = self._active[log.key] = log
        self._sources[log.key] = name.source
        self._touched.add(log.key)
        self._note_rotation(log)

    def _note_rotation(self, log: FollowedFile) -> None:
        stream = log.file.stream
        if stream is None:
            return
        other = self._newest.setdefault(stream, log)
        if other is log:
            return
        older, newer = sorted((other, log), key=_started)
        older.rotated = True
        self._active[older.key] = older  # its last half line is complete
        self._newest[stream] = newer

    def _new_parser(self, file: LogFile, offset: int, state: Mapping[str, Any]) -> LogParser | JobOutputParser:
        is_job = file.kind is StreamKind.TEXT and not file.path.startswith(_OF_ALL_PODS)
        now, scanner = self._clock.time(), self._outputs if is_job else self._scanner
        severity = file.severity[:1]
        parser = LogParser(scanner, file.kind, now=now, severity=severity, offset=offset, state=state, fold=True)
        return JobOutputParser(parser, state) if is_job else parser

    def _close(self, log: FollowedFile) -> Source:
        self._copies.add(log.recent)
        log.close()
        if log.file.stream is not None and self._newest.get(log.file.stream) is log:
            del self._newest[log.file.stream]
        self._active.pop(log.key, None)
        del self._open[log.key]
        return self._sources.pop(log.key)

    def _close_idle(self, log: FollowedFile, reading: LogReading) -> None:
        """Close a file that is read to its end and keep its cursor."""
        self._update_cursor(log, reading)
        if log.key in self._open:
            name = ClosedFile(
                self._close(log),
                log.file.path,
                log.key,
                log.size,
                log.reported.offset,
                log.mtime_ns,
            )
            self._closed.add_closed(name, log.reported)

    def _close_unlisted(self, log: FollowedFile, reading: LogReading) -> None:
        """Close a file that no longer has a name."""
        self._update_cursor(log, reading)
        if log.key in self._open:
            self._close(log)
            if not log.deleted:
                self._closed.keep(log.reported)  # it may come back under another name

    def _close_failed(self, log: FollowedFile) -> None:
        """Reading a file fails: close it and try again later from its last reported cursor."""
        name = ClosedFile(self._close(log), log.file.path, log.key, log.size, log.reported.offset)
        self._closed.add_closed(name, log.reported)
        self._refuse(name, RefusedError(name.path, Refusal.UNREADABLE))

    def _refuse(self, name: ClosedFile, error: RefusedError) -> None:
        if self._closed.refuse(name, error.reason):
            self.counters.refusals[error.reason] += 1

    # -- for status

    @property
    def watch_problem(self) -> str:
        """Why not all writes wake, with what to do; empty if they do."""
        return "" if self._fs_events is None else self._fs_events.problem

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known to exist and are not read yet."""
        return self._closed.unread + sum(log.unread for log in self._open.values())

    def files(self) -> Iterator[FileStatus]:
        """All known files, those that are open first, then those that wait to be opened."""
        for log in self._open.values():
            yield FileStatus(log.file.path, log.size, log.position, log.mtime_ns / 1e9)
        for name in self._closed:  # a waiting file is read up to its cursor, any other to its end
            read = name.offset if self._closed.is_waiting(name) else name.size
            written = None if name.mtime_ns < 0 else name.mtime_ns / 1e9
            yield FileStatus(name.path, name.size, read, written)

    @property
    def file_count(self) -> int:
        """How many files are known."""
        return len(self._open) + len(self._closed)

    @property
    def readable(self) -> bool:
        """Whether any known file can be read, as far as it was tried."""
        return bool(self._open) or self._closed.readable

    def present(self) -> Iterator[FileKey]:
        """All files that have a name or are open."""
        return chain(self._open, (name.key for name in self._closed))

    def problems(self) -> list[tuple[str, Refusal]]:
        """What cannot be read now, and why; at most MAX_PROBLEMS."""
        files = ((name.path, name.refusal) for name in self._closed.refused if name.refusal is not None)
        sources = ((error.path, error.reason) for error in self._discovery.problems())
        return list(islice(chain(sources, files), MAX_PROBLEMS))


def _is_active(log: FollowedFile) -> bool:
    open_end = log.unsettled or (log.has_partial_line and log.ended)
    return log.unread > 0 or log.quiet_seconds < ACTIVE_SECONDS or open_end or log.suspect or log.gone


def _last_turn(log: FollowedFile) -> tuple[bool, int]:
    return not log.is_new, log.last_turn


def _keep_rank(log: FollowedFile) -> tuple[bool, float]:
    return log.gone, -log.quiet_seconds


def _started(log: FollowedFile) -> float:
    return log.file.started or 0.0


def _is_full(reading: LogReading) -> bool:
    return len(reading.matches) >= MAX_MATCHES or reading.repeats >= MAX_REPEATS
