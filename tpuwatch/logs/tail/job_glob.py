"""Jobs' output, named by a glob: a walk that is bounded in each turn, whatever lies below the glob's root.

What a directory holds is remembered until its timestamps change, so an unchanged directory costs one stat.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import heapq
import itertools
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.logs.parse.parser import StreamKind
from tpuwatch.logs.tail.files import (
    LogFile,
    Refusal,
    RefusedError,
    directory_stamp,
    may_follow,
    open_directory,
    open_directory_below,
    open_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tpuwatch.core import Clock
    from tpuwatch.logs.tail.files import FileKey, Found

WALK_ENTRIES = 20_000  # of directories in one call of find(),
WALK_SECONDS = 0.05  # and its duration
_CLOCK_ENTRIES = 64  # between two looks at the clock
_MAX_SIZE = 200_000  # files and directories of one glob, give or take those of one directory
_REREAD_SECONDS = 600.0  # between two walks that read every directory: not every file system keeps timestamps
_MAX_WATCHED = 32  # directories; with some versions of watchdog each takes six file descriptors

_States = frozenset[int]  # the parts of the pattern that the names in a directory are held against


class _Visit(NamedTuple):
    """A directory to visit."""

    path: str
    states: _States
    links: int  # how many led there


class _Listing(NamedTuple):
    """What matters in a directory."""

    stamp: tuple[int, ...]
    confirmed: bool  # read again after the stamp was new: timestamps of directories are coarse
    files: dict[str, tuple[FileKey, int]]  # by path; how many links led there
    below: list[_Visit]


class JobGlob:
    """Files that jobs write their output to, named by a glob ('**' crosses directories). Used as a LogDirectory is.

    '**' follows no link to a directory, and a file is found by one name, the one with the fewest links in it.
    """

    kind = StreamKind.TEXT

    def __init__(self, pattern: str, clock: Clock) -> None:
        parts = os.path.abspath(pattern).split("/")
        fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts[:-1]))
        self._root = "/".join(fixed) or "/"
        self._parts = parts[len(fixed) :]
        self._matchers = [_matcher(part) for part in self._parts]
        self._clock = clock
        self._walk: Iterator[None] | None = None  # under way
        self._listings: dict[_Visit, _Listing] = {}  # of the last walk
        self._next_reread = float("-inf")
        self._found: Found = {}
        self._directories = {self._root: ""}

    def stamp(self) -> None:
        """None: what matches may change without a sign."""

    @property
    def unfinished(self) -> bool:
        """Whether the walk is under way: find() continues it."""
        return self._walk is not None

    def find(self) -> Found:
        """The files that matched at the end of the last walk; the same object if nothing has changed.

        Raises RefusedError where a link leads to the root that must not be followed.
        """
        end = self._clock.monotonic() + WALK_SECONDS
        if self._walk is None:
            self._check_root()
            self._walk = self._visit_all()
        for count, _ in enumerate(self._walk, 1):
            if count >= WALK_ENTRIES or (count % _CLOCK_ENTRIES == 0 and self._clock.monotonic() >= end):
                return self._found
        self._walk = None
        return self._found

    def open(self, path: str) -> int:
        """Open one of them; raises as open_log does."""
        directory = open_directory_below(os.path.dirname(path), os.path.realpath(self._root))
        try:
            return open_log(directory, path, follow=True)
        finally:
            os.close(directory)

    def describe(self, path: str) -> LogFile:
        """The file as described by its path."""
        return LogFile(path, self.kind)

    def directories(self) -> dict[str, str]:
        """The directories to watch for writes: the root, and those where names changed last."""
        return self._directories

    def _check_root(self) -> None:
        try:
            os.close(open_directory(self._root))
        except FileNotFoundError:
            return
        except RefusedError as error:
            if error.reason is Refusal.DIRECTORY_LINK:
                raise

    # -- the walk, which yields after each entry

    def _visit_all(self) -> Iterator[None]:
        reread = self._clock.monotonic() >= self._next_reread
        if reread:
            self._next_reread = self._clock.monotonic() + _REREAD_SECONDS
        listings: dict[_Visit, _Listing] = {}
        pending = [_Visit(self._root, self._reached({0}), links=0)]
        size = 0
        while pending and size < _MAX_SIZE:
            visit = pending.pop()
            yield
            known, stamp = self._listings.get(visit), directory_stamp(visit.path)
            unchanged = known is not None and known.stamp == stamp
            if known is None or not unchanged or not known.confirmed or reread:
                known = yield from self._list(visit, stamp, confirmed=unchanged)
            listings[visit] = known
            pending += known.below
            size += 1 + len(known.files) + len(known.below)
        if listings != self._listings:
            self._listings = listings
            self._collect()

    def _list(self, visit: _Visit, stamp: tuple[int, ...], *, confirmed: bool) -> Generator[None, None, _Listing]:
        listing = _Listing(stamp, confirmed, {}, [])
        for name, is_directory, is_link in self._entries(visit):
            yield
            matches, below = self._step(name, visit.states, is_link=is_link)
            path, links = os.path.join(visit.path, name), visit.links + is_link
            if is_link or (matches and not is_directory):
                try:
                    entry, link = os.stat(path), os.lstat(path)
                except OSError:
                    continue  # gone, or in an unreadable directory: the next walk decides
                is_directory = stat.S_ISDIR(entry.st_mode)
                if is_directory and below and not may_follow(link, entry):
                    # Even its names are not the link's owner's to show. Opening the link itself tells why.
                    listing.files[path] = ((link.st_dev, link.st_ino), links)
                    continue
                if matches and not is_directory:
                    listing.files[path] = ((entry.st_dev, entry.st_ino), links)
            if below and is_directory:
                listing.below.append(_Visit(path, below, links))
            if len(listing.files) + len(listing.below) >= _MAX_SIZE:
                break
        return listing

    def _entries(self, visit: _Visit) -> Iterator[tuple[str, bool, bool]]:
        """Names that may match, and whether each is a directory or a link; only fixed names need no reading."""
        parts = {self._parts[state] for state in visit.states}
        if not any(map(glob.has_magic, parts)):
            for name in parts:
                with contextlib.suppress(OSError):
                    mode = os.lstat(os.path.join(visit.path, name)).st_mode
                    yield name, stat.S_ISDIR(mode), stat.S_ISLNK(mode)
            return
        with contextlib.suppress(OSError), os.scandir(visit.path) as entries:  # gone or unreadable
            for entry in entries:
                yield entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()

    def _step(self, name: str, states: _States, *, is_link: bool) -> tuple[bool, _States]:
        """Whether a name matches the pattern's last part, and what the names below it are held against."""
        last = len(self._parts) - 1
        matching = [state for state in states if self._matchers[state](name)]
        below = {
            state + 1 if self._parts[state] != "**" else state
            for state in matching
            if state < last or self._parts[state] == "**"
            if not (is_link and self._parts[state] == "**")
        }
        return last in matching, self._reached(below)

    def _reached(self, states: set[int]) -> _States:
        """These parts, and those that follow a '**', which may stand for no directory at all."""
        for state in sorted(states):
            following = state
            while self._parts[following] == "**" and following + 1 < len(self._parts):
                following += 1
                states.add(following)
        return frozenset(states)

    def _collect(self) -> None:
        names: dict[FileKey, tuple[int, str]] = {}
        for listing in self._listings.values():
            for path, (key, links) in listing.files.items():
                names[key] = min(names.get(key, (links, path)), (links, path))
        self._found = {path: key for key, (_, path) in names.items()}
        holding = [(listing.stamp[-1:], visit.path) for visit, listing in self._listings.items() if listing.files]
        latest = heapq.nlargest(_MAX_WATCHED, holding)
        self._directories = dict.fromkeys([self._root, *(path for _, path in latest)], "")


def _matcher(part: str) -> Callable[[str], bool]:
    """Whether a name matches a part of a pattern; as in a shell, '*' and '**' match no hidden name."""
    if not glob.has_magic(part):
        return part.__eq__
    match = re.compile(fnmatch.translate(part)).match
    hidden = part.startswith(".")
    return lambda name: (hidden or not name.startswith(".")) and match(name) is not None
