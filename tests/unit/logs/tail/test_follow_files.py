"""What happens to files under a follower: rotation, links, truncation, renaming, deletion."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import DEAD_PID, HEADER, Site, dull, line, name

if TYPE_CHECKING:
    from pathlib import Path


def test_reads_what_is_appended(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2) + line(3))
    assert site.settle() == [2, 3]
    assert site.settle() == []


def test_rotation_goes_on_in_the_new_file_of_the_same_process(site: Site) -> None:
    site.append(name(pid=os.getpid()), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(pid=os.getpid()), line(2))
    site.append(name(pid=os.getpid(), started="20260921-151320"), HEADER + line(3))
    assert sorted(site.settle()) == [2, 3]
    assert [log.rotated for log in site.follower._open.values()] == [True, False]


def test_rotation_ends_the_old_file_with_its_last_half_line(site: Site) -> None:
    site.append(name(pid=os.getpid()), HEADER + line(1).rstrip())
    assert site.settle(60) == []  # its process lives and may write the rest
    site.append(name(pid=os.getpid(), started="20260921-151320"), HEADER)
    assert site.settle(60) == [1]


def test_another_severity_of_the_same_process_is_no_rotation(site: Site) -> None:
    site.append(name("INFO"), HEADER + line(1))
    site.append(name("ERROR", started="20260921-151320"), HEADER + line(1))
    site.settle()
    assert [log.rotated for log in site.follower._open.values()] == [False, False]


def test_links_to_the_newest_file_are_neither_read_nor_followed_nor_complained_of(site: Site) -> None:
    link = site.logs / "tpu_driver.INFO"
    site.append(name(pid=1), HEADER + line(1))
    link.symlink_to(name(pid=1))
    assert site.settle() == [1]
    site.append(name(pid=2), HEADER + line(2))  # another process takes the link over
    link.unlink()
    link.symlink_to(name(pid=2))
    site.append(name(pid=1), line(3))
    site.stir()
    assert sorted(site.settle()) == [2, 3]
    assert site.follower.problems() == []
    assert not site.follower.counters.refusals


def test_truncation_begins_again(site: Site) -> None:
    path = site.append(name(), HEADER + dull(10) + line(1))
    assert site.settle() == [1]
    os.truncate(path, 0)
    site.settle()
    site.append(name(), HEADER + line(2))
    assert site.settle() == [2]
    assert site.follower.counters.truncations == 1


def test_truncation_to_a_part_begins_again_though_the_first_bytes_stay(site: Site) -> None:
    path = site.append(name(), HEADER + dull(20) + line(1))
    assert site.settle() == [1]
    os.truncate(path, len(HEADER + dull(10)))
    site.append(name(), line(2))
    assert site.settle() == [2]


def test_truncation_gives_what_was_still_held(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    site.clock.advance(1)
    assert site.poll().matches == [] or site.matches  # the record may go on: not certain yet
    os.truncate(path, 0)
    site.settle()
    assert [file_match.match.details["number_count"] for file_match in site.matches] == [1]


def test_a_file_rewritten_and_longer_is_recognised_by_its_first_bytes(site: Site) -> None:
    path = site.append("job.log", "")
    site.options = {"job_globs": [str(path)], "log_dirs": []}
    site.restart()
    site.append("job.log", "first run\n" + line(1))
    assert site.settle() == [1]
    path.write_text("second run\n" + dull(5) + line(2))
    assert site.settle() == [2]
    assert site.follower.counters.truncations == 1


def test_copytruncate_under_a_writer_that_appends(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name() + ".1", path.read_bytes())  # the copy is a new file, of which every record is a copy
    os.truncate(path, 0)
    site.append(name(), line(2))
    keys = {file_match.match.key for file_match in site.matches}
    assert sorted(site.settle()) == [1, 2]
    assert len(keys | {file_match.match.key for file_match in site.matches}) == 2


def test_copytruncate_under_a_writer_that_keeps_its_offset_leaves_a_hole_that_is_skipped(site: Site) -> None:
    path = site.logs / name()
    with path.open("wb", buffering=0) as writer:  # not O_APPEND
        writer.write((HEADER + dull(200_000) + line(1)).encode())
        site.stir()
        assert site.settle() == [1]
        os.truncate(path, 0)
        writer.write(line(2).encode())
        before = len(site.readings)
        assert site.settle() == [2]
        assert sum(reading.bytes_read for reading in site.readings[before:]) < 4096
        writer.write(line(3).encode())
        assert site.settle() == [3]
    assert site.follower.counters.truncations == 1


def test_rename_neither_reads_again_nor_loses_the_unread_tail(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2))
    path.rename(path.with_name(name() + ".1"))
    site.append(name(), HEADER + line(3))
    assert sorted(site.settle()) == [2, 3]
    site.append(name() + ".1", line(4))
    assert site.settle() == [4]
    assert {status.path for status in site.follower.files()} == {f"{path}.1", str(path)}


def test_a_file_moved_to_another_watched_directory_is_not_read_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    site.options = {"log_dirs": [str(site.logs), str(other)]}
    site.restart()
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2))
    path.rename(other / path.name)
    site.stir(other, site.logs)
    assert site.settle() == [2]
    with (other / path.name).open("a") as stream:
        stream.write(line(3))
    assert site.settle() == [3]
    site.follower.close()


def test_a_file_moved_away_and_back_goes_on_where_it_was(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    away = path.rename(site.root / "away")
    site.stir()
    assert site.settle() == []
    assert list(site.follower.files()) == []
    away.rename(path)
    site.append(name(), line(2))
    assert site.settle() == [2]


def test_a_deleted_file_is_read_to_its_end_and_forgotten(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2) + line(3).rstrip())  # the last without its end
    path.unlink()
    site.stir()
    assert site.settle() == [2, 3]
    assert list(site.follower.files()) == []


def test_a_deleted_file_is_followed_while_its_process_lives(site: Site) -> None:
    path = site.logs / name(pid=os.getpid())
    with path.open("w") as writer:
        writer.write(HEADER + line(1))
        writer.flush()
        site.stir()
        assert site.settle() == [1]
        path.unlink()
        site.stir()
        assert site.settle() == []
        writer.write(line(2))
        writer.flush()
        assert site.settle() == [2]


def test_a_name_that_is_used_again_is_a_new_file(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    path.unlink()
    site.append(name(), HEADER + line(2))  # very likely with the same inode
    assert site.settle() == [2]


def test_half_a_last_line_waits_while_its_process_lives(site: Site) -> None:
    site.append(name(pid=os.getpid()), HEADER + line(1)[:-5])
    assert site.settle(3600) == []
    site.append(name(pid=os.getpid()), line(1)[-5:])
    assert site.settle() == [1]


def test_half_a_last_line_counts_once_its_process_is_gone(site: Site) -> None:
    site.append(name(pid=DEAD_PID), HEADER + line(1).rstrip())
    os.utime(site.logs / name(pid=DEAD_PID), (site.clock.time(), site.clock.time()))
    assert site.settle(1) == []  # just written: more may be on its way to the disk
    assert site.settle(10) == [1]
    assert site.settle(10) == []


def test_records_count_once_though_they_stand_in_three_files(site: Site) -> None:
    for severity in ("INFO", "WARNING", "ERROR"):
        site.append(
            name(severity), HEADER + line(1, "E") + line(2, "W") * (severity != "ERROR") + dull(severity == "INFO")
        )
    site.settle()
    total = sum((reading.records for reading in site.readings), start=type(site.readings[0].records)())
    assert total == {"E": 1, "W": 1, "I": 1}
    assert len({file_match.match.key for file_match in site.matches}) == 2


def test_a_wall_clock_that_jumps_delays_and_loses_nothing(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    for number, jump in ((1, -1e6), (2, 2e9), (3, -1.9e9)):
        site.clock.wall += jump
        assert site.settle() == [number]
        site.append(name(), line(number + 1))
    assert site.settle() == [4]


def test_old_files_are_read_in_the_order_in_which_they_were_begun(site: Site) -> None:
    days = [17, 3, 29, 11, 5, 23]
    for day in days:
        site.append(
            name("ERROR" if day % 2 else "INFO", started=f"202609{day:02d}-000000"), HEADER + line(day) + dull(1)
        )
    assert site.settle() == sorted(days)


def test_status_shows_what_was_read_and_when_it_was_written(site: Site) -> None:
    path = site.append(name(), HEADER)
    site.settle()
    (known,) = site.follower.files()
    assert (known.path, known.size_bytes, known.read_bytes) == (str(path), len(HEADER), len(HEADER))
    assert known.last_written == pytest.approx(path.stat().st_mtime)
