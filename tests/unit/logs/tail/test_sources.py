"""Finding logs: how often sources are scanned, and which changes are reported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.unit.logs.sites import name
from tpuwatch.core.clock import ManualClock
from tpuwatch.logs.tail.sources import Changes, Discovery, LogDirectory, WatchedSource

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.logs.tail.files import Found


@dataclass
class SlowClock(ManualClock):
    """A clock by which each look at it takes a while."""

    step: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    def monotonic(self) -> float:
        self.mono += self.step
        return self.mono


def discovery(path: Path, clock: ManualClock, **options: bool) -> Discovery:
    return Discovery([str(path)], [], clock=clock, rescan_seconds=1.0, first_run=options.get("first_run", False))


def tick(path: Path, number: int) -> None:
    """Set a directory's time, which a file's coming sets too, but in steps too coarse for tests."""
    os.utime(path, (number, number))


class CoarseDirectory(LogDirectory):
    """A directory whose times never change, and which counts how often it is read."""

    reads = 0

    def stamp(self) -> tuple[int, ...]:
        return (1,)

    def find(self) -> Found:
        self.reads += 1
        return super().find()


def test_a_name_that_came_within_one_tick_of_the_last_look_is_seen_a_second_later(tmp_path: Path) -> None:
    clock, changes = ManualClock(), Changes()
    watched = WatchedSource(CoarseDirectory(str(tmp_path)), history=False)
    watched.scan(clock, changes)
    (tmp_path / name()).touch()
    assert not watched.due(clock.monotonic(), 1.0)
    clock.advance(1.0)
    assert watched.due(clock.monotonic(), 1.0)
    watched.scan(clock, changes)
    assert len(changes.appeared) == 1


def test_an_unchanged_directory_is_hardly_ever_read_again(tmp_path: Path) -> None:
    clock = ManualClock()
    directory = CoarseDirectory(str(tmp_path))
    watched = WatchedSource(directory, history=False)
    for _ in range(130):
        if watched.due(clock.monotonic(), 1.0):
            watched.scan(clock, Changes())
        clock.advance(1.0)
    assert directory.reads == 4  # twice at first, as directories' times are coarse; then each minute, as some are wrong


def test_reading_a_directory_takes_a_bounded_share_of_the_time(tmp_path: Path) -> None:
    clock = SlowClock(step=0.01)
    found = discovery(tmp_path, clock)
    scans = 0
    for number in range(200):
        (tmp_path / f"{name()}.{number}").touch()
        tick(tmp_path, number)
        scans += bool(found.scan().appeared)
    assert 5 <= scans <= 20  # each takes 0.01 s by this clock, and there are 2 s and a bit


def test_directories_are_where_logs_are_or_may_come(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.log").touch()
    assert LogDirectory(str(tmp_path)).directories() == {str(tmp_path): "tpu_driver."}
    both = Discovery([str(tmp_path)], [str(tmp_path / "*")], clock=ManualClock(), rescan_seconds=1.0, first_run=False)
    assert both.directories() == {str(tmp_path): ""}  # any name may matter


def test_a_directory_that_takes_long_to_read_is_read_again_more_rarely(tmp_path: Path) -> None:
    clock = SlowClock(step=0.5)  # that a scan takes
    watched = WatchedSource(CoarseDirectory(str(tmp_path)), history=False)
    for _ in range(2):
        watched.scan(clock, Changes())
    scanned = clock.mono
    assert not watched.due(scanned + 499.0, 1.0)
    assert watched.due(scanned + 501.0, 1.0)


def test_what_is_there_was_seen_where_the_directory_has_not_changed(tmp_path: Path) -> None:
    clock = ManualClock()
    found = Discovery([str(tmp_path)], [], clock=clock, rescan_seconds=1.0, first_run=False)
    found.scan()
    clock.advance(1.0)
    assert not found.has_seen(clock.monotonic())
    found.scan()
    clock.advance(1.0)
    found.scan(force=True)  # not due
    assert found.has_seen(clock.monotonic())
