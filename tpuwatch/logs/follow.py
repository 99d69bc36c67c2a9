"""The set of followed log files: found, opened, read in fair turns, and let go.

`poll` does one bounded piece of work and returns what came of it. It relies on stat and read alone; events only make
the caller poll sooner.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.files import LogFile, Refusal, RefusedError
from tpuwatch.logs.hints import Hints
from tpuwatch.logs.parser import LogParser
from tpuwatch.logs.reading import Counters, FileStatus, Reading
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

MAX_OPEN = 128  # files, and up to MAX_OPENINGS more while they are first read
MAX_FILE_BYTES = 8 << 20  # of one file in one poll
MAX_POLL_BYTES = 32 << 20
MAX_SIGHTINGS = 5000  # in one poll, give or take what one chunk holds
MAX_OPENINGS = 64  # in one poll
MAX_PROBLEMS = 100  # that are listed
LIVELY_SECONDS = 60.0  # a file that was quiet for longer is looked at now and then, or when an event names it
BLIND_SECONDS = 0.05  # between two polls while there are no events to tell of writes,
BLIND_IDLE_SECONDS = 0.2  # and while nothing has been written for a second


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
        """`first_run`: what is there already is history. `wake`: call poll() soon, after forgetting the wake-up."""
        self.counters = Counters()
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
        self._lively: dict[FileKey, Tail] = {}  # those to be looked at in this poll
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
        self._open_waiting()
        self._read(reading)
        self._rest(reading)
        self._shrink(reading)
        self._report(reading)
        unread = any(tail.unread for tail in self._lively.values())
        reading.more = unread or (self._shelf.waiting > 0 and self._room > 0)
        reading.due_in = 0.0 if reading.more else self._due_in(now)
        self._lively = {key: tail for key, tail in self._lively.items() if _is_lively(tail)}
        return reading

    def _look_closer(self, now: float) -> None:
        """Have files looked at that an event named, and once in a while all."""
        if self._hints is not None:
            for path in self._hints.take(now):
                key = self._discovery.key_of(path)
                if key in self._tails:
                    self._lively[key] = self._tails[key]
                else:
                    self._shelf.look(path)
        if now < self._next_round and not (self._hints is not None and self._hints.due(now)):
            return
        self._next_round = now + self._rescan_seconds
        self._lively = dict(self._tails)
        self._shelf.look_round()
        if self._hints is not None:
            self._hints.watch(self._discovery.directories(), now)

    def _discover(self) -> None:
        changes = self._discovery.look()
        for error in changes.refused:
            self.counters.refusals[error.reason] += 1
        for source, path, key, history in changes.appeared:
            tail = self._tails.get(key)
            if tail is not None and (tail.unlisted or self._discovery.key_of(tail.file.path) != key):
                tail.renamed(source.describe(path))
                self._sources[key] = source
                self._touched.add(key)
                continue
            cursor = self._shelf.add(source, path, key, history=history)
            if cursor is not None:
                self._moved[key] = cursor
        for path, key in changes.vanished:
            if self._discovery.key_of(path) is None:  # else the name is another file's now
                self._shelf.remove(path)
            tail = self._tails.get(key)
            if tail is not None and tail.file.path == path:
                tail.unlisted = True

    def _check(self, reading: Reading) -> None:
        for key, tail in list(self._lively.items()):
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
        left = {tail: MAX_FILE_BYTES for tail in sorted(self._lively.values(), key=_served) if tail.unread}
        while left and reading.bytes_read < MAX_POLL_BYTES and len(reading.sightings) < MAX_SIGHTINGS:
            for tail in list(left):
                size = self._read_chunk(tail, left[tail], reading)
                left[tail] -= size
                if not (size and tail.unread and left[tail]):
                    del left[tail]
                if reading.bytes_read >= MAX_POLL_BYTES or len(reading.sightings) >= MAX_SIGHTINGS:
                    break

    def _read_chunk(self, tail: Tail, limit: int, reading: Reading) -> int:
        """Read once; how many bytes it was."""
        self._turn += 1
        tail.served = self._turn
        before = tail.bytes_read
        try:
            reading.sightings += tail.read(limit)
        except OSError:
            self._give_up(tail)
            return 0
        size = tail.bytes_read - before
        reading.bytes_read += size
        self._touched.add(tail.key)
        return size

    def _rest(self, reading: Reading) -> None:
        """Finish what can be finished of files that are read to their end, and let go of those that are gone."""
        for tail in list(self._lively.values()):
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
        waits += [self._settle_seconds - tail.quiet_seconds for tail in self._lively.values() if tail.unsettled]
        if self._shelf.waiting:
            waits.append(self._settle_seconds)  # there is room when open files have settled
        if self._hints is not None and self._hints.calm(now):
            writing = any(tail.quiet_seconds < 1.0 for tail in self._lively.values())
            waits.append(BLIND_SECONDS if writing else BLIND_IDLE_SECONDS)
        return max(0.0, min(waits))

    # -- opening and closing

    @property
    def _room(self) -> int:
        return MAX_OPEN + MAX_OPENINGS - len(self._tails)

    def _open_waiting(self) -> None:
        for name in self._shelf.take_waiting(min(MAX_OPENINGS, self._room)):
            self._open(name)

    def _shrink(self, reading: Reading) -> None:
        """Put away the files beyond MAX_OPEN that have been quiet for longest."""
        surplus = len(self._tails) - MAX_OPEN
        if surplus <= 0:
            return
        idle = [tail for tail in self._tails.values() if not (tail.unread or tail.unsettled or tail.gone)]
        for tail in sorted(idle, key=_quiet_seconds, reverse=True)[:surplus]:
            self._put_away(tail, reading)

    def _open(self, name: Resting) -> None:
        cursor = self._shelf.cursor(name)
        try:
            descriptor = name.source.open(name.path)
        except FileNotFoundError:
            self._shelf.put_back(name)  # the next look through its directory will tell
            return
        except RefusedError as error:
            self._refuse(name, error)
            return
        file = name.source.describe(name.path)
        try:
            tail = Tail(descriptor, file, cursor, self._new_parser, self._clock)
        except OSError:
            os.close(descriptor)
            self._refuse(name, RefusedError(name.path, Refusal.UNREADABLE))
            return
        if tail.key != name.key or tail.key in self._tails:  # the name is another file's by now, or a second one
            tail.close()
            self._shelf.put_back(replace(name, size=tail.size, mtime_ns=tail.mtime_ns))
            return
        self._shelf.opened(tail.key)
        self.counters.truncations += tail.restarts
        self._tails[tail.key] = self._lively[tail.key] = tail
        self._sources[tail.key] = name.source
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

    def _new_parser(self, file: LogFile, offset: int, state: Mapping[str, Any]) -> LogParser:
        now = self._clock.time()
        return LogParser(self._scanner, file.kind, now=now, severity=file.severity[:1], offset=offset, state=state)

    def _close(self, tail: Tail) -> Source:
        tail.close()
        if tail.file.stream is not None and self._newest.get(tail.file.stream) is tail:
            del self._newest[tail.file.stream]
        self._lively.pop(tail.key, None)
        del self._tails[tail.key]
        return self._sources.pop(tail.key)

    def _put_away(self, tail: Tail, reading: Reading) -> None:
        """Close a file that is read to its end, and remember it."""
        self._report_file(tail, reading)
        if tail.key in self._tails:
            name = Resting(self._close(tail), tail.file.path, tail.key, tail.size, tail.reported.offset, tail.mtime_ns)
            self._shelf.put(name, tail.reported)

    def _forget(self, tail: Tail, reading: Reading) -> None:
        """Close a file that has no name any more."""
        self._report_file(tail, reading)
        if tail.key in self._tails:
            self._close(tail)
            if not tail.deleted:
                self._shelf.keep(tail.reported)  # it may come back under another name

    def _give_up(self, tail: Tail) -> None:
        """A file fails to be read: close it and try again later from where it was reported to be."""
        name = Resting(self._close(tail), tail.file.path, tail.key, tail.size, tail.reported.offset)
        self._shelf.put(name, tail.reported)
        self._refuse(name, RefusedError(name.path, Refusal.UNREADABLE))

    def _refuse(self, name: Resting, error: RefusedError) -> None:
        if self._shelf.refuse(name, error.reason):
            self.counters.refusals[error.reason] += 1

    # -- for status

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known to be there and not read."""
        return self._shelf.unread + sum(tail.unread for tail in self._tails.values())

    def files(self) -> Iterator[FileStatus]:
        """All known files, those that are open first."""
        for tail in self._tails.values():
            yield FileStatus(tail.file, tail.size, tail.position, tail.mtime_ns / 1e9)
        for name in self._shelf:  # what waits there was not read beyond its cursor; the others were read to their end
            read = name.offset if self._shelf.is_waiting(name) else name.size
            written = None if name.mtime_ns < 0 else name.mtime_ns / 1e9
            yield FileStatus(name.source.describe(name.path), name.size, read, written)

    def present(self) -> Iterator[FileKey]:
        """All files that have a name or are open."""
        return chain(self._tails, (resting.key for resting in self._shelf))

    def problems(self) -> list[tuple[str, Refusal]]:
        """What cannot be read now, and why; at most MAX_PROBLEMS."""
        files = ((name.path, name.refusal) for name in self._shelf.refused if name.refusal is not None)
        sources = ((error.path, error.reason) for error in self._discovery.problems())
        return list(islice(chain(sources, files), MAX_PROBLEMS))


def _is_lively(tail: Tail) -> bool:
    return tail.unread > 0 or tail.unsettled or tail.quiet_seconds < LIVELY_SECONDS


def _served(tail: Tail) -> int:
    return tail.served


def _quiet_seconds(tail: Tail) -> float:
    return tail.quiet_seconds


def _started(tail: Tail) -> float:
    return tail.file.started or 0.0
