"""Wake-ups when something is written: inotify's events, by way of watchdog.

Hints only. No event is believed and none is needed: they make the next look come sooner than it would anyway. So events
may be lost, threads may die and directories may go, at the price of a second's delay; and where events come so fast
that they cost more than looking, they are switched off for a while.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    from collections.abc import Callable, Iterable

    from watchdog.observers.api import EventEmitter, ObservedWatch

STORM_EVENTS = 500  # between two looks; each costs some 20 microseconds
CALM_SECONDS = 5.0  # without events after a storm
CALM_POLL_SECONDS = 0.025  # between two looks meanwhile
_MAX_PATHS = 1024

_COMING_AND_GOING: list[type[FileSystemEvent]] = [DirCreatedEvent, DirMovedEvent, DirDeletedEvent]
_WRITING: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    *_COMING_AND_GOING,
]

_Place = tuple[
    int, int, bool
]  # device and inode of a directory; whether it may hold logs, or is only on the way to one that does


class _Handler(FileSystemEventHandler):
    """Notes which paths were touched and wakes the reader, once until it has looked. Runs in watchdog's thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._paths: set[str] = set()
        self._woken = False
        self.count = 0

    def dispatch(self, event: FileSystemEvent) -> None:
        self.count += 1
        if len(self._paths) < _MAX_PATHS:
            self._paths.add(os.fsdecode(event.src_path))
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self) -> tuple[set[str], int]:
        """The paths and the number of events since this was last asked."""
        self._woken = False  # first: an event from here on wakes again
        paths, self._paths = self._paths, set()
        count, self.count = self.count, 0
        return paths, count


class Hints:
    """Watches directories, wherever they come and go. Times are monotonic seconds.

    All methods are for one thread; only `wake` is called from another.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.restarts = 0  # watches that had to be set up again because their thread had died
        self._handler = _Handler(wake)
        self._observer = InotifyObserver()
        self._watches: dict[str, tuple[_Place, ObservedWatch]] = {}
        self._calm_until = float("-inf")
        self._observer.start()

    def close(self) -> None:
        """Stop all threads."""
        self._observer.stop()
        self._observer.join()

    def take(self, now: float) -> set[str]:
        """The paths that were touched since this was last asked. After a storm, watching stops for a while."""
        paths, count = self._handler.take()
        if count > STORM_EVENTS and not self.calm(now):
            self._calm_until = now + CALM_SECONDS
            self._unwatch(list(self._watches))
        return paths

    def calm(self, now: float) -> bool:
        """Whether events are switched off, so that looking often must stand in for them."""
        return now < self._calm_until

    def watch(self, directories: Iterable[str], now: float) -> None:
        """Watch `directories` as they are now, and their parents, which tell of their coming and going."""
        if self.calm(now):
            return
        if not self._observer.is_alive():
            self._start_over()
        wanted = _places(directories)
        alive = {emitter.watch for emitter in self._observer.emitters if emitter.is_alive()}
        stale = [
            path for path, (place, watch) in self._watches.items() if wanted.get(path) != place or watch not in alive
        ]
        self.restarts += sum(1 for path in stale if wanted.get(path) == self._watches[path][0])
        self._unwatch(stale)
        for path in wanted.keys() - self._watches.keys():
            self._watch(path, wanted[path])

    def _watch(self, path: str, place: _Place) -> None:
        try:
            watch = self._observer.schedule(
                self._handler, path, event_filter=_WRITING if place[2] else _COMING_AND_GOING
            )
        except OSError:
            return  # gone again, closed to us, or there are too many watches: looking without hints has to do
        self._watches[path] = (place, watch)

    def _unwatch(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._observer.unschedule(self._watches.pop(path)[1])

    def _start_over(self) -> None:
        self.restarts += 1
        self._watches.clear()
        self._observer.stop()
        self._observer = InotifyObserver()
        self._observer.start()

    @property
    def emitters(self) -> set[EventEmitter]:
        """The threads that read events."""
        return self._observer.emitters


def _places(directories: Iterable[str]) -> dict[str, _Place]:
    """Real paths to be watched: the directories themselves, and for each the nearest directory above it that exists."""
    places: dict[str, _Place] = {}
    for directory in directories:
        real = os.path.realpath(directory)
        parent = os.path.dirname(real)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        for path, holds_logs in ((real, True), (parent, False)):
            try:
                entry = os.stat(path)
            except OSError:
                continue
            known = places.get(path)
            places[path] = (entry.st_dev, entry.st_ino, holds_logs or (known is not None and known[2]))
    return places
