"""The set of followed log files: found, opened, read in fair turns, and let go.

`poll` does one bounded piece of work and returns what came of it. It relies on stat and read alone; events only make
the caller poll sooner.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuwatch.logs.files import LogFile, Refusal, RefusedError
from tpuwatch.logs.hints import CALM_POLL_SECONDS, Hints
from tpuwatch.logs.parser import LogParser
from tpuwatch.logs.shelf import Resting, Shelf
from tpuwatch.logs.sources import Discovery
from tpuwatch.logs.tail import Sighting, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.logs.files import FileKey
    from tpuwatch.logs.scan import Scanner
    from tpuwatch.logs.sources import Source
    from tpuwatch.model import Cursor

__all__ = ["Counters", "FileStatus", "Follower", "Reading", "Sighting"]

MAX_OPEN = 128
MAX_FILE_BYTES = 8 << 20  # of one file in one poll
MAX_POLL_BYTES = 32 << 20
MAX_SIGHTINGS = 5000  # in one poll, give or take what one chunk holds
MAX_OPENINGS = 64  # in one poll
MAX_PROBLEMS = 100  # that are listed


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
    rotations: int = 0  # a newer file of the same process and severity
    refusals: Counter[Refusal] = field(default_factory=Counter)
    watcher_restarts: int = 0


class FileStatus(NamedTuple):
    """A known file, for people to see."""

    file: LogFile
    size: int  # bytes
    offset: int  # bytes that are done


class Follower:
    """Follows libtpu's logs and jobs' output. One thread's; only `wake` is called from others."""

    def __init__(
        self,
        *,
        log_dirs: Iterable[str],
        job_globs: Iterable[str],
        scanner: Scanner,
        clock: Clock,
        cursors: Iterable[Cursor],
        first_run: bool,
        wake: Callable[[], None],
        settle_seconds: float = 0.05,
        rescan_seconds: float = 1.0,
    ) -> None:
        """`first_run`: what is there already is history. `wake`: have poll() called, best some 20 ms later."""
        self.counters = Counters()
        self.last_read: float | None = None  # wall time
        self._scanner = scanner
        self._clock = clock
        self._wake = wake
        self._settle_seconds = settle_seconds
        self._rescan_seconds = rescan_seconds
        self._next_round = float("-inf")
        self._discovery = Discovery(
            log_dirs, job_globs, clock=clock, rescan_seconds=rescan_seconds, first_run=first_run
        )
        self._shelf = Shelf(cursors)
        self._tails: dict[FileKey, Tail] = {}
        self._sources: dict[FileKey, Source] = {}  # of the open files
        self._newest: dict[tuple[str, str, str, int], Tail] = {}  # of the open files of a process and severity
        self._turn = 0
        self._moved: dict[FileKey, Cursor] = {}
        self._touched: set[FileKey] = set()
        self._hints: Hints | None = None

    def watch(self) -> None:
        """Start to call `wake` when something is written."""
        if self._hints is None:
            self._hints = Hints(self._wake)
            self._hints.watch(self._discovery.directories(), self._clock.monotonic())

    def close(self) -> None:
        """Stop watching and let go of all files."""
        if self._hints is not None:
            self._hints.close()
            self._hints = None
        for tail in self._tails.values():
            tail.close()
        self._tails.clear()

    # -- one poll

    def poll(self) -> Reading:
        """Look what has changed and read some of it."""
        reading = Reading()
        self._touched.clear()
        self._moved.clear()
        now = self._clock.monotonic()
        self._look_closer(now)
        self._discover()
        self._check(reading)
        self._open_waiting(reading)
        self._read(reading)
        self._rest(reading)
        self._report(reading)
        reading.more = any(tail.unread for tail in self._tails.values()) or (
            self._shelf.waiting > 0 and self._has_room()
        )
        reading.due_in = 0.0 if reading.more else self._due_in(now)
        return reading

    def _look_closer(self, now: float) -> None:
        """Look at resting files that an event named, and now and then at some of all."""
        if self._hints is not None:
            for path in self._hints.take(now):
                key = self._discovery.key_of(path)
                if key is not None:
                    self._shelf.look(key)
        if now < self._next_round:
            return
        self._next_round = now + self._rescan_seconds
        self._shelf.look_round()
        if self._hints is not None:
            self._hints.watch(self._discovery.directories(), now)
            self.counters.watcher_restarts = self._hints.restarts

    def _discover(self) -> None:
        changes = self._discovery.look()
        for error in changes.refused:
            self.counters.refusals[error.reason] += 1
        for source, path, key, history in changes.appeared:
            tail = self._tails.get(key)
            if tail is None:
                cursor = self._shelf.add(source, path, key, history=history)
                if cursor is not None:
                    self._moved[key] = cursor
            elif tail.unlisted or self._discovery.key_of(tail.file.path) != key:
                tail.renamed(source.describe(path))
                self._touched.add(key)
        for path, key in changes.vanished:
            tail = self._tails.get(key)
            if tail is None:
                self._shelf.remove(path, key)
            elif tail.file.path == path:
                tail.unlisted = True

    def _check(self, reading: Reading) -> None:
        for key, tail in list(self._tails.items()):
            restarts = tail.restarts
            try:
                reading.sightings += tail.check()
            except OSError:
                self._give_up(tail)
                continue
            if tail.restarts != restarts:
                self.counters.truncations += 1
                self._touched.add(key)

    def _read(self, reading: Reading) -> None:
        """Read in turns of one chunk, those first that have waited longest."""
        left = {tail: MAX_FILE_BYTES for tail in sorted(self._tails.values(), key=_served) if tail.unread}
        while left and reading.bytes_read < MAX_POLL_BYTES and len(reading.sightings) < MAX_SIGHTINGS:
            for tail in list(left):
                before = tail.position
                self._read_chunk(tail, left[tail], reading)
                left[tail] -= tail.position - before
                if not tail.unread or left[tail] <= 0 or tail.position == before:
                    del left[tail]
                if reading.bytes_read >= MAX_POLL_BYTES or len(reading.sightings) >= MAX_SIGHTINGS:
                    break

    def _read_chunk(self, tail: Tail, limit: int, reading: Reading) -> None:
        self._turn += 1
        tail.served = self._turn
        before = tail.position
        try:
            reading.sightings += tail.read(limit)
        except OSError:
            self._give_up(tail)
            return
        reading.bytes_read += tail.position - before
        self._touched.add(tail.key)
        self.last_read = self._clock.time()

    def _rest(self, reading: Reading) -> None:
        """Finish what can be finished of files that are read to their end, and let go of those that are gone."""
        for tail in list(self._tails.values()):
            if tail.unread:
                continue
            found = tail.rest(self._settle_seconds)
            if found is not None:
                reading.sightings += found
                self._touched.add(tail.key)
            if tail.gone and tail.ended and not tail.unsettled:
                self._forget(tail, reading)

    def _report(self, reading: Reading) -> None:
        for key in self._touched:
            if key in self._tails:
                self._report_file(self._tails[key], reading)
        reading.cursors += self._moved.values()

    def _report_file(self, tail: Tail, reading: Reading) -> None:
        reading.records.update(tail.take_records())
        try:
            cursor = tail.moved_cursor()
        except OSError:
            self._give_up(tail)
            return
        if cursor is not None:
            self._moved[tail.key] = cursor

    def _due_in(self, now: float) -> float:
        waits = [self._rescan_seconds]
        waits += [self._settle_seconds - tail.quiet_seconds for tail in self._tails.values() if tail.unsettled]
        if self._shelf.waiting:
            waits.append(self._settle_seconds)  # there is room when open files have settled
        if self._hints is not None and self._hints.calm(now):
            waits.append(CALM_POLL_SECONDS)
        return max(0.0, min(waits))

    # -- opening and closing

    def _open_waiting(self, reading: Reading) -> None:
        """Open files that are to be read, in place of those that have been quiet for longest."""
        wanted = min(self._shelf.waiting, MAX_OPENINGS)
        room = MAX_OPEN - len(self._tails)
        if wanted > room:
            for tail in sorted(self._idle(), key=_quiet_seconds, reverse=True)[: wanted - room]:
                self._put_away(tail, reading)
        for resting in self._shelf.take_waiting(min(wanted, MAX_OPEN - len(self._tails))):
            self._open(resting)

    def _idle(self) -> Iterator[Tail]:
        return (
            tail
            for tail in self._tails.values()
            if not (tail.unread or tail.unsettled or tail.gone) and tail.quiet_seconds >= self._settle_seconds
        )

    def _has_room(self) -> bool:
        return len(self._tails) < MAX_OPEN or any(True for _ in self._idle())

    def _open(self, resting: Resting) -> None:
        path = resting.cursor.path
        try:
            descriptor = resting.source.open(path)
        except FileNotFoundError:
            self._shelf.put(replace(resting, size=-1))  # the next look through its directory will tell
            return
        except RefusedError as error:
            self._refuse(resting, error)
            return
        file = resting.source.describe(path)
        try:
            tail = Tail(descriptor, file, resting.cursor, self._new_parser, self._clock)
        except OSError:
            os.close(descriptor)
            self._refuse(resting, RefusedError(path, Refusal.UNREADABLE))
            return
        if tail.key != resting.key:  # another file has taken the name since it was found
            tail.close()
            self._shelf.put(replace(resting, size=-1))
            return
        self.counters.truncations += tail.restarts
        self._tails[tail.key] = tail
        self._sources[tail.key] = resting.source
        self._touched.add(tail.key)
        self._note_rotation(tail)

    def _note_rotation(self, tail: Tail) -> None:
        stream = tail.file.stream
        if stream is None:
            return
        other = self._newest.setdefault(stream, tail)
        if other is tail:
            return
        older, newer = sorted((other, tail), key=_started)
        older.rotated = True
        self._newest[stream] = newer
        self.counters.rotations += 1

    def _new_parser(self, file: LogFile, offset: int, state: Mapping[str, Any]) -> LogParser:
        now = self._clock.time()
        return LogParser(self._scanner, file.kind, now=now, severity=file.severity[:1], offset=offset, state=state)

    def _close(self, tail: Tail) -> Source:
        tail.close()
        if tail.file.stream is not None and self._newest.get(tail.file.stream) is tail:
            del self._newest[tail.file.stream]
        del self._tails[tail.key]
        return self._sources.pop(tail.key)

    def _put_away(self, tail: Tail, reading: Reading) -> None:
        """Close a file that is read to its end, and remember it."""
        self._report_file(tail, reading)
        if tail.key in self._tails:
            self._shelf.put(Resting(self._close(tail), tail.reported, tail.size, tail.mtime_ns))

    def _forget(self, tail: Tail, reading: Reading) -> None:
        """Close a file that has no name any more."""
        self._report_file(tail, reading)
        if tail.key in self._tails:
            self._close(tail)
            if not tail.deleted:
                self._shelf.keep(tail.reported)  # it may come back under another name

    def _give_up(self, tail: Tail) -> None:
        """A file fails to be read: close it and try again later from where it was reported to be."""
        resting = Resting(self._close(tail), tail.reported)
        self._refuse(resting, RefusedError(tail.file.path, Refusal.UNREADABLE))

    def _refuse(self, resting: Resting, error: RefusedError) -> None:
        if self._shelf.refuse(resting, error.reason):
            self.counters.refusals[error.reason] += 1

    # -- for status

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known to be there and not read."""
        return self._shelf.unread + sum(tail.unread for tail in self._tails.values())

    def files(self) -> Iterator[FileStatus]:
        """All known files, those that are open first."""
        for tail in self._tails.values():
            yield FileStatus(tail.file, tail.size, tail.reported.offset)
        for resting in self._shelf:
            file = resting.source.describe(resting.cursor.path)
            yield FileStatus(file, resting.size, resting.cursor.offset)

    def problems(self) -> list[tuple[str, Refusal]]:
        """What cannot be read now, and why; at most MAX_PROBLEMS."""
        files = (
            (resting.cursor.path, resting.refusal) for resting in self._shelf.refused if resting.refusal is not None
        )
        sources = ((error.path, error.reason) for error in self._discovery.problems())
        return list(islice(chain(sources, files), MAX_PROBLEMS))


def _served(tail: Tail) -> int:
    return tail.served


def _quiet_seconds(tail: Tail) -> float:
    return tail.quiet_seconds


def _started(tail: Tail) -> float:
    return tail.file.started or 0.0
