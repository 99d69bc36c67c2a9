"""The copy of the output: in order, whole where there is room, and never in the way of the copier."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuwatch.exec.output_buffer import OutputBuffer, open_file


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor, _ = open_file({"TMPDIR": str(tmp_path)})
    yield descriptor
    os.close(descriptor)


def _content(file: int) -> bytes:
    return os.pread(file, 1 << 20, 0)


def test_all_that_is_handed_over_is_there_in_order(file: int) -> None:
    buffer = OutputBuffer(file, lambda: 0)
    buffer.start()
    for number in range(1000):
        buffer.add(b"%d\n" % number)
    buffer.close(60.0)
    assert _content(file) == b"".join(b"%d\n" % number for number in range(1000))
    assert buffer.lost == 0


def test_where_memory_is_short_the_oldest_is_left_out_and_counted(file: int) -> None:
    buffer = OutputBuffer(file, lambda: 0, memory_bytes=10)  # not written to the file yet
    for piece in (b"aaaa", b"bbbb", b"cccc", b"dddd"):
        buffer.add(piece)
    buffer.start()
    buffer.close(60.0)
    assert buffer.lost == 8
    assert _content(file) == b"\nccccdddd"  # what stood before the gap is no part of its line


def test_the_file_grows_no_further_than_its_reader_is_behind(file: int) -> None:
    taken = 0
    buffer = OutputBuffer(file, lambda: taken, file_bytes=10)
    buffer.start()
    buffer.add(b"12345678")
    buffer.add(b"lost")
    buffer.close(60.0)
    assert (_content(file), buffer.lost) == (b"12345678", 4)


def test_what_was_read_makes_room(file: int) -> None:
    taken = [0]
    looked = threading.Event()

    def behind() -> int:
        looked.set()
        return taken[0]

    buffer = OutputBuffer(file, behind, file_bytes=10)
    buffer.start()
    buffer.add(b"12345678")
    assert looked.wait(60.0)
    taken[0] = 8
    buffer.add(b"more")
    buffer.close(60.0)
    assert (_content(file), buffer.lost) == (b"12345678more", 0)


def test_nothing_is_kept_without_a_reader(file: int) -> None:
    buffer = OutputBuffer(file, lambda: 0)
    buffer.drop()
    buffer.add(b"x")
    buffer.start()
    buffer.close(60.0)
    assert (_content(file), buffer.lost) == (b"", 0)


def test_a_file_that_cannot_be_written_loses_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    buffer = OutputBuffer(descriptor, lambda: 0)
    buffer.start()
    buffer.add(b"1234")
    buffer.close(60.0)
    os.close(descriptor)
    assert buffer.lost == 4


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
    buffer = OutputBuffer(descriptor, lambda: 0, file_bytes=most)
    buffer.start()
    buffer.add(b"x")
    buffer.close(60.0)
    assert (_content(descriptor), buffer.lost) == (b"x", 0)
    os.close(descriptor)


def test_where_there_can_be_no_thread_it_is_written_at_the_end(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError

    monkeypatch.setattr(threading.Thread, "start", refuse)
    buffer = OutputBuffer(file, lambda: 0, memory_bytes=8)
    buffer.start()
    for piece in (b"1111", b"2222", b"3333"):
        buffer.add(piece)
    buffer.close(60.0)
    assert (_content(file), buffer.lost) == (b"\n22223333", 4)
