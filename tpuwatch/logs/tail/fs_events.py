"""Wake-ups when something is written: inotify events, by way of watchdog.

Events are hints: they only make the next poll come sooner. They may be lost, threads may die and directories may
vanish at the cost of a second's delay. When events arrive so fast that they cost more than polling, or the system has
no more inotify instances or watches, they are suspended for a while, and polling replaces them.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.inotify import InotifyObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from watchdog.observers.api import EventEmitter, ObservedWatch

MAX_EVENTS = 40  # per second; each costs about as much as checking all files that are being written
SUSPEND_SECONDS = 5.0  # without events after a flood, twice as long after each that follows at once,
MAX_SUSPEND_SECONDS = 40.0  # and at most so long
EXHAUSTED_SECONDS = 60.0  # until inotify is tried again after the system had no more instances, watches or threads
_GOES_ON_SECONDS = 3.0  # a flood so soon after a suspension is the one before
_MAX_PATHS = 1024
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM})

_DIRECTORY_EVENTS: list[type[FileSystemEvent]] = [DirCreatedEvent, DirMovedEvent, DirDeletedEvent]
_FILE_EVENTS: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    *_DIRECTORY_EVENTS,
]

_log = logging.getLogger(__name__)


class _WatchedDirectory(NamedTuple):
    """Identity of a watched directory, and what to watch for."""

    device: int
    inode: int
    prefix: str | None  # of the relevant names; None: only directories that are created, moved or deleted


class _Inbox:
    """Collects the paths of events and wakes the reader, once until it has taken them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._paths: set[str] = set()
        self._woken = False
        self._count = 0

    def count(self) -> None:
        """Count an event, relevant or not: each costs time."""
        self._count += 1
        if self._count == MAX_EVENTS + 1:
            self._call()

    def add(self, path: str) -> None:
        """Add the path of a relevant event."""
        if len(self._paths) < _MAX_PATHS:
            self._paths.add(path)
        self._call()

    def _call(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self) -> tuple[set[str], int]:
        """The paths and the number of events since the last call."""
        self._woken = False  # first, so that an event from here on wakes again
        paths, self._paths = self._paths, set()
        count, self._count = self._count, 0
        return paths, count


class _Handler(FileSystemEventHandler):
    """Filters the events of one directory. Runs in watchdog's thread."""

    def __init__(self, inbox: _Inbox, prefix: str | None) -> None:
        self._inbox = inbox
        self._prefix = prefix

    def dispatch(self, event: FileSystemEvent) -> None:
        self._inbox.count()
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            if path and (
                event.is_directory or (self._prefix is not None and os.path.basename(path).startswith(self._prefix))
            ):
                self._inbox.add(path)


