"""Where logs are found: libtpu's directories and globs of jobs' output.

A directory's timestamps show whether names changed, so an unchanged directory of a hundred thousand old files costs one
stat. How often a changed directory is scanned is bounded by the duration of a scan. The scan of a glob may take several
turns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.logs.tail.files import (
    LIBTPU_PREFIX,
    RefusedError,
    directory_stamp,
    is_libtpu_name,
    libtpu_file,
    open_directory,
    open_log,
    refused,
)
from tpuwatch.logs.tail.job_glob import JobGlob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.core import Clock
    from tpuwatch.logs.tail.files import FileKey, Found, LogFile

_SHARED_DIRECTORY = "/tmp"  # noqa: S108 - libtpu writes here when its log directory is unset; nothing is written here
_SCAN_SHARE = 20  # a scan is not repeated before this many times its own duration have passed,
_IDLE_SHARE = 100  # and one that no timestamp called for, and which found nothing new, before this many times
_UNCONDITIONAL_SECONDS = 60.0  # at most between two scans: not every file system keeps directory timestamps;
_UNCONDITIONAL_SHARE = 1000  # but this many times a scan's duration, if that is longer


class LogDirectory:
    """A directory that libtpu writes to."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._strict = self._path == _SHARED_DIRECTORY

    unfinished = False  # find() reads the whole directory
    kind = StreamKind.LIBTPU

    def stamp(self) -> tuple[int, ...]:
        """The directory's identity and timestamps; empty if it does not exist."""
        return directory_stamp(self._path)

    def find(self) -> Found:
        """The directory's tpu_driver files, other than the links to the newest.

        Raises FileNotFoundError or RefusedError for the directory itself.
        """
        directory = open_directory(self._path)
        try:
            device = os.fstat(directory).st_dev
            with os.scandir(directory) as entries:
                return {
                    f"{self._path}/{entry.name}": (device, entry.inode())
                    for entry in entries
                    if is_libtpu_name(entry.name, strict=self._strict)
                }
        except OSError as error:
            raise refused(self._path, error) from error
        finally:
            os.close(directory)

    def open(self, path: str) -> int:
        """Open one of them; raises as open_log does."""
        directory = open_directory(self._path)
        try:
            return open_log(directory, path)
        finally:
            os.close(directory)

    def describe(self, path: str) -> LogFile:
        """The file as described by its path."""
        return libtpu_file(path)

    def directories(self) -> dict[str, str]:
        """The directories to watch for writes, and the prefix of the relevant names in each."""
        return {self._path: LIBTPU_PREFIX}


Source = LogDirectory | JobGlob  # a place where logs are found


class Appearance(NamedTuple):
    """A name that is new, or now belongs to another file."""

    source: Source
    path: str
    key: FileKey
    history: bool  # it was there before tpuwatch was


@dataclass(slots=True)
class Changes:
    """What changed since the last scan."""

    appeared: list[Appearance] = field(default_factory=list)  # oldest first
    vanished: list[tuple[str, FileKey]] = field(default_factory=list)
    refused: list[RefusedError] = field(default_factory=list)  # sources that cannot be read


