"""Where logs are to be found: libtpu's directories and the globs of jobs' output.

A directory's times tell whether names in it came or went, so an unchanged directory of a hundred thousand old files
costs one stat. How often a changed one is read is bounded by what reading it costs.
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tpuwatch.logs.files import (
    LIBTPU_PREFIX,
    FileKey,
    LogFile,
    RefusedError,
    is_libtpu_name,
    libtpu_file,
    open_directory,
    open_directory_below,
    open_log,
    refused,
)
from tpuwatch.logs.parser import StreamKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.clock import Clock

Found = dict[str, FileKey]  # path -> identity, as far as a name tells

_SHARED_DIRECTORY = "/tmp"  # noqa: S108 - libtpu writes here when told not to log, among everyone's files; nothing is written here
_MAX_JOB_FILES = 10_000  # of one glob
_SCAN_SHARE = 20  # a scan is not repeated before this many times its own duration have passed
_UNCONDITIONAL_SECONDS = 60.0  # a scan comes at least this often: not every file system keeps its directories' times


class Source(Protocol):
    """A place where logs are found."""

    def stamp(self) -> tuple[int, ...] | None:
        """Something that differs after names came or went; None where nothing tells."""

    def find(self) -> Found:
        """The logs that are there now. Raises FileNotFoundError or RefusedError for the place itself."""

    def open(self, path: str) -> int:
        """Open one of them; raises as open_log does."""

    def describe(self, path: str) -> LogFile:
        """What a path tells of its file."""

    def directories(self) -> dict[str, str]:
        """Where its files are, and how their names begin there, for those who want to be told of writes."""


class LogDirectory:
    """A directory that libtpu writes to."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._strict = self._path == _SHARED_DIRECTORY

    def stamp(self) -> tuple[int, ...]:
        """The directory's identity and times; empty where there is none."""
        try:
            entry = os.stat(self._path)
        except OSError:
            return ()
        return (entry.st_dev, entry.st_ino, entry.st_mtime_ns, entry.st_ctime_ns)

    def find(self) -> Found:
        """The directory's tpu_driver files, other than the links to the newest."""
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
        directory = open_directory(self._path)
        try:
            return open_log(directory, path)
        finally:
            os.close(directory)

    def describe(self, path: str) -> LogFile:
        return libtpu_file(path)

    def directories(self) -> dict[str, str]:
        return {self._path: LIBTPU_PREFIX}


class JobGlob:
    """Files that jobs write their output to, named by a glob ('**' crosses directories)."""

    def __init__(self, pattern: str) -> None:
        self._pattern = os.path.abspath(pattern)
        fixed = itertools.takewhile(lambda part: not glob.has_magic(part), self._pattern.split("/")[:-1])
        self._root = "/".join(fixed) or "/"
        self._found: Found = {}

    def stamp(self) -> None:
        return None

    def find(self) -> Found:
        """The files that match now, links followed as far as telling one file from another."""
        self._found = {}
        for path in itertools.islice(glob.iglob(self._pattern, recursive=True), _MAX_JOB_FILES):
            try:
                entry = os.stat(path)
            except OSError:
                continue  # gone again, or in a directory that is closed to us: the next scan will tell
            if not stat.S_ISDIR(entry.st_mode):
                self._found[path] = (entry.st_dev, entry.st_ino)
        return self._found

    def open(self, path: str) -> int:
        directory = open_directory_below(os.path.dirname(path), os.path.realpath(self._root))
        try:
            return open_log(directory, path, follow=True)
        finally:
            os.close(directory)

    def describe(self, path: str) -> LogFile:
        return LogFile(path, StreamKind.TEXT)

    def directories(self) -> dict[str, str]:
        return dict.fromkeys([self._root, *map(os.path.dirname, self._found)], "")


class Appearance(NamedTuple):
    """A name that was not there before, or was another file's."""

    source: Source
    path: str
    key: FileKey
    history: bool  # it was there before tpuwatch was


@dataclass(slots=True)
class Changes:
    """What came and went since the last look."""

    appeared: list[Appearance] = field(default_factory=list)  # those that were begun first come first
    vanished: list[tuple[str, FileKey]] = field(default_factory=list)
    refused: list[RefusedError] = field(default_factory=list)  # sources that cannot be read


class Watched:
    """One source, what it held when it was last read, and when to read it again. Times are monotonic seconds."""

    def __init__(self, source: Source, *, history: bool) -> None:
        self.source = source
        self.history = history
        self.found: Found = {}
        self.refusal: RefusedError | None = None
        self._stamp: tuple[int, ...] | None = None
        self._confirmed = False  # read again some time after the stamp was new: times of directories are coarse
        self._scanned = float("-inf")
        self._not_before = float("-inf")

    def due(self, now: float, rescan_seconds: float) -> bool:
        """Whether to read the source again."""
        if now < self._not_before:
            return False
        age = now - self._scanned
        stamp = self.source.stamp()
        if stamp is None:
            return age >= rescan_seconds
        return stamp != self._stamp or (not self._confirmed and age >= rescan_seconds) or age >= _UNCONDITIONAL_SECONDS

    def scan(self, clock: Clock, changes: Changes) -> None:
        """Read the source, and note what is different from before."""
        started = clock.monotonic()
        stamp = self.source.stamp()
        found = self._find(changes)
        if found is not None:
            self._compare(found, changes)
            self.found = found
            self.history = False  # what comes after the first look, or to a place that was not there, is new
        self._confirmed = found is not None and stamp == self._stamp
        self._stamp = stamp
        self._scanned = clock.monotonic()
        self._not_before = self._scanned + _SCAN_SHARE * (self._scanned - started)

    def _find(self, changes: Changes) -> Found | None:
        """What the source holds: nothing where it is gone, None where it is only out of sight."""
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

    def _compare(self, found: Found, changes: Changes) -> None:
        for path, key in found.items():
            if self.found.get(path) != key:
                changes.appeared.append(Appearance(self.source, path, key, self.history))
        for path, key in self.found.items():
            if found.get(path) != key:
                changes.vanished.append((path, key))


class Discovery:
    """Looks through all sources and tells what came and went."""

    def __init__(
        self,
        log_dirs: Iterable[str],
        job_globs: Iterable[str],
        *,
        clock: Clock,
        rescan_seconds: float,
        first_run: bool,
    ) -> None:
        sources: list[Source] = [*map(LogDirectory, log_dirs), *map(JobGlob, job_globs)]
        self._clock = clock
        self._rescan_seconds = rescan_seconds
        self._watched = [Watched(source, history=first_run) for source in sources]

    def look(self) -> Changes:
        """Read the sources that may have changed. One that cannot be read keeps what it had."""
        changes = Changes()
        now = self._clock.monotonic()
        for watched in self._watched:
            if watched.due(now, self._rescan_seconds):
                watched.scan(self._clock, changes)
        changes.appeared.sort(key=_started)
        return changes

    def key_of(self, path: str) -> FileKey | None:
        """The file that was last seen under a path."""
        return next((watched.found[path] for watched in self._watched if path in watched.found), None)

    def problems(self) -> list[RefusedError]:
        """The sources that cannot be read now."""
        return [watched.refusal for watched in self._watched if watched.refusal is not None]

    def directories(self) -> dict[str, str]:
        """All directories that logs are in or may come to be in, and how their names begin there."""
        directories: dict[str, str] = {}
        for watched in self._watched:
            for path, prefix in watched.source.directories().items():
                directories[path] = min(prefix, directories.get(path, prefix))
        return directories


def _started(appearance: Appearance) -> float:
    return appearance.source.describe(appearance.path).started or 0.0
