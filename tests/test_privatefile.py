"""Tests of files that the daemon's user and root both write: whose they are, and who may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tpuwatch.privatefile import make_private, open_private

FLAGS = os.O_RDWR | os.O_APPEND


def test_it_is_made_with_its_directory_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "file"
    os.close(open_private(path, FLAGS))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not stat.S_IMODE(path.parent.stat().st_mode) & stat.S_IRWXO


def test_what_is_there_is_opened_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    path.chmod(0o640)
    descriptor = open_private(path, FLAGS)
    os.write(descriptor, b"b")
    os.close(descriptor)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("ab", 0o640)


def test_a_link_is_not_followed_and_nothing_is_made_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        open_private(tmp_path / "link", FLAGS)
    assert not (tmp_path / "victim").exists()


def test_one_is_made_empty_and_one_that_is_there_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    make_private(path)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"", 0o600)
    path.write_text("mine")
    make_private(path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_is_the_directorys_owners_and_what_was_there_stays_whose_it_was(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    os.chown(tmp_path, 4321, 4321)
    for name in ("made", "theirs"):
        os.close(open_private(tmp_path / name, FLAGS))
    make_private(tmp_path / "empty")
    owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()}
    assert owners == {"made": (4321, 4321), "empty": (4321, 4321), "theirs": (0, 0)}
