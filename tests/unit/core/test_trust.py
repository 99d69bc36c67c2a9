"""Who else can change a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpuwatch.core import other_author, who_may_change

STRANGER = 4711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    directory = tmp_path / "etc"
    directory.mkdir()
    (directory / "file").touch()
    return directory / "file"


def test_ones_own_file_is_trusted(file: Path) -> None:
    assert other_author(file) == ""
    assert other_author(file.parent / "none") == ""


@pytest.mark.parametrize("mode", [0o666, 0o1666, 0o602])
def test_a_file_that_all_may_write_is_named(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert other_author(file) == f"{file} can be changed by everybody"


def test_a_directory_above_counts_unless_it_is_sticky(file: Path) -> None:
    file.parent.chmod(0o777)
    assert other_author(file) == f"{file.parent} can be changed by everybody"
    file.parent.chmod(0o1777)
    assert other_author(file) == ""
    assert who_may_change(file.parent, {os.geteuid()}, adding=True) == "everybody"


@needs_root
def test_a_file_of_another_user_is_named(file: Path) -> None:
    os.chown(file, STRANGER, -1)
    assert other_author(file) == f"{file} can be changed by user {STRANGER}"
    assert other_author(file, {0, STRANGER}) == ""


def test_what_a_link_leads_to_counts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("etc/file")
    assert other_author(tmp_path / "first") == ""
    file.parent.chmod(0o777)
    assert other_author(tmp_path / "first") == f"{tmp_path}/etc can be changed by everybody"


@needs_root
def test_a_link_of_another_user_counts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    os.lchown(tmp_path / "link", STRANGER, STRANGER)
    assert other_author(tmp_path / "link") == f"{tmp_path}/link can be changed by user {STRANGER}"


def test_links_without_end_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("../" + tmp_path.name + "/a/../a")
    assert other_author(tmp_path / "a") == ""


@needs_root
def test_a_group_counts_where_it_has_members(file: Path) -> None:
    os.chown(file, -1, STRANGER)
    file.chmod(0o664)
    asked = []

    def has_members(group: int, trusted: object) -> bool:
        asked.append((group, trusted))
        return len(asked) > 1

    assert who_may_change(file, (0,), has_members=has_members) == ""
    assert who_may_change(file, (0,), has_members=has_members) == f"group {STRANGER}"
    assert asked == [(STRANGER, (0,))] * 2


@needs_root
def test_what_this_user_may_not_look_at_has_no_other_author(file: Path) -> None:
    file.parent.chmod(0)
    child = os.fork()
    if not child:
        try:
            os.setuid(STRANGER)
            os._exit(other_author(file, (0,)) != "")
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_device_has_no_content_to_change() -> None:
    assert other_author(Path(os.devnull)) == ""
