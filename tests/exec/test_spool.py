"""The copy of the output: in order, whole where there is room, and never in the way of whoever hands it over."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuwatch.exec.spool import Spool, open_file


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor, _ = open_file({"TMPDIR": str(tmp_path)})
    yield descriptor
    os.close(descriptor)


def _content(file: int) -> bytes:
    return os.pread(file, 1 << 20, 0)


def test_all_that_is_handed_over_is_there_in_order(file: int) -> None:
    spool = Spool(file, lambda: 0)
    spool.start()
    for number in range(1000):
        spool.put(b"%d\n" % number)
    spool.close(60.0)
    assert _content(file) == b"".join(b"%d\n" % number for number in range(1000))
    assert spool.lost == 0


def test_where_memory_is_short_the_oldest_is_left_out_and_counted(file: int) -> None:
    spool = Spool(file, lambda: 0, memory_bytes=10)  # nobody writes it to the file yet
    for piece in (b"aaaa", b"bbbb", b"cccc", b"dddd"):
        spool.put(piece)
    spool.start()
    spool.close(60.0)
    assert spool.lost == 8
    assert _content(file) == b"\nccccdddd"  # what stood before the gap is no part of its line


def test_the_file_grows_no_further_than_its_reader_is_behind(file: int) -> None:
    taken = 0
    spool = Spool(file, lambda: taken, file_bytes=10)
    spool.start()
    spool.put(b"12345678")
    spool.put(b"lost")
    spool.close(60.0)
    assert (_content(file), spool.lost) == (b"12345678", 4)


def test_what_was_read_makes_room(file: int) -> None:
    taken = [0]
    looked = threading.Event()

    def behind() -> int:
        looked.set()
        return taken[0]

    spool = Spool(file, behind, file_bytes=10)
    spool.start()
    spool.put(b"12345678")
    assert looked.wait(60.0)
    taken[0] = 8
    spool.put(b"more")
    spool.close(60.0)
    assert (_content(file), spool.lost) == (b"12345678more", 0)


def test_nothing_is_kept_for_nobody(file: int) -> None:
    spool = Spool(file, lambda: 0)
    spool.drop()
    spool.put(b"x")
    spool.start()
    spool.close(60.0)
    assert (_content(file), spool.lost) == (b"", 0)


def test_a_file_that_cannot_be_written_loses_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    spool = Spool(descriptor, lambda: 0)
    spool.start()
    spool.put(b"1234")
    spool.close(60.0)
    os.close(descriptor)
    assert spool.lost == 4


def test_the_file_has_no_name(tmp_path: Path, file: int) -> None:
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(file).st_nlink == 0


@pytest.mark.parametrize("trouble", ["refused", "full"])
def test_where_no_directory_will_do_it_is_in_memory(monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError

    def full(file: int) -> os.statvfs_result:
        found = fstatvfs(file)
        # f_bfree and f_bavail
        return os.statvfs_result((*found[:3], 0, 0, *found[5:])) if found.f_blocks else found

    fstatvfs = os.fstatvfs
    with monkeypatch.context() as changed:
        changed.setattr(os, *(("open", refuse) if trouble == "refused" else ("fstatvfs", full)))
        descriptor, most = open_file({})
    assert most == 64 << 20
    spool = Spool(descriptor, lambda: 0, file_bytes=most)
    spool.start()
    spool.put(b"x")
    spool.close(60.0)
    assert (_content(descriptor), spool.lost) == (b"x", 0)
    os.close(descriptor)


def test_where_there_can_be_no_thread_it_is_written_at_the_end(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    spool = Spool(file, lambda: 0, memory_bytes=8)
    spool.start()
    for piece in (b"1111", b"2222", b"3333"):
        spool.put(piece)
    spool.close(60.0)
    assert (_content(file), spool.lost) == (b"\n22223333", 4)
