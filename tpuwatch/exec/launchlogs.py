"""Which of libtpu's log files are of this command's processes.

The directory is everyone's. A file is ours when the process that its name tells has our mark in its environment, or,
where that has ended already, when it is our user's and was begun after the command.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from tpuwatch.logs.files import RefusedError
from tpuwatch.logs.sources import LogDirectory
from tpuwatch.tune.model import LAUNCH_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.logs.files import LogFile

DEFAULT_DIRECTORY: Final = "/tmp/tpu_logs"  # noqa: S108 (where libtpu writes)
FALLBACK: Final = "/tmp"  # noqa: S108 (where it writes when it cannot write to its directory)
MAX_FILES: Final = 256  # of one command
_SCAN_SHARE = 20  # a directory is not read again before this many times what that took
_SLACK_SECONDS = 2.0  # names have whole seconds
_CLOCK_SECONDS = 0.05  # by which the times of files may lag
_MAX_ENVIRON = 1 << 20


class LaunchLogs:
    """Finds the files as they appear."""

    def __init__(self, directory: str, launch: str, started: float) -> None:
        """`launch`: the mark in the environment. `started`: seconds since the epoch."""
        paths = dict.fromkeys((os.path.abspath(directory or DEFAULT_DIRECTORY), FALLBACK))  # noqa: PTH100 (as libtpu takes it)
        self._places = [_Place(path) for path in paths]
        self._mark = f"{LAUNCH_VARIABLE}={launch}".encode()
        self._started = started
        self._found = 0

    def look(self, *, whatever: bool = False) -> Iterator[tuple[LogFile, int]]:
        """The files that have appeared since the last look, each with a descriptor to read it by.

        `whatever` it costs: else a directory that takes long to read is not read each time.
        """
        for place in self._places:
            for path in place.fresh(whatever=whatever):
                file = place.source.describe(path)
                if self._found >= MAX_FILES or (file.started or 0.0) < self._started - _SLACK_SECONDS:
                    continue
                try:
                    descriptor = place.source.open(path)
                except (OSError, RefusedError):
                    continue
                if self._is_ours(file, os.fstat(descriptor)):
                    self._found += 1
                    yield file, descriptor
                else:
                    os.close(descriptor)

    def _is_ours(self, file: LogFile, entry: os.stat_result) -> bool:
        try:
            with open(f"/proc/{file.pid}/environ", "rb") as environ:
                variables = environ.read(_MAX_ENVIRON).split(b"\0")
        except PermissionError:
            return False  # it lives, and is another user's
        except OSError:
            variables = [b""]
        if variables != [b""]:
            return self._mark in variables
        return entry.st_uid == os.geteuid() and entry.st_mtime >= self._started - _CLOCK_SECONDS


class _Place:
    """One directory, and what was seen in it."""

    def __init__(self, path: str) -> None:
        self.source = LogDirectory(path)
        self._seen: set[str] = set()
        self._stamp: tuple[int, ...] | None = None
        self._settled = False  # read once more after the stamp was new: the times of directories are coarse
        self._not_before = float("-inf")

    def fresh(self, *, whatever: bool) -> list[str]:
        """The paths that were not there before."""
        stamp, now = self.source.stamp(), time.monotonic()
        if not whatever and ((stamp == self._stamp and self._settled) or now < self._not_before):
            return []
        try:
            found = self.source.find()
        except (OSError, RefusedError):
            found = {}
        fresh = [path for path in found if path not in self._seen]
        self._seen = set(found)
        self._settled, self._stamp = stamp == self._stamp, stamp
        self._not_before = now + _SCAN_SHARE * (time.monotonic() - now)
        return fresh
