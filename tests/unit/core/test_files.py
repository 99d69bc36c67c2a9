"""Private files, and shared files that are replaced atomically and read only if nobody else can have written them."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tpuwatch.core import files
from tpuwatch.core.errors import TuneError
from tpuwatch.core.files import create_private, open_private, read_trusted, write_atomic

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_replaced_whole_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.env"
    mask = os.umask(0o077)
    try:
        write_atomic(path, b"old")
        write_atomic(path, b"new")
    finally:
        os.umask(mask)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert names(tmp_path) == ["a.env"]


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.env").symlink_to(tmp_path / target)
    write_atomic(tmp_path / "a.env", b"new")
    assert not (tmp_path / "a.env").is_symlink()
    assert (tmp_path / "victim").read_text() == "mine"
    assert names(tmp_path) == ["a.env", "victim"]


def test_a_link_that_comes_at_the_last_moment_is_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, victim = tmp_path / "a.env", tmp_path / "victim"
    victim.write_text("mine")
    real = os.rename

    def switched(*words: object, **more: object) -> None:
        path.symlink_to(victim)
        real(*words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "rename", switched)
    write_atomic(path, b"new")
    assert (path.is_symlink(), path.read_bytes(), victim.read_text()) == (False, b"new", "mine")


def test_ones_own_link_as_the_directory_is_followed_and_another_users_is_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link" / "a", b"1")
    assert read_trusted(tmp_path / "link" / "a", 10) == b"1"
    if os.geteuid() == 0:
        os.lchown(tmp_path / "link", NOBODY, NOBODY)
        with pytest.raises(TuneError, match="another user's link"):
            write_atomic(tmp_path / "link" / "a", b"2")
        with pytest.raises(TuneError, match="another user's link"):
            read_trusted(tmp_path / "link" / "a", 10)


def test_where_there_is_no_directory_it_says_what_to_make(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="make it first"):
        write_atomic(tmp_path / "none" / "a", b"")
    (tmp_path / "file").write_text("")
    with pytest.raises(TuneError, match="Not a directory"):
        write_atomic(tmp_path / "file" / "a", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TuneError, match="a directory is in its place"):
        write_atomic(tmp_path / "folder", b"")
    assert names(tmp_path) == ["file", "folder"]


@as_root
def test_what_root_writes_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    write_atomic(tmp_path / "a", b"1")
    entry = (tmp_path / "a").stat()
    assert (entry.st_uid, entry.st_gid, stat.S_IMODE(entry.st_mode)) == (NOBODY, NOBODY, 0o644)


def test_a_file_that_may_not_grow_leaves_the_old_one_as_it_was(tmp_path: Path) -> None:
    """In another process: the limit holds for the whole of one."""
    (tmp_path / "a").write_text("old")
    script = f"""
import resource, signal
from pathlib import Path
from tpuwatch.core.errors import TuneError
from tpuwatch.core.files import write_atomic
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path({str(tmp_path / "a")!r}), b"x" * 2000)
except TuneError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"cannot write {tmp_path}/a: File too large; what was there before is untouched\n"
    assert ((tmp_path / "a").read_text(), names(tmp_path)) == ("old", ["a"])
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_a_full_disk_leaves_the_old_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own error: what is written goes to a device that is always full."""
    (tmp_path / "a").write_text("old")
    real = os.write
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(files.os, "write", lambda _, data: real(full.fileno(), data))
        with pytest.raises(TuneError, match=f"{os.strerror(errno.ENOSPC)}; what was there before is untouched"):
            write_atomic(tmp_path / "a", b"new")
    assert ((tmp_path / "a").read_text(), names(tmp_path)) == ("old", ["a"])


def test_a_reader_finds_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, begun, stop = tmp_path / "a", threading.Event(), threading.Event()
    contents = [bytes([65 + number]) * (5000 + number) for number in range(8)]
    write_atomic(path, contents[0])
    seen: set[bytes] = set()

    def read() -> None:
        while not stop.is_set():
            seen.add(read_trusted(path, 10_000) or b"")
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert begun.wait(60)
        for content in contents * 5:
            write_atomic(path, content)
    finally:
        stop.set()
        reader.join()
    assert seen <= set(contents)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_trusted(tmp_path / "a", 10) is None
    assert read_trusted(tmp_path / "b" / "a", 10) is None


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "link":
        (tmp_path / "b").write_text("x")
        path.symlink_to(tmp_path / "b")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(TuneError, match="no regular file"):
        read_trusted(path, 10)


@pytest.mark.parametrize(
    ("file", "directory", "why"),
    [
        (0o666, 0o755, "others can write to it"),
        (0o664, 0o755, "others can write to it"),
        (0o644, 0o777, "others can write to its directory"),
        (0o644, 0o1777, "others can write to its directory"),
        (0o644, 0o775, "others can write to its directory"),
    ],
    ids=lambda value: f"{value:o}" if isinstance(value, int) else "",
)
def test_what_others_could_have_written_is_not_read(tmp_path: Path, file: int, directory: int, why: str) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "a").write_text("x")
    (folder / "a").chmod(file)
    folder.chmod(directory)
    with pytest.raises(TuneError, match=why):
        read_trusted(folder / "a", 10)


@as_root
@pytest.mark.parametrize(
    ("owner", "folder", "read"),
    [(0, NOBODY, True), (NOBODY, NOBODY, True), (NOBODY, 0, False), (1234, NOBODY, False)],
    ids=["root's", "the directory's owner's", "another's in root's", "a third one's"],
)
def test_whose_file_it_is_decides(tmp_path: Path, owner: int, folder: int, *, read: bool) -> None:
    (tmp_path / "a").write_text("x")
    os.chown(tmp_path / "a", owner, owner)
    os.chown(tmp_path, folder, folder)
    if read:
        assert read_trusted(tmp_path / "a", 10) == b"x"
    else:
        with pytest.raises(TuneError, match=f"belongs to user {owner}"):
            read_trusted(tmp_path / "a", 10)


def test_a_file_may_not_be_larger_than_it_has_to_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 11)
    assert read_trusted(tmp_path / "a", 11) == b"x" * 11
    with pytest.raises(TuneError, match="larger than 10 bytes"):
        read_trusted(tmp_path / "a", 10)


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
    create_private(path)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"", 0o600)
    path.write_text("mine")
    create_private(path)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@as_root
def test_what_root_makes_is_the_directorys_owners_and_what_was_there_stays_whose_it_was(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    os.chown(tmp_path, 4321, 4321)
    for name in ("made", "theirs"):
        os.close(open_private(tmp_path / name, FLAGS))
    create_private(tmp_path / "empty")
    owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()}
    assert owners == {"made": (4321, 4321), "empty": (4321, 4321), "theirs": (0, 0)}
