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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
class TestLinksOfUsers:
    """Homes of two users, of which one has a log that nobody else may read."""

    ALICE, MALLORY = 4001, 4002

    @pytest.fixture
    def homes(self, tmp_path: Path) -> Path:
        homes = tmp_path / "home"
        for user in ("alice", "mallory"):
            (homes / user).mkdir(parents=True)
        private = homes / "alice" / "private"
        private.mkdir(mode=0o700)
        (private / "job.log").write_text(line(1))
        (private / "job.log").chmod(0o600)
        self.give(self.ALICE, homes / "alice", private, private / "job.log")
        self.give(self.MALLORY, homes / "mallory")
        return homes

    def give(self, user: int, *paths: Path) -> None:
        for path in paths:
            os.lchown(path, user, user)

    def read(self, tmp_path: Path, **options: list[str]) -> tuple[list[int], list[tuple[str, Refusal]]]:
        """The numbers of the lines that are read, and what is refused."""
        site = Site(tmp_path, options={"log_dirs": [], "job_globs": [], **options})
        try:
            return site.settle(), site.follower.problems()
        finally:
            site.follower.close()

    def test_a_glob_follows_no_link_to_what_belongs_to_another_user(self, homes: Path, tmp_path: Path) -> None:
        link = homes / "mallory" / "logs"
        link.symlink_to(homes / "alice" / "private")
        self.give(self.MALLORY, link)
        pattern = str(homes / "*" / "logs" / "*.log")
        assert self.read(tmp_path, job_globs=[pattern]) == ([], [(str(link), Refusal.LINK)])

    def test_nor_does_the_fixed_part_of_a_glob(self, homes: Path, tmp_path: Path) -> None:
        link = homes / "mallory" / "logs"
        link.symlink_to(homes / "alice" / "private")
        self.give(self.MALLORY, link)
        refused = [(str(link), Refusal.DIRECTORY_LINK)]
        assert self.read(tmp_path, job_globs=[str(link / "*.log")]) == ([], refused)

    @pytest.mark.parametrize("owner", [ALICE, MALLORY])
    def test_nor_does_a_link_by_a_link_or_above_a_watched_directory(
        self, homes: Path, tmp_path: Path, owner: int
    ) -> None:
        logs = homes / "alice" / "private" / "tpu_logs"
        logs.mkdir()
        (logs / name()).write_text(HEADER + line(2))
        first, second = homes / "mallory" / "first", homes / "mallory" / "second"
        first.symlink_to("second")
        second.symlink_to("../alice/private")
        self.give(owner, logs, first)
        self.give(self.MALLORY, second)
        path = str(first / "tpu_logs")
        assert self.read(tmp_path, log_dirs=[path]) == ([], [(path, Refusal.DIRECTORY_LINK)])

    def test_a_link_beside_another_users_file_does_not_lead_to_it(self, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        (shared / "private.txt").write_text(line(1))
        (shared / "own.txt").write_text(line(2))
        for link, target in (("a.log", "private.txt"), ("b.log", "own.txt")):
            (shared / link).symlink_to(target)
            self.give(self.MALLORY, shared / link)
        self.give(self.ALICE, shared / "private.txt")
        self.give(self.MALLORY, shared / "own.txt")
        pattern = str(shared / "*.log")
        assert self.read(tmp_path, job_globs=[pattern]) == ([2], [(str(shared / "a.log"), Refusal.LINK)])

    @pytest.mark.parametrize("owner", [0, ALICE])
    def test_links_of_root_and_to_what_is_ones_own_are_followed(self, homes: Path, tmp_path: Path, owner: int) -> None:
        link = homes / "alice" / "logs"
        link.symlink_to("private")
        self.give(owner, link)
        assert self.read(tmp_path, job_globs=[str(homes / "*" / "logs" / "*.log")]) == ([1], [])