class FsEvents:
    """Watches directories, which may come and go. Times are monotonic seconds.

    Not thread-safe; `wake` alone is called from another thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.restarts = 0  # watches set up again because their thread had died
        self.problem = ""  # why not all directories are watched, with what to do; empty while they are
        self._inbox = _Inbox(wake)
        self._events = 0  # in this second
        self._second = float("-inf")
        self._observer: InotifyObserver | None = None  # from the first watch() on
        self._watches: dict[str, tuple[_WatchedDirectory, ObservedWatch]] = {}
        self._suspended_until = float("-inf")
        self._pause = SUSPEND_SECONDS  # the last one
        self._suspended = False  # until watch() is called after that

    def close(self) -> None:
        """Stop all threads."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()

    def take(self, now: float) -> set[str]:
        """The paths of events since the last call. After a flood of events, watching is suspended."""
        paths, count = self._inbox.take()
        if now - self._second >= 1.0:
            self._second, self._events = now, 0
        self._events += count
        if self._events > MAX_EVENTS and self._watches:
            self._events = 0
            goes_on = now - self._suspended_until <= _GOES_ON_SECONDS
            self._pause = min(2 * self._pause, MAX_SUSPEND_SECONDS) if goes_on else SUSPEND_SECONDS
            self._suspend(now + self._pause)
            self._unwatch(list(self._watches))
        return paths

    def _suspend(self, until: float) -> None:
        self._suspended_until = until
        self._suspended = True

    def suspended(self, now: float) -> bool:
        """Whether events are suspended, so that frequent polling must replace them."""
        return now < self._suspended_until

    def resume_due(self, now: float) -> bool:
        """Whether the suspension has ended, so that `watch` must be called."""
        return self._suspended and not self.suspended(now)

    def watch(self, directories: Mapping[str, str], now: float) -> None:
        """Watch `directories` as they are now, each for names with a prefix; and their parents, for new directories.

        Where the system has no more instances, watches or threads, what is watched stays so, and `problem` is set.
        """
        if self.suspended(now):
            return
        self._suspended = False
        try:
            self._watch_all(_directories_to_watch(directories))
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._suspend(now + EXHAUSTED_SECONDS)
            reason = getattr(error, "strerror", None) or error
            self._set_problem(
                f"inotify cannot watch all logs ({reason}), so they are polled, which costs more; raise "
                "fs.inotify.max_user_instances and fs.inotify.max_user_watches with sysctl"
            )
        else:
            self._set_problem("")

    def _set_problem(self, problem: str) -> None:
        if problem and not self.problem:
            _log.warning("%s", problem)
        elif self.problem and not problem:
            _log.info("inotify watches all logs again.")
        self.problem = problem

    def _watch_all(self, wanted: Mapping[str, _WatchedDirectory]) -> None:
        observer = self._running_observer()
        alive = {emitter.watch for emitter in observer.emitters if emitter.is_alive()}
        stale = [
            path for path, (place, watch) in self._watches.items() if wanted.get(path) != place or watch not in alive
        ]
        self.restarts += sum(1 for path in stale if wanted.get(path) == self._watches[path][0])
        self._unwatch(stale)
        for path in wanted.keys() - self._watches.keys():
            self._watch(observer, path, wanted[path])

    def _watch(self, observer: InotifyObserver, path: str, place: _WatchedDirectory) -> None:
        handler = _Handler(self._inbox, place.prefix)
        kinds = _DIRECTORY_EVENTS if place.prefix is None else _FILE_EVENTS
        try:
            watch = observer.schedule(handler, path, event_filter=kinds)
        except OSError as error:
            if error.errno in _EXHAUSTED:
                raise
            return  # gone, or not permitted: polling has to do
        self._watches[path] = (place, watch)

    def _unwatch(self, paths: Iterable[str]) -> None:
        if self._observer is not None:
            for path in paths:
                self._observer.unschedule(self._watches.pop(path)[1])

    def _running_observer(self) -> InotifyObserver:
        """The observer; a new one if there is none, or its thread has died."""
        if self._observer is not None:
            if self._observer.is_alive():
                return self._observer
            self.restarts += 1
            self._watches.clear()
            self._observer.stop()
            self._observer = None
        observer = InotifyObserver()
        try:
            observer.start()
        except RuntimeError:
            observer.stop()
            raise
        self._observer = observer
        return observer

    @property
    def emitters(self) -> set[EventEmitter]:
        """The threads that read events."""
        return self._observer.emitters if self._observer is not None else set()


def _directories_to_watch(directories: Mapping[str, str]) -> dict[str, _WatchedDirectory]:
    """Real paths to watch: each directory, and the nearest directory above it that exists."""
    watched: dict[str, _WatchedDirectory] = {}
    for directory, prefix in directories.items():
        real = os.path.realpath(directory)
        parent = os.path.dirname(real)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        _add_directory(watched, real, prefix)
        _add_directory(watched, parent, None)
    return watched


def _add_directory(watched: dict[str, _WatchedDirectory], path: str, prefix: str | None) -> None:
    try:
        entry = os.stat(path)
    except OSError:
        return
    known = watched[path].prefix if path in watched else None
    prefixes = [each for each in (prefix, known) if each is not None]
    watched[path] = _WatchedDirectory(entry.st_dev, entry.st_ino, min(prefixes, default=None))
