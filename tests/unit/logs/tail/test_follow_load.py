"""Fair turns and bounded costs: large files, many files, many events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import HEADER, SLOW, Site, dull, line, name, numbers, parse_slowly
from tpuwatch.logs.tail import closed_files, follow, followed_file
from tpuwatch.logs.tail.files import Refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_a_poll_reads_a_bounded_part_of_a_file_and_asks_for_more(site: Site) -> None:
    site.append(name(), dull(1) * 400_000)
    size = site.follower.poll().bytes_read
    assert size == follow.MAX_FILE_BYTES
    reading = site.poll()
    assert (reading.bytes_read, reading.more, reading.due_in) == (follow.MAX_FILE_BYTES, True, 0.0)
    site.settle()
    assert site.follower.lag_bytes == 0


def test_a_poll_reads_a_bounded_part_of_all_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_POLL_BYTES", 3 << 20)
    for pid in range(1, 6):
        site.append(name(pid=pid), dull(50_000))
    assert site.poll().bytes_read < (3 << 20) + followed_file.CHUNK_BYTES
    assert site.follower.lag_bytes >= 2 * 50_000


def test_a_small_file_does_not_wait_for_a_large_one(site: Site) -> None:
    site.append(name(pid=1), dull(1) * 400_000)
    site.append(name(pid=2), HEADER + line(1) + line(2) + dull(1))
    reading = site.poll()
    assert reading.more
    assert numbers(reading.matches) == [1, 2]


def test_the_file_read_least_recently_is_read_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_POLL_BYTES", 1)  # one chunk a poll
    for pid in range(1, 5):
        site.append(name(pid=pid), dull(1) * 100_000)
    for _ in range(8):
        site.poll()
    left = [
        status.size_bytes - one.position
        for status, one in zip(site.follower.files(), site.follower._open.values(), strict=True)
    ]
    assert len(set(left)) == 1


STEP_SECONDS = followed_file.MIN_CHUNK_BYTES / SLOW + 0.001  # that a poll may take longer than it should


def test_a_poll_of_a_text_that_is_slow_to_parse_is_bounded_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_slowly(site.clock, monkeypatch)
    count = 2_000
    for pid in range(3):
        site.append(name(pid=pid), "".join(map(line, range(pid * count, (pid + 1) * count))))
    more, before = True, 0
    while more:
        begun = site.clock.monotonic()
        reading = site.poll()
        assert site.clock.monotonic() - begun <= follow.MAX_POLL_SECONDS + STEP_SECONDS
        more, offset = reading.more, sum(cursor.offset for cursor in site.cursors.values())
        assert (reading.late, reading.due_in) == (True, 0.0) or not more
        assert offset > before  # what a store would hold
        before = offset
        if len(site.readings) % 2 == 0:
            site.restart()  # as after a crash: it goes on where it stood
    assert len(site.readings) >= 3 * count * len(line(1)) / SLOW / (follow.MAX_POLL_SECONDS + STEP_SECONDS)
    site.settle()
    assert sorted(numbers(site.matches)) == list(range(3 * count))


def test_a_single_file_that_is_slow_to_parse_takes_several_polls(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_slowly(site.clock, monkeypatch)
    site.append(name(), dull(2_000) + line(1) + dull(1))
    site.poll()
    least = followed_file.MIN_CHUNK_BYTES
    assert [(reading.bytes_read, reading.more) for reading in site.readings] == [(4 * least, True)]
    assert site.settle() == [1]


def test_files_that_are_slow_to_parse_starve_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_slowly(site.clock, monkeypatch)
    for pid in range(4):
        site.append(name(pid=pid), dull(20_000))
    for _ in range(4):
        assert site.poll().late
    read = [status.read_bytes for status in site.follower.files()]
    assert min(read) > 0
    assert max(read) - min(read) <= followed_file.MIN_CHUNK_BYTES
    site.append(name(pid=9), HEADER + line(1) + dull(1))
    for _ in range(3):
        site.clock.advance(0.1)
        site.poll()
    assert numbers(site.matches) == [1]
    assert all(status.lag_bytes for status in site.follower.files() if not status.path.endswith(".9"))


def test_a_poll_reads_something_even_when_checking_took_all_its_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_POLL_SECONDS", 0.0)
    site.append(name(), line(1) + dull(1_000))
    assert site.settle() == [1]


def test_a_poll_returns_a_bounded_number_of_matches(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_MATCHES", 10)
    for pid in range(1, 6):
        site.append(name(pid=pid), "".join(map(line, range(pid * 100, pid * 100 + 20))))
    reading = site.poll()
    assert 10 <= len(reading.matches) < 30
    assert reading.more
    assert len(site.settle()) + len(reading.matches) == 100


@pytest.mark.slow
def test_only_so_many_files_are_open_and_none_is_lost(site: Site) -> None:
    count = 3 * follow.MAX_OPEN
    for pid in range(count):
        site.append(name(pid=pid), HEADER + line(pid))
    assert sorted(site.settle()) == list(range(count))
    assert len(site.follower._open) == follow.MAX_OPEN
    assert len(list(site.follower.files())) == count
    for pid in range(count):
        site.append(name(pid=pid), line(1000 + pid))
    found: list[int] = []
    for _ in range(1 + count // closed_files._CHECKS):
        found += site.settle()
    assert sorted(found) == list(range(1000, 1000 + count))


def test_files_that_were_written_last_stay_open(site: Site) -> None:
    for pid in range(2 * follow.MAX_OPEN):
        path = site.append(name(pid=pid), HEADER)
        age = 1000 - pid if pid < follow.MAX_OPEN else 5000
        os.utime(path, (site.clock.time() - age, site.clock.time() - age))
    site.settle()
    assert {log.file.pid for log in site.follower._open.values()} == set(range(follow.MAX_OPEN))


LIVE = 500
OLD_SECONDS = 86_400.0


def make_old(site: Site, pids: range) -> None:
    """Files that were written long ago."""
    for pid in pids:
        path = site.logs / name(pid=pid)
        path.write_text(HEADER)
        os.utime(path, (site.clock.time() - OLD_SECONDS, site.clock.time() - OLD_SECONDS))
    site.stir()


def test_an_event_in_any_of_many_live_files_among_old_ones_is_seen_at_the_next_look(site: Site) -> None:
    for pid in range(LIVE):
        site.append(name(pid=pid), HEADER)
    make_old(site, range(LIVE, 2 * LIVE))
    site.settle()
    for pid in range(LIVE):
        site.append(name(pid=pid), line(pid) + dull(1))
    assert sorted(site.settle(1.0)) == list(range(LIVE))  # no file system event names them


def test_a_file_that_was_written_lately_is_read_before_old_ones(site: Site) -> None:
    make_old(site, range(4 * follow.MAX_OPENINGS))
    path = site.append(name(started="20270101-000000"), HEADER + line(1) + dull(1))  # the last by its name
    os.utime(path, (site.clock.time(), site.clock.time()))
    assert numbers(site.poll().matches) == [1]
    assert site.follower._closed.waiting > 0


def test_many_old_files_cost_nothing_while_nothing_changes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(1000):
        (site.logs / name(pid=pid)).write_text(HEADER)
    site.stir()
    for _ in range(3):
        site.settle()
    looks: list[object] = []
    stat = os.stat
    monkeypatch.setattr("tpuwatch.logs.tail.sources.os.scandir", lambda _: pytest.fail("the directory is read again"))
    monkeypatch.setattr("tpuwatch.logs.tail.closed_files.os.stat", lambda path: looks.append(path) or stat(path))
    site.poll()  # as after a wake-up
    assert len(looks) <= 1  # of the directory
    site.clock.advance(1.0)
    site.poll()
    assert len(looks) <= closed_files._CHECKS + 2


def test_a_file_that_fails_while_read_is_resumed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("tpuwatch.logs.tail.followed_file.os.pread", broken)
        site.append(name(), line(2))
        assert site.settle() == []
        assert [reason for _, reason in site.follower.problems()] == [Refusal.UNREADABLE]
    assert site.settle() == [2]
    assert site.follower.problems() == []


def test_bad_input_does_no_harm(site: Site) -> None:
    rubbish = bytes(range(256)) * 300 + b"\0" * 70_000 + b"\xff\xfe" + "x".encode("utf-16") * 50
    site.append(name(), HEADER.encode() + rubbish + b"\n" + line(1).encode() + b"\xc3\n" + line(2).encode())
    assert site.settle() == [1, 2]


def test_a_bad_second_name_does_not_hide_a_file(tmp_path: Path) -> None:
    logs = tmp_path / "tpu_logs"
    site = Site(tmp_path, options={"job_globs": [str(tmp_path / "jobs" / "*")]})
    (tmp_path / "jobs").mkdir()
    site.append(name(), HEADER + line(1))
    (tmp_path / "jobs" / "x.log").symlink_to(logs / name())
    assert site.settle() == [1]
    site.append(name(), line(2))
    site.restart()
    assert site.settle() == [2]
    assert [reason for _, reason in site.follower.problems()] == [Refusal.LINK]
    site.follower.close()


def test_the_list_of_problems_is_bounded(site: Site) -> None:
    for pid in range(2 * follow.MAX_PROBLEMS):
        os.mkfifo(site.logs / name(pid=pid))
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    assert len(site.follower.problems()) == follow.MAX_PROBLEMS
    assert site.follower.counters.refusals == {Refusal.NOT_REGULAR: 2 * follow.MAX_PROBLEMS}
