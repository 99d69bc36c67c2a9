from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.host.glog import BUFFER_BYTES, RECORD_BYTES, GlogFiles, prefix

HEADER_LINES = 3  # without what the binary says of itself


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def open_files(directory: Path, clock: ManualClock, **options: object) -> GlogFiles:
    return GlogFiles(directory, pid=4711, host="t1v-n-1.local", user="ada", clock=clock, **options)  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    """The log files, without links."""
    return sorted(path.name for path in directory.iterdir() if not path.is_symlink())


def body(path: Path) -> str:
    """A file without its head."""
    return "".join(path.read_text().splitlines(keepends=True)[HEADER_LINES:])


def test_prefix_is_a_glog_header_in_local_time_without_year() -> None:
    now = time.mktime((2026, 11, 20, 13, 44, 14, 0, 0, -1)) + 0.25
    assert prefix("I", now, 5727, "init.cc:78") == "I1120 13:44:14.250000    5727 init.cc:78] "


def test_name_says_host_user_severity_time_and_pid(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("I", "one")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock.time()))
    assert names(tmp_path) == [f"tpu_driver.t1v-n-1.local.ada.log.INFO.{stamp}.4711"]
    assert files.path("I").name == names(tmp_path)[0]


def test_head_has_six_lines_with_the_year(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock, header=("Binary: Built on x", "Binary: Built at y", "Binary: Built for z"))
    files.write("W", "one")
    lines = files.path("W").read_text().splitlines()
    assert lines[0] == time.strftime("Log file created at: %Y/%m/%d %H:%M:%S", time.localtime(clock.time()))
    assert lines[1] == "Running on machine: t1v-n-1.local"
    assert lines[5] == "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg"
    assert lines[6:] == ["one"]


@pytest.mark.parametrize(("severity", "copies"), [("I", 1), ("W", 2), ("E", 3), ("F", 4)])
def test_record_stands_in_the_files_of_all_lower_severities(
    tmp_path: Path, clock: ManualClock, severity: str, copies: int
) -> None:
    files = open_files(tmp_path, clock)
    files.write(severity, "one")
    files.close()
    assert [body(tmp_path / name) for name in names(tmp_path)] == ["one\n"] * copies


def test_minimum_leaves_out_the_lower_files(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock, minimum="E")
    files.write("W", "unheard")
    files.write("F", "heard")
    files.close()
    assert [name.split(".")[-3] for name in names(tmp_path)] == ["ERROR", "FATAL"]
    assert {body(tmp_path / name) for name in names(tmp_path)} == {"heard\n"}


def test_info_reaches_the_disk_in_blocks_that_end_mid_line(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    for _ in range(100):
        files.write("I", "x" * 99)
    size = files.path("I").stat().st_size
    assert size == 10_000 // BUFFER_BYTES * BUFFER_BYTES
    assert not files.path("I").read_text().endswith("\n")


def test_a_warning_flushes_the_info_that_waits(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("I", "waits")
    assert body(files.path("I")) == ""
    files.write("W", "flushes")
    assert body(files.path("I")) == "waits\nflushes\n"
    assert body(files.path("W")) == "flushes\n"


def test_a_killed_process_loses_what_waits(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("W", "kept")
    files.write("I", "lost")
    path = files.path("I")
    files.abandon()
    assert body(path) == "kept\n"


def test_long_record_is_cut_mid_line_and_closed(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("E", "word " * 10_000)
    files.write("E", "next")
    long, following = body(files.path("E")).splitlines()
    assert len(long) == RECORD_BYTES
    assert following == "next"


def test_rotation_starts_a_file_with_a_new_time_and_head_and_moves_the_link(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock, rotate_at=1000)
    files.write("W", "x" * 1000)
    first = files.path("W")
    clock.advance(1)
    files.write("W", "second")
    second = files.path("W")
    assert first != second
    assert second.name.endswith(".4711")
    assert body(second) == "second\n"
    assert (tmp_path / "tpu_driver.WARNING").resolve() == second.resolve()
    assert body(first) == "x" * 1000 + "\n"


def test_rotation_within_one_second_overshoots(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock, rotate_at=1000)
    for _ in range(20):
        files.write("W", "x" * 1000)
    assert files.path("W").stat().st_size > 20_000


def test_rotation_loses_no_buffered_record(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock, rotate_at=1000)
    for number in range(50):
        files.write("I", f"{number:099d}")
        clock.advance(1)
    files.close()
    text = "".join(body(tmp_path / name) for name in names(tmp_path))
    assert text.splitlines() == [f"{number:099d}" for number in range(50)]


def test_link_belongs_to_whoever_started_last(tmp_path: Path, clock: ManualClock) -> None:
    open_files(tmp_path, clock).write("I", "one")
    other = GlogFiles(tmp_path, pid=4712, host="h", user="u", clock=clock)
    other.write("I", "two")
    link = tmp_path / "tpu_driver.INFO"
    assert link.is_symlink()
    assert str(link.readlink()) == other.path("I").name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two users")
def test_link_of_another_user_stays_under_a_sticky_directory(clock: ManualClock) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o1777)
        first = open_files(directory, clock)
        first.write("I", "one")
        os.seteuid(65534)
        try:
            other = GlogFiles(directory, pid=4712, host="h", user="u", clock=clock)
            other.write("I", "two")
        finally:
            os.seteuid(0)
        assert str((directory / "tpu_driver.INFO").readlink()) == first.path("I").name
        assert len(names(directory)) == 2


def test_a_deleted_file_is_not_made_again(tmp_path: Path, clock: ManualClock) -> None:
    files = open_files(tmp_path, clock)
    files.write("W", "one")
    for name in os.listdir(tmp_path):  # noqa: PTH208 - broken links too
        (tmp_path / name).unlink()
    files.write("W", "two")
    assert not list(tmp_path.iterdir())


def test_without_a_buffer_every_record_is_there_at_once(tmp_path: Path, clock: ManualClock) -> None:
    files = GlogFiles(tmp_path, pid=4711, host="h", user="u", clock=clock, buffered=False)
    files.write("I", "one")
    assert files.path("I").read_text().endswith("\none\n")
    files.write("I", "two")
    assert files.path("I").read_text().endswith("\none\ntwo\n")
