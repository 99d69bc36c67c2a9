from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.host.glog import BINARY, BUFFER_BYTES, RECORD_BYTES, GlogFiles

HEADER_LINES = 3 + len(BINARY)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def open_files(directory: Path, clock: ManualClock, pid: int = 4711, **options: int) -> GlogFiles:
    return GlogFiles(directory, clock, pid=pid, host="t1v-n-1.local", user="ada", **options)


def names(directory: Path) -> list[str]:
    """The log files, without links."""
    return sorted(path.name for path in directory.iterdir() if not path.is_symlink())


def body(path: Path) -> str:
    """A file without its head."""
    return "".join(path.read_text().splitlines(keepends=True)[HEADER_LINES:])


@pytest.mark.parametrize(("severity", "copies"), [("I", 1), ("W", 2), ("E", 3), ("F", 4)])
def test_record_stands_in_the_files_of_all_lower_severities(
    tmp_path: Path, clock: ManualClock, severity: str, copies: int
) -> None:
    files = open_files(tmp_path, clock)
    files.write(severity, "one")
    files.close()
    assert [body(tmp_path / name) for name in names(tmp_path)] == ["one\n"] * copies


def test_info_reaches_the_disk_in_blocks_that_end_mid_line_until_a_warning_flushes_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    files = open_files(tmp_path, clock)
    for _ in range(100):
        files.write("I", "x" * 99)
    path = files.path("I")
    assert path.stat().st_size % BUFFER_BYTES == 0
    assert not path.read_text().endswith("\n")
    files.write("W", "flushes")
    assert body(path) == ("x" * 99 + "\n") * 100 + "flushes\n"
    assert body(files.path("W")) == "flushes\n"


def test_long_record_is_cut_mid_line_and_closed(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("E", "word " * 10_000)
    files.write("E", "next")
    long, following = body(files.path("E")).splitlines()
    assert len(long) == RECORD_BYTES
    assert following == "next"


def test_rotation_starts_a_file_with_a_new_time_moves_the_link_and_loses_no_record(
    tmp_path: Path, clock: ManualClock
) -> None:
    files = open_files(tmp_path, clock, rotate_at=1000)
    for number in range(50):
        files.write("I", f"{number:099d}")
        clock.advance(1)
    files.write("I", "x" * 10_000)  # a fast writer overshoots the limit: the file has this second in its name
    files.write("I", "last")
    assert (tmp_path / "tpu_driver.INFO").resolve() == files.path("I")
    files.close()
    assert len(names(tmp_path)) > 2
    text = "".join(body(tmp_path / name) for name in names(tmp_path))
    assert text.splitlines() == [*(f"{number:099d}" for number in range(50)), "x" * 10_000, "last"]


def test_link_belongs_to_whoever_started_last(tmp_path: Path, clock: ManualClock) -> None:
    open_files(tmp_path, clock).write("I", "one")
    other = open_files(tmp_path, clock, pid=4712)
    other.write("I", "two")
    assert str((tmp_path / "tpu_driver.INFO").readlink()) == other.path("I").name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two users")
def test_link_of_another_user_stays_under_a_sticky_directory(clock: ManualClock) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o1777)
        first = open_files(directory, clock)
        first.write("I", "one")
        os.seteuid(65534)
        try:
            open_files(directory, clock, pid=4712).write("I", "two")
        finally:
            os.seteuid(0)
        assert str((directory / "tpu_driver.INFO").readlink()) == first.path("I").name
        assert len(names(directory)) == 2
