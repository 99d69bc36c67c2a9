"""What cannot be read any more is counted, and what can be is followed though it has no watched name."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import Site
from tpuwatch.logs.tail import follow
from tpuwatch.logs.tail.followed_file import DELETED_SECONDS, GONE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BANNER = "python train.py --steps 1000\n" * 10


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "tpu_logs" / "*.log")]})
    yield site
    site.follower.close()


@pytest.fixture
def partly_read(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A file of which all but the last 100 bytes are read."""
    text = BANNER + "TESTEVENT 1\n" + "." * 99 + "\n"
    monkeypatch.setattr(follow, "MAX_FILE_BYTES", len(text) - 100)
    jobs.append("job.log", text)
    jobs.poll()
    assert jobs.follower.lag_bytes == 100
    return jobs


def lost(site: Site) -> int:
    """Bytes counted as lost once nothing more can come of it."""
    site.settle(10)
    site.settle(10)
    return site.follower.counters.lost_bytes


def test_what_was_not_read_of_a_truncated_file_is_lost(partly_read: Site) -> None:
    os.truncate(partly_read.logs / "job.log", 0)
    assert lost(partly_read) == 100
    loss = partly_read.follower.counters.last_loss
    assert loss is not None
    assert (loss.path, loss.size) == (str(partly_read.logs / "job.log"), 100)


def test_what_was_not_read_of_a_truncated_file_is_read_from_its_copy(partly_read: Site) -> None:
    shutil.copyfile(partly_read.logs / "job.log", partly_read.logs / "job-20261122.log")
    os.truncate(partly_read.logs / "job.log", 0)
    assert lost(partly_read) == 0
    assert partly_read.follower.lag_bytes == 0


def test_nothing_is_lost_of_an_open_file_that_is_renamed_or_deleted(partly_read: Site) -> None:
    (partly_read.logs / "job.log").rename(partly_read.logs / "job.log.1")
    assert lost(partly_read) == 0
    (partly_read.logs / "job.log.1").unlink()
    assert lost(partly_read) == 0


@pytest.mark.parametrize("moved", [True, False])
def test_a_file_that_waits_to_be_opened_when_its_name_goes_is_lost(
    jobs: Site, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    monkeypatch.setattr(follow, "MAX_OPENINGS", 1)
    for rank in range(3):
        jobs.append(f"rank-{rank}.log", f"rank {rank}\n")
    jobs.poll()
    waiting = [one.path for one in jobs.follower.files() if one.lag_bytes]
    for number, path in enumerate(waiting):
        os.rename(path, jobs.logs / f"{number}{'.old' if moved else '.log'}")  # noqa: PTH104 - a str
    assert len(waiting) == 2
    assert lost(jobs) == (2 * len("rank 0\n") if moved else 0)


def test_a_file_that_waits_and_is_moved_away_for_a_moment_is_not_lost(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_OPENINGS", 0)
    log = jobs.append("job.log", BANNER + "TESTEVENT 1\n")
    jobs.poll()
    away = log.rename(jobs.root / "away")
    jobs.clock.advance(1)
    jobs.poll()
    away.rename(log)
    monkeypatch.setattr(follow, "MAX_OPENINGS", 64)
    assert jobs.settle() == [1]
    assert lost(jobs) == 0


def test_logrotates_create_under_a_writer_that_keeps_its_descriptor(jobs: Site) -> None:
    log = jobs.logs / "job.log"
    with log.open("w") as writer:
        for number in range(900):
            writer.write(f"TESTEVENT {number}\n")
            writer.flush()
            if number == 450:
                log.rename(jobs.logs / "job.log.1")  # the glob does not match it
                log.touch()
            if number % 50 == 0:
                jobs.settle(300)
    jobs.settle()
    assert sorted(file_match.match.details["number_count"] for file_match in jobs.matches) == list(range(900))
    jobs.settle(GONE_SECONDS)
    assert [one.path for one in jobs.follower.files()] == [str(log)]
    assert lost(jobs) == 0


def test_a_deleted_output_is_followed_until_it_is_quiet(jobs: Site) -> None:
    log = jobs.logs / "job.log"
    with log.open("w") as writer:
        print("TESTEVENT 1", file=writer, flush=True)
        assert jobs.settle() == [1]
        log.unlink()
        assert jobs.settle(DELETED_SECONDS / 2) == []
        print("TESTEVENT 2", file=writer, flush=True)
        assert jobs.settle() == [2]
        jobs.settle(DELETED_SECONDS)
        assert list(jobs.follower.files()) == []


def test_files_without_a_name_make_room_for_others(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_OPEN", 2)
    for number in range(6):
        log = jobs.append("job.log", f"TESTEVENT {number}\n")
        assert jobs.settle() == [number]
        log.rename(jobs.logs / f"job.log.{number}")
        jobs.settle()
    assert len(jobs.follower._open) == 2