class WatchedSource:
    """One source, the files of its last scan, and when to scan it again. Times are monotonic seconds."""

    def __init__(self, source: Source, *, history: bool) -> None:
        self.source = source
        self.history = history
        self.found: Found = {}
        self.refusal: RefusedError | None = None
        self._stamp: tuple[int, ...] | None = None
        self._confirmed = False  # scanned again after the stamp was new: directory timestamps are coarse
        self._begun = float("-inf")  # the last scan, or the one that is under way,
        self._scanned = float("-inf")  # and when the last one ended
        self._seen_since = float("-inf")  # when the last one that has ended began
        self._spent = 0.0  # on the scan that is under way
        self._not_before = float("-inf")
        self._idle = 0.0  # seconds from the last scan to the next that nothing calls for
        self._unconditional = float("-inf")  # when to scan though no timestamp has changed

    def due(self, now: float, rescan_seconds: float, *, force: bool = False) -> bool:
        """Whether to scan the source again; with `force`, as soon as it may be."""
        if now < self._not_before:
            return False
        age = now - self._scanned
        stamp = self.source.stamp()
        if stamp is None:
            return force or age >= max(rescan_seconds, self._idle)
        rescan = force or age >= rescan_seconds
        return stamp != self._stamp or (not self._confirmed and rescan) or now >= self._unconditional

    def has_seen(self, moment: float) -> bool:
        """Whether all is found that was there at that moment."""
        return self._seen_since >= moment or (self._confirmed and self.source.stamp() == self._stamp)

    def scan(self, clock: Clock, changes: Changes) -> None:
        """Scan the source, or go on with that, and add what has changed to `changes` at the end."""
        started = clock.monotonic()
        if not self.source.unfinished:
            self._begun = started
        stamp = self.source.stamp()
        found = self._find(changes)
        ended = clock.monotonic()
        self._spent += ended - started
        self._not_before = ended + _SCAN_SHARE * (ended - started)
        if self.source.unfinished:
            return
        changed = found is not None and self._compare(found, changes)
        if found is not None:
            self.found = found
            self.history = False  # what appears after the first scan, or in a new directory, is new
        self._confirmed = found is not None and stamp is not None and stamp == self._stamp
        self._stamp = stamp
        self._seen_since, self._scanned = self._begun, ended
        self._not_before = ended + min(_SCAN_SHARE * self._spent, _UNCONDITIONAL_SECONDS)
        self._idle = 0.0 if changed else min(_IDLE_SHARE * self._spent, _UNCONDITIONAL_SECONDS)
        self._unconditional = ended + max(_UNCONDITIONAL_SECONDS, _UNCONDITIONAL_SHARE * self._spent)
        self._spent = 0.0

    def _find(self, changes: Changes) -> Found | None:
        """The files of the source: empty if it does not exist, None if it cannot be read."""
        try:
            found = self.source.find()
        except FileNotFoundError:
            found = {}
        except RefusedError as error:
            if self.refusal is None or self.refusal.reason is not error.reason:
                changes.refused.append(error)
            self.refusal = error
            return None
        self.refusal = None
        return found

    def _compare(self, found: Found, changes: Changes) -> bool:
        """Add the differences to the last scan to `changes`; returns whether there are any."""
        if found == self.found:
            return False
        appeared = [(path, key) for path, key in found.items() if self.found.get(path) != key]
        vanished = [(path, key) for path, key in self.found.items() if found.get(path) != key]
        changes.appeared += [Appearance(self.source, path, key, self.history) for path, key in appeared]
        changes.vanished += vanished
        return bool(appeared or vanished)


class Discovery:
    """Scans all sources and reports what changed."""

    def __init__(
        self,
        log_dirs: Iterable[str],
        job_globs: Iterable[str],
        *,
        clock: Clock,
        rescan_seconds: float,
        first_run: bool,
    ) -> None:
        globs = [JobGlob(pattern, clock) for pattern in job_globs]
        sources: list[Source] = [*map(LogDirectory, log_dirs), *globs]
        self._clock = clock
        self._rescan_seconds = rescan_seconds
        self._watched = [WatchedSource(source, history=first_run) for source in sources]

    def scan(self, *, force: bool = False) -> Changes:
        """Scan the sources that are due, or with `force` that may be. One that cannot be read keeps its files."""
        changes = Changes()
        now = self._clock.monotonic()
        for watched in self._watched:
            if watched.due(now, self._rescan_seconds, force=force):
                watched.scan(self._clock, changes)
        changes.appeared.sort(key=_started)
        return changes

    def has_seen(self, moment: float) -> bool:
        """Whether all files are found that were there at that moment, in monotonic seconds."""
        return all(watched.has_seen(moment) for watched in self._watched)

    def key_of(self, path: str) -> FileKey | None:
        """The file last found at a path."""
        return next((watched.found[path] for watched in self._watched if path in watched.found), None)

    def problems(self) -> list[RefusedError]:
        """The sources that cannot be read now."""
        return [watched.refusal for watched in self._watched if watched.refusal is not None]

    def directories(self) -> dict[str, str]:
        """All directories that hold or may come to hold logs, and the prefix of the relevant names in each."""
        directories: dict[str, str] = {}
        for watched in self._watched:
            for path, prefix in watched.source.directories().items():
                directories[path] = min(prefix, directories.get(path, prefix))
        return directories


def _started(appearance: Appearance) -> float:
    return appearance.source.describe(appearance.path).started or 0.0
