"""A place with logs, a clock that is moved by hand, a follower, and what a store would keep of its readings."""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tpuwatch.core.clock import ManualClock
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Catalogue, load_catalogue
from tpuwatch.logs.tail.follow import FileMatch, Follower, LogReading

if TYPE_CHECKING:
    import pytest

    from tpuwatch.logs.tail.files import FileKey
    from tpuwatch.model.events import Cursor

RULE = r"""
[[rule]]
id = "test-event"
cause = "hang"
summary = "Event {number_count}."
match = ['TESTEVENT \d+']
capture = ['TESTEVENT (?P<number_count>\d+)']
"""
HEADER = "Log file created at: 2026/09/21 14:13:20\nRunning on machine: vm\n"
NOBODY = 65534
SLOW = 100_000  # bytes a second
DEAD_PID = 2**30  # above any that Linux gives


@cache
def scanner() -> Scanner:
    """A scanner for TESTEVENT <number>, and nothing else."""
    with TemporaryDirectory() as directory:
        (Path(directory) / "test.toml").write_text(RULE)
        catalogue = load_catalogue([Path(directory)])
    return Scanner(Catalogue((catalogue.rule("test-event"),)))


def name(severity: str = "INFO", *, started: str = "20260921-141320", pid: int = DEAD_PID) -> str:
    """A file name as libtpu makes it."""
    return f"tpu_driver.t1v.vm.root.log.{severity}.{started}.{pid}"


def line(number: int, letter: str = "E") -> str:
    """A record with an event in it."""
    return f"{letter}0921 14:13:20.{number % 1_000_000:06d}  4242 tpu.cc:7] TESTEVENT {number}\n"


def dull(count: int) -> str:
    """Records without events."""
    return "I0921 14:13:20.000000  4242 tpu.cc:8] nothing to see here\n" * count


def numbers(matches: list[FileMatch]) -> list[int]:
    """Which events were seen, in order."""
    return [file_match.match.details["number_count"] for file_match in matches]


def _each(one: FileMatch) -> list[FileMatch]:
    """The match and those that it stands for."""
    if one.match.repeats is None:
        return [one]
    matches = (*one.match.repeats.matches(), replace(one.match, repeats=None))
    return [replace(one, match=match) for match in matches]


def parse_slowly(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock run on by what parsing would take if it did SLOW bytes a second."""
    feed = LogParser.feed

    def slow(parser: LogParser, data: bytes) -> list[Match]:
        clock.advance(len(data) / SLOW)
        return feed(parser, data)

    monkeypatch.setattr(LogParser, "feed", slow)


@dataclass
class Site:
    """One machine's logs and their follower."""

    root: Path
    clock: ManualClock = field(default_factory=ManualClock)
    options: dict[str, Any] = field(default_factory=dict)
    cursors: dict[FileKey, Cursor] = field(default_factory=dict)
    matches: list[FileMatch] = field(default_factory=list)
    readings: list[LogReading] = field(default_factory=list)
    woken: threading.Event = field(default_factory=threading.Event)
    first_run: bool = False
    _ticks: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.logs.mkdir(exist_ok=True)
        self.follower = self.start()

    @property
    def logs(self) -> Path:
        return self.root / "tpu_logs"

    def start(self) -> Follower:
        """A new follower, which goes on where the last one was."""
        options: dict[str, Any] = {"log_dirs": [str(self.logs)], "job_globs": [], **self.options}
        self.follower = Follower(
            scanner=scanner(),
            clock=self.clock,
            cursors=self.cursors.values(),
            first_run=self.first_run,
            wake=self.woken.set,
            **options,
        )
        return self.follower

    def restart(self) -> None:
        """End the follower as a crash would, and start another."""
        self.follower.close()
        self.first_run = False
        self.start()

    def stir(self, *directories: Path) -> None:
        """Have directories' times differ from before: they are coarse, and tests are faster than that."""
        for directory in directories or (self.logs,):
            if directory.is_dir():
                tick = next(self._ticks)
                os.utime(directory, (tick, tick))

    def append(self, file: str, text: str | bytes) -> Path:
        """Write to the end of a file in the log directory, and make it if need be."""
        path = self.logs / file
        with path.open("ab") as stream:
            stream.write(text.encode() if isinstance(text, str) else text)
        self.stir()
        return path

    def poll(self) -> LogReading:
        """One poll, with its cursors kept as a store would."""
        reading = self.follower.poll()
        self.readings.append(reading)
        reading.matches = [each for one in reading.matches for each in _each(one)]
        self.matches += reading.matches
        self.cursors.update({(cursor.device, cursor.inode): cursor for cursor in reading.cursors})
        return reading

    def settle(self, seconds: float = 1.0) -> list[int]:
        """After some time, poll until nothing is left to do; the events seen on the way."""
        first = len(self.matches)
        self.clock.advance(seconds)
        for _ in range(10_000):
            reading = self.poll()
            if reading.due_in >= 1.0:
                return numbers(self.matches[first:])
            self.clock.advance(reading.due_in + 1e-6)
        raise AssertionError("the follower never comes to rest")
