"""Wake-ups when something is written: inotify's events, by way of watchdog.

Hints only. No event is believed and none is needed: they make the next look come sooner than it would anyway. So events
may be lost, threads may die and directories may go, at the price of a second's delay; and where events come so fast
that they cost more than looking, they are switched off for a while.
"""

from __future__ import annotations

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

STORM_EVENTS = 40  # in a second; each costs about as much as looking at all files that are being written
CALM_SECONDS = 5.0  # without events after a storm
_MAX_PATHS = 1024

_COMING_AND_GOING: list[type[FileSystemEvent]] = [DirCreatedEvent, DirMovedEvent, DirDeletedEvent]
_WRITING: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    *_COMING_AND_GOING,
]


class _Place(NamedTuple):
    """A directory as it was when it was watched, and what to watch for."""

    device: int
    inode: int
    prefix: str | None  # of the names that matter; None: only directories that come and go do


class _Inbox:
    """Notes which paths were touched and wakes the reader, once until it has looked."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._paths: set[str] = set()
        self._woken = False
        self._count = 0

    def count(self) -> None:
        """An event has cost its time, whether it matters or not."""
        self._count += 1
        if self._count == STORM_EVENTS + 1:
            self._call()

    def note(self, path: str) -> None:
        """Something happened that matters."""
        if len(self._paths) < _MAX_PATHS:
            self._paths.add(path)
        self._call()

    def _call(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake()

    def take(self) -> tuple[set[str], int]:
        """The paths and the number of events since this was last asked."""
        self._woken = False  # first: an event from here on wakes again
        paths, self._paths = self._paths, set()
        count, self._count = self._count, 0
        return paths, count


class _Handler(FileSystemEventHandler):
    """Sorts the events of one directory. Runs in watchdog's thread."""

    def __init__(self, inbox: _Inbox, prefix: str | None) -> None:
        self._inbox = inbox
        self._prefix = prefix

    def dispatch(self, event: FileSystemEvent) -> None:
        self._inbox.count()
        for path in (os.fsdecode(event.src_path), os.fsdecode(event.dest_path)):
            if path and (
                event.is_directory or (self._prefix is not None and os.path.basename(path).startswith(self._prefix))
            ):
                self._inbox.note(path)


class Hints:
    """Watches directories, wherever they come and go. Times are monotonic seconds.

    All methods are for one thread; only `wake` is called from another.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.restarts = 0  # watches that had to be set up again because their thread had died
        self._inbox = _Inbox(wake)
        self._events = 0  # in this second
        self._second = float("-inf")
        self._observer = InotifyObserver()
        self._watches: dict[str, tuple[_Place, ObservedWatch]] = {}
        self._calm_until = float("-inf")
        self._off = False  # since a storm, until watch() is called after it
        self._observer.start()

    def close(self) -> None:
        """Stop all threads."""
        self._observer.stop()
        self._observer.join()

    def take(self, now: float) -> set[str]:
        """The paths that were touched since this was last asked. After a storm, watching stops for a while."""
        paths, count = self._inbox.take()
        if now - self._second >= 1.0:
            self._second, self._events = now, 0
        self._events += count
        if self._events > STORM_EVENTS and not self.calm(now):
            self._calm_until = now + CALM_SECONDS
            self._off = True
            self._unwatch(list(self._watches))
        return paths

    def calm(self, now: float) -> bool:
        """Whether events are switched off, so that looking often must stand in for them."""
        return now < self._calm_until

    def due(self, now: float) -> bool:
        """Whether a calm has ended and `watch` is wanted at once: until then nothing tells of writes."""
        return self._off and not self.calm(now)

    def watch(self, directories: Mapping[str, str], now: float) -> None:
        """Watch `directories` as they are now, each for names with a prefix; and their parents, for new directories."""
        if self.calm(now):
            return
        self._off = False
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
        handler = _Handler(self._inbox, place.prefix)
        kinds = _COMING_AND_GOING if place.prefix is None else _WRITING
        try:
            watch = self._observer.schedule(handler, path, event_filter=kinds)
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


def _places(directories: Mapping[str, str]) -> dict[str, _Place]:
    """Real paths to be watched: the directories themselves, and for each the nearest directory above it that exists."""
    places: dict[str, _Place] = {}
    for directory, prefix in directories.items():
        real = os.path.realpath(directory)
        parent = os.path.dirname(real)
        while not os.path.isdir(parent):
            parent = os.path.dirname(parent)
        _add_place(places, real, prefix)
        _add_place(places, parent, None)
    return places


def _add_place(places: dict[str, _Place], path: str, prefix: str | None) -> None:
    try:
        entry = os.stat(path)
    except OSError:
        return
    known = places[path].prefix if path in places else None
    prefixes = [each for each in (prefix, known) if each is not None]
    places[path] = _Place(entry.st_dev, entry.st_ino, min(prefixes, default=None))
