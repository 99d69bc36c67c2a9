"""Jobs' output that is copied, rotated and written again: each failure counts once, and each of another run too."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.logs.sites import DEAD_PID, Site, numbers
from tpuwatch.logs.tail import copies, follow
from tpuwatch.logs.tail.copies import Copies
from tpuwatch.logs.tail.followed_file import FollowedFile
from tpuwatch.logs.tail.job_glob import JobGlob
from tpuwatch.logs.tail.sources import Discovery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.logs.tail.files import Found
    from tpuwatch.logs.tail.followed_file import FileMatch
    from tpuwatch.model.events import Cursor

BANNER = "python train.py --steps 1000\n" * 10


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "tpu_logs" / "*.log*")]})
    yield site
    site.follower.close()


@pytest.fixture(params=[False, True], ids=["followed", "restarted"])
def restarts(request: pytest.FixtureRequest) -> bool:
    """Whether the follower is started again between two steps."""
    return bool(request.param)


def failures(*numbers: int) -> str:
    return "".join(f"step {number}\nTESTEVENT {number}\n" for number in numbers)


def step(site: Site, *, restart: bool = False) -> None:
    """Let the follower see what was done."""
    if restart:
        site.restart()
    site.settle()


def counted(site: Site) -> list[int]:
    """The events as a store counts them: each key once."""
    first = {file_match.match.key: file_match for file_match in reversed(site.matches)}
    return sorted(numbers(list(first.values())))


@pytest.mark.parametrize("copy", ["job.log.1", "job.log-20261122", "a.log"])
def test_copytruncate_counts_once_what_was_read_and_the_unread_tail(jobs: Site, restarts: bool, copy: str) -> None:
    log = jobs.append("job.log", BANNER + failures(*range(10)))
    step(jobs)
    jobs.append("job.log", failures(*range(10, 15)))
    shutil.copyfile(log, log.with_name(copy))
    os.truncate(log, 0)
    step(jobs, restart=restarts)
    jobs.append("job.log", failures(*range(15, 20)))
    step(jobs, restart=restarts)
    jobs.append("job.log", failures(20))
    step(jobs)
    assert counted(jobs) == list(range(21))


@pytest.mark.parametrize("name", ["run-{}.log", "worker{}-of-8.log", "{}/out.log"])
def test_runs_and_workers_that_print_the_same_are_each_read(tmp_path: Path, restarts: bool, name: str) -> None:
    logs = tmp_path / "tpu_logs"
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(logs / "*.log"), str(logs / "*/*.log")]})
    for number in range(4):
        path = logs / name.format(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(BANNER)
        if number % 2:  # half of them are found while they are written
            step(site, restart=restarts)
        with path.open("a") as file:
            file.write(failures(7))
        step(site, restart=restarts)
    assert counted(site) == [7] * 4
    site.follower.close()


def test_copytruncate_again_and_again_with_numbered_copies(jobs: Site, restarts: bool) -> None:
    log = jobs.logs / "job.log"
    for day in range(5):
        jobs.append("job.log", BANNER + failures(2 * day))
        step(jobs, restart=restarts)
        jobs.append("job.log", failures(2 * day + 1))
        for number in range(day, 0, -1):
            log.with_name(f"job.log.{number}").rename(log.with_name(f"job.log.{number + 1}"))
        shutil.copyfile(log, log.with_name("job.log.1"))
        os.truncate(log, 0)
        step(jobs, restart=restarts)
    assert counted(jobs) == list(range(10))


def test_a_copytruncate_is_stored_whole_in_one_poll(jobs: Site) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    shutil.copyfile(log, jobs.logs / "job.log.1")
    os.truncate(log, 0)
    jobs.poll()
    jobs.restart()  # killed right after it
    step(jobs)
    assert counted(jobs) == [1]


@pytest.mark.parametrize("former", ["job.log.7", "job.log.1"])
def test_a_copy_that_has_the_inode_of_a_deleted_file(jobs: Site, former: str) -> None:
    log = jobs.append("job.log", BANNER + failures(*range(10)))
    other = jobs.append(former, "another " + BANNER + failures(10))
    step(jobs)
    gone = jobs.cursors.pop((other.stat().st_dev, other.stat().st_ino))
    other.unlink()
    entry = shutil.copyfile(log, log.with_name("job.log.1")).stat()
    os.truncate(log, 0)
    jobs.cursors[entry.st_dev, entry.st_ino] = replace(gone, device=entry.st_dev, inode=entry.st_ino)
    jobs.restart()
    jobs.append("job.log", failures(11))
    step(jobs)
    assert counted(jobs) == list(range(12))
    assert jobs.follower.counters.truncations == 1 + (former == "job.log.1")


def test_a_copy_that_is_compared_when_the_original_is_truncated_already(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = jobs.append("job.log", BANNER + failures(*range(10)))
    step(jobs)
    shutil.copyfile(log, log.with_name("job.log.1"))
    find = Copies.find

    def late(known: Copies, *args: Any) -> Cursor | None:
        os.truncate(log, 0)
        return find(known, *args)

    monkeypatch.setattr(Copies, "find", late)
    jobs.stir()
    step(jobs)
    monkeypatch.undo()
    jobs.append("job.log", failures(10))
    step(jobs)
    assert counted(jobs) == list(range(11))


def test_a_kill_before_the_copy_of_a_truncated_file_is_opened(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = jobs.append("job.log", BANNER + failures(*range(10)))
    step(jobs)
    monkeypatch.setattr(follow, "MAX_OPENINGS", 1)  # of very many files few are opened in one poll
    jobs.append("job.log", failures(10))
    copy = shutil.copyfile(log, log.with_name("job.log.1"))
    os.utime(copy, (1, 1))  # those that were written lately are opened first
    os.truncate(log, 0)
    jobs.append("job.log", failures(11))
    for _ in range(3):
        jobs.restart()
        jobs.poll()
    step(jobs)
    assert counted(jobs) == list(range(12))


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("polls", range(1, 9))
def test_a_kill_while_there_are_more_files_than_may_be_open(
    jobs: Site, polls: int, monkeypatch: pytest.MonkeyPatch, *, copied: bool
) -> None:
    log = jobs.append("job.log", BANNER + failures(0))
    for other in range(1, 6):
        os.utime(jobs.append(f"other{other}.log", failures(other)), (1, 1))
    step(jobs)
    find = JobGlob.find
    monkeypatch.setattr(JobGlob, "find", lambda glob: dict(sorted(find(glob).items())))
    monkeypatch.setattr(follow, "MAX_OPEN", 2)
    monkeypatch.setattr(follow, "MAX_OPENINGS", 1)
    if copied:
        os.utime(shutil.copyfile(log, jobs.logs / "z.log"), (1, 1))  # is opened last
    os.truncate(log, 0)
    jobs.append("job.log", "again " + BANNER + failures(6))
    for _ in range(2):
        jobs.restart()
        for _ in range(polls):
            jobs.poll()
            jobs.clock.advance(0.1)
    step(jobs)
    assert counted(jobs) == list(range(7))


def test_a_truncated_output_does_not_wait_for_files_of_libtpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old"
    old.mkdir()
    site = Site(tmp_path, options={"log_dirs": [str(old)], "job_globs": [str(tmp_path / "tpu_logs" / "*.log*")]})
    log = site.append("job.log", BANNER + failures(0))
    step(site)
    for number in range(50):
        (old / f"tpu_driver.t1v.me.log.INFO.20260101-1200{number:02d}.{DEAD_PID}").write_text("old\n")
    monkeypatch.setattr(follow, "MAX_OPENINGS", 1)
    os.truncate(log, 0)
    site.append("job.log", "again " + BANNER + failures(1))
    site.restart()
    for _ in range(8):
        site.poll()
        site.clock.advance(0.2)
    assert site.follower._closed.waiting > 30
    assert counted(site) == [0, 1]
    site.follower.close()


@pytest.mark.parametrize("polls", range(1, 5))
def test_a_kill_before_a_glob_may_be_searched_again_for_the_copy(
    jobs: Site, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = JobGlob.find

    def slow(glob: JobGlob) -> Found:
        jobs.clock.advance(0.02)
        return find(glob)

    log = jobs.append("job.log", BANNER + failures(0))
    monkeypatch.setattr(JobGlob, "find", slow)
    step(jobs)
    jobs.clock.advance(2.0)
    jobs.poll()  # searches
    shutil.copyfile(log, jobs.logs / "job.log.1")
    os.truncate(log, 0)
    jobs.append("job.log", failures(1))
    for _ in range(polls):
        jobs.stir()
        jobs.poll()
        jobs.clock.advance(0.05)
    step(jobs, restart=True)
    assert counted(jobs) == [0, 1]


def test_a_truncated_file_is_not_polled_without_a_pause_while_its_copy_is_searched(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = jobs.append("job.log", BANNER + failures(0))
    step(jobs)
    with monkeypatch.context() as patch:
        patch.setattr(Discovery, "has_seen", lambda *_: False)
        os.truncate(log, 0)
        jobs.append("job.log", failures(1))
        jobs.clock.advance(1.0)
        assert jobs.poll().due_in > 0
    step(jobs)
    assert counted(jobs) == [0, 1]


@pytest.mark.parametrize("polls", range(1, 5))
def test_a_kill_after_a_file_was_truncated_and_renamed(jobs: Site, polls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = jobs.append("job.log", BANNER + failures(0))
    step(jobs)
    monkeypatch.setattr(follow, "MAX_OPENINGS", 1)
    os.utime(shutil.copyfile(log, jobs.logs / "job.log.2"), (1, 1))  # is opened last
    os.truncate(log, 0)
    log.rename(jobs.logs / "job.log.1")
    jobs.append("job.log.1", "again " + BANNER + failures(1))
    jobs.restart()
    for _ in range(polls):
        jobs.poll()
        jobs.clock.advance(0.1)
    step(jobs, restart=True)
    assert counted(jobs) == [0, 1]


def test_a_copy_of_one_of_very_many_files(jobs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = jobs.append("job.log", BANNER + failures(0))
    step(jobs)
    for other in range(1, 4):
        jobs.append(f"other{other}.log", f"job {other} " + BANNER + failures(other))
    step(jobs)
    monkeypatch.setattr(copies, "_MAX_HEADS", 2)
    os.utime(
        shutil.copyfile(log, log.with_name("job.log.1")), (1, 1)
    )  # those that were written lately are opened first
    os.truncate(log, 0)
    jobs.append("job.log", failures(4))
    step(jobs, restart=True)
    assert counted(jobs) == list(range(5))


def test_a_kill_right_after_a_truncation_between_reading_and_storing(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    jobs.append("job.log", failures(2))
    shutil.copyfile(log, jobs.logs / "job.log.1")
    with monkeypatch.context() as patch:
        patch.setattr(FollowedFile, "finish_quiet", lambda _log, _seconds: os.truncate(log, 0))
        jobs.clock.advance(0.1)
        jobs.poll()
    step(jobs, restart=True)
    assert counted(jobs) == [1, 2]


def test_a_new_file_that_is_truncated_in_the_poll_that_reads_it_first(
    jobs: Site, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    with monkeypatch.context() as patch:
        patch.setattr(FollowedFile, "finish_quiet", lambda _log, _seconds: os.truncate(log, 0))
        jobs.poll()
    jobs.append("job.log.1", BANNER + failures(1, 2))
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 2]


def test_half_a_line_that_was_read_before_a_truncation_is_not_counted_beside_its_copy(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = jobs.append("job.log", BANNER + failures(12345))
    monkeypatch.setattr(follow, "MAX_FILE_BYTES", log.stat().st_size - 3)
    jobs.poll()
    shutil.copyfile(log, jobs.logs / "job.log.1")
    os.truncate(log, 0)
    step(jobs)
    assert counted(jobs) == [12345]


@pytest.mark.parametrize("rest", ["45\n", ""], ids=["whole", "half"])
def test_half_a_line_that_is_whole_in_the_copy_alone(jobs: Site, rest: str) -> None:
    log = jobs.append("job.log", BANNER + failures(1) + "TESTEVENT 123")
    step(jobs)
    jobs.append("job.log", rest)
    shutil.copyfile(log, jobs.logs / "job.log.1")
    os.truncate(log, 0)
    step(jobs)
    jobs.append("job.log.1", "\n")
    step(jobs)
    assert counted(jobs) == [1, int(f"123{rest}")]


@pytest.mark.parametrize("copied", [True, False])
def test_half_a_line_that_stands_in_no_copy(jobs: Site, *, copied: bool) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    if copied:
        shutil.copyfile(log, jobs.logs / "job.log.1")
    jobs.append("job.log", "TESTEVENT 2")
    jobs.poll()
    os.truncate(log, 0)
    step(jobs)
    jobs.append("job.log", "TESTEVENT 3")
    step(jobs)
    os.truncate(log, 0)
    jobs.append("job.log", failures(4))
    step(jobs)
    assert counted(jobs) == [1, 2, 3, 4]


def test_a_copy_that_ends_before_what_was_read_of_the_truncated_file(jobs: Site) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    text = log.read_bytes()
    jobs.append("job.log", failures(2))
    step(jobs)  # between the copy's last byte and the truncation
    os.truncate(log, 0)
    jobs.append("job.log.1", text)
    step(jobs)
    assert counted(jobs) == [1, 2]


@pytest.mark.parametrize("more", [(), (3, 4)], ids=["complete", "shorter"])
def test_a_copy_beside_the_original_counts_nothing_again(jobs: Site, restarts: bool, more: tuple[int, ...]) -> None:
    log = jobs.append("job.log", BANNER + failures(1, 2))
    step(jobs)
    text = log.read_bytes()
    jobs.append("job.log", failures(*more))
    step(jobs)
    jobs.append("job-old.log", text)
    step(jobs, restart=restarts and not more)
    jobs.append("job.log", failures(5))
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 2, *more, 5]


def test_a_copy_that_is_seen_while_it_is_made(jobs: Site, restarts: bool) -> None:
    log = jobs.append("job.log", BANNER + failures(1, 2))
    step(jobs)
    text = log.read_bytes()
    jobs.append("job-old.log", "")
    step(jobs)
    jobs.append("job-old.log", text[:300])
    step(jobs, restart=restarts)
    jobs.append("job-old.log", text[300:])
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 2]


def test_a_kill_after_a_copy_was_complete_in_the_poll_that_had_checked_it(
    jobs: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = jobs.append("job.log", BANNER + failures(1, 2))
    step(jobs)
    text = log.read_bytes()
    copy = jobs.append("job.log.1", "")
    os.utime(log, (1, 1))  # so that the copy is opened first, and checked first
    step(jobs, restart=True)
    check = FollowedFile.check

    def late(file: FollowedFile) -> list[FileMatch]:
        if file.file.path == str(log) and not copy.stat().st_size:
            copy.write_bytes(text)
            os.truncate(log, 0)
            jobs.append("job.log", failures(3))
        return check(file)

    with monkeypatch.context() as patch:
        patch.setattr(FollowedFile, "check", late)
        jobs.clock.advance(1.0)
        jobs.poll()
    step(jobs, restart=True)
    assert counted(jobs) == [1, 2, 3]


def test_a_copy_of_the_last_run_though_the_next_one_has_begun_alike(jobs: Site, restarts: bool) -> None:
    log = jobs.append("job.log", BANNER + failures(1, 2))
    step(jobs)
    shutil.copyfile(log, jobs.logs / "job-old.log")
    log.write_text(BANNER)
    step(jobs, restart=restarts)
    jobs.append("job.log", failures(1, 2))
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 1, 2, 2]


def test_a_file_and_its_copy_that_are_found_together(jobs: Site) -> None:
    log = jobs.append("job.log", BANNER + failures(1, 2))
    shutil.copyfile(log, jobs.logs / "job-old.log")
    step(jobs)
    assert counted(jobs) == [1, 2]


def test_a_file_that_is_moved_from_another_file_system(jobs: Site, restarts: bool) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    jobs.append("job.log", failures(2))
    shutil.copyfile(log, jobs.logs / "moved.log")
    log.unlink()
    step(jobs, restart=restarts)
    jobs.append("moved.log", failures(3))
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 2, 3]


def test_rename_and_create_counts_the_tail_and_the_new_file_once(jobs: Site, restarts: bool) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    jobs.append("job.log", failures(2))
    log.rename(jobs.logs / "job.log.1")
    jobs.append("job.log", BANNER + failures(3))
    jobs.append("job.log.1", failures(4))  # its writer keeps the descriptor
    step(jobs, restart=restarts)
    assert counted(jobs) == [1, 2, 3, 4]


def test_two_outputs_that_begin_alike_are_two(jobs: Site) -> None:
    jobs.append("rank-0.log", BANNER)
    step(jobs)
    jobs.append("rank-1.log", BANNER)
    step(jobs)
    jobs.append("rank-0.log", failures(1))
    jobs.append("rank-1.log", failures(2))
    step(jobs)
    assert counted(jobs) == [1, 2]


def test_a_run_whose_output_differs_in_the_middle_alone_is_another(jobs: Site) -> None:
    for run in ("run-1.log", "run-2.log"):
        jobs.append(run, BANNER + f"took 0.{run[4]}234 s\n" + "step\n" * 200 + failures(1))
        step(jobs)
    assert counted(jobs) == [1, 1]


def test_a_job_that_fails_alike_into_a_new_file_of_the_same_name_fails_again(jobs: Site) -> None:
    log = jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    log.rename(jobs.logs / "job.log.1")
    jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    (jobs.logs / "job.log").unlink()
    step(jobs)
    jobs.append("job.log", BANNER + failures(1))
    step(jobs)
    assert counted(jobs) == [1, 1, 1]
