"""What happens to directories under a follower: absence, deletion, replacement, permissions, jobs' globs."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import HEADER, NOBODY, Site, line, name
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.logs.tail.followed_file import DELETED_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as the user nobody where the tests run as root, for whom there is no permission to lack."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_absent_at_the_start_is_found_when_it_comes(tmp_path: Path) -> None:
    site = Site(tmp_path, first_run=True)
    shutil.rmtree(site.logs)
    site.start()
    assert site.settle() == []
    site.logs.mkdir()
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    assert not site.matches[0].history  # it was not there before we were
    site.follower.close()


def test_a_directory_below_something_that_is_no_directory_is_a_problem_until_it_is_fixed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    shutil.rmtree(site.logs)
    site.logs.write_text("")
    site.start()
    assert site.settle() == []
    assert site.follower.problems() == [(str(site.logs), Refusal.UNREADABLE)]
    site.logs.unlink()
    site.logs.mkdir()
    site.append(name(), line(1))
    assert site.settle() == [1]
    assert site.follower.problems() == []
    site.follower.close()


def test_a_directory_deleted_under_its_files_loses_no_unread_tail_and_may_come_back(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2))
    shutil.rmtree(site.logs)
    assert site.settle() == [2]
    assert list(site.follower.files()) == []
    site.logs.mkdir()
    site.append(name(pid=2), HEADER + line(3))
    assert site.settle() == [3]


def test_a_parent_replaced_and_put_back_reads_nothing_twice(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    site = Site(parent)
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.append(name(), line(2))
    parent.rename(tmp_path / "old")
    site.logs.mkdir(parents=True)
    site.append(name(pid=2), HEADER + line(3))
    assert sorted(site.settle()) == [2, 3]
    shutil.rmtree(parent)
    (tmp_path / "old").rename(parent)
    site.append(name(), line(4))
    assert site.settle() == [4]
    site.follower.close()


def test_a_file_without_permission_is_a_problem_until_it_is_granted(public_path: Path) -> None:
    site = Site(public_path)
    path = site.append(name(), HEADER + line(1))
    path.chmod(0)
    with unprivileged():
        assert site.settle() == []
        assert site.settle() == []
        assert site.follower.problems() == [(str(path), Refusal.PERMISSION)]
        assert site.follower.counters.refusals == {Refusal.PERMISSION: 1}  # counted when it happens, not at each try
    path.chmod(0o644)
    with unprivileged():
        assert site.settle() == [1]
        assert site.follower.problems() == []
    site.follower.close()


def test_a_directory_without_permission_is_a_problem_until_it_is_granted(public_path: Path) -> None:
    site = Site(public_path, first_run=True)
    site.append(name(), HEADER + line(1))
    site.logs.chmod(0)
    with unprivileged():
        assert site.settle() == []
        assert site.follower.problems() == [(str(site.logs), Refusal.PERMISSION)]
        assert site.follower.counters.refusals == {Refusal.PERMISSION: 1}
    site.logs.chmod(0o755)
    with unprivileged():
        assert site.settle() == [1]
    assert site.matches[0].history  # it was there before we could see it
    site.follower.close()


def test_a_directory_that_closes_while_a_file_is_open_goes_on(public_path: Path) -> None:
    site = Site(public_path)
    path = site.append(name(), HEADER + line(1))
    with unprivileged():
        assert site.settle() == [1]
    with path.open("a") as stream:
        site.logs.chmod(0)
        stream.write(line(2))
    with unprivileged():
        assert site.settle() == [2]
    site.logs.chmod(0o755)
    with path.open("a") as stream:
        stream.write(line(3))
    with unprivileged():
        assert site.settle() == [3]
    site.follower.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_that_another_user_owns_is_read(site: Site) -> None:
    path = site.append(name(), HEADER + line(1))
    os.chown(path, NOBODY, NOBODY)
    assert site.settle() == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_watched_directory_that_is_another_users_link_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.append(name(), HEADER + line(1))
    link = tmp_path / "link"
    link.symlink_to(site.logs)
    site.options = {"log_dirs": [str(link)]}
    os.lchown(link, NOBODY, NOBODY)
    site.restart()
    assert site.settle() == []
    assert site.follower.problems() == [(str(link), Refusal.DIRECTORY_LINK)]
    os.lchown(link, 0, 0)
    assert site.settle() == [1]
    site.follower.close()


def test_in_a_shared_directory_other_files_are_left_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.logs.tail.sources._SHARED_DIRECTORY", str(site.logs))
    site.restart()
    site.append("tpu_driver.notes", line(1))
    site.append(name(), line(2))
    assert site.settle() == [2]


def test_a_file_of_a_job_comes_by_a_glob(tmp_path: Path) -> None:
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "tpu_logs" / "*.out")]})
    site.append("a.out", line(1))
    site.append("a.err", line(2))
    assert site.settle() == [1]
    site.append("b.out", line(3))
    assert site.settle() == [3]
    (site.logs / "c.out").symlink_to("b.out")  # the same file by another name
    site.append("b.out", line(4))
    assert site.settle() == [4]
    site.follower.close()


def test_a_glob_that_begins_nowhere_finds_what_comes_later(tmp_path: Path) -> None:
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "jobs" / "*" / "out.log")]})
    assert site.settle() == []
    (tmp_path / "jobs" / "7").mkdir(parents=True)
    (tmp_path / "jobs" / "7" / "out.log").write_text(line(1))
    assert site.settle() == [1]
    shutil.rmtree(tmp_path / "jobs")
    assert site.settle(DELETED_SECONDS) == []
    assert list(site.follower.files()) == []
    site.follower.close()


def test_a_glob_does_not_lead_out_of_its_fixed_part(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.log").write_text(line(1))
    (outside / "other.log").write_text(line(3))
    site = Site(tmp_path, options={"log_dirs": [], "job_globs": [str(tmp_path / "tpu_logs" / "*" / "*.log")]})
    (site.logs / "job").symlink_to(outside)
    (site.logs / "here").mkdir()
    (site.logs / "here" / "link.log").symlink_to(outside / "other.log")
    (site.logs / "here" / "own.log").write_text(line(2))
    assert site.settle() == [2]
    assert sorted(site.follower.problems()) == [
        (str(site.logs / "here" / "link.log"), Refusal.LINK),
        (str(site.logs / "job" / "secret.log"), Refusal.OUTSIDE),
    ]
    site.follower.close()
