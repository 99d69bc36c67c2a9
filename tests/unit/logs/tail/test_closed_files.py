"""Files that are known but not open."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import name
from tpuwatch.logs.tail import closed_files
from tpuwatch.logs.tail.closed_files import ClosedFile, ClosedFiles
from tpuwatch.logs.tail.files import FileKey, Refusal
from tpuwatch.logs.tail.sources import LogDirectory
from tpuwatch.model.events import Cursor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> LogDirectory:
    return LogDirectory(str(tmp_path))


def make(path: Path) -> tuple[str, FileKey]:
    """A file of five bytes."""
    path.write_text("words")
    entry = path.stat()
    return str(path), (entry.st_dev, entry.st_ino)


def close(kept: ClosedFiles, source: LogDirectory, path: str, cursor: Cursor) -> None:
    """Put a file away as if nothing had been in it when it was last looked at."""
    kept.add_closed(ClosedFile(source, path, (cursor.device, cursor.inode), 0, cursor.offset), cursor)


def test_a_cursor_is_returned_as_it_was_added(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    cursor = Cursor(path, *key, head=bytes(range(256)), offset=3, state={"a": [1, 2.5, "ä"], "b": {}}, history_until=4)
    kept = ClosedFiles([])
    close(kept, source, path, cursor)
    [resting] = kept
    assert kept.cursor(resting) == cursor


def test_a_name_that_moves_to_another_file_leaves_the_cursor_of_the_first(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = ClosedFiles([])
    close(kept, source, path, Cursor(path, *key, b"w", 5))
    kept.add(source, path, (key[0], key[1] + 1), history=False)
    assert list(kept._nameless) == [key]
    kept.add(source, path + ".1", key, history=False)
    assert {resting.path: resting.offset for resting in kept} == {path: 0, path + ".1": 5}


def test_the_cursors_of_files_without_a_name_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_files, "_MAX_NAMELESS", 3)
    kept = ClosedFiles([])
    for inode in range(10):
        kept.keep(Cursor("gone", 1, inode, b"", 0))
    assert list(kept._nameless) == [(1, 7), (1, 8), (1, 9)]


def test_a_file_is_opened_again_only_when_it_changed(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = ClosedFiles([])
    mtime_ns = (tmp_path / name()).stat().st_mtime_ns
    kept.add_closed(ClosedFile(source, path, key, 5, 5, mtime_ns), Cursor(path, *key, b"words", 5))
    kept.check(path)
    assert kept.waiting == 0
    (tmp_path / name()).write_text("more words")
    kept.check(path)
    assert kept.waiting == 1
    assert kept.unread == 5


def test_all_files_are_checked_a_few_at_a_time(
    tmp_path: Path, source: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_files, "_CHECKS", 10)
    kept = ClosedFiles([])
    for pid in range(25):
        path, key = make(tmp_path / name(pid=pid))
        close(kept, source, path, Cursor(path, *key, b"words", 5))
    kept.check_some()  # begins the round
    waiting = []
    for _ in range(3):
        kept.check_some()
        waiting.append(kept.waiting)
    assert waiting == [10, 20, 25]


def test_what_was_written_lately_is_opened_first(tmp_path: Path, source: LogDirectory) -> None:
    kept = ClosedFiles([])
    for pid, written in enumerate((10, 20, 30, 40)):
        path, key = make(tmp_path / name(pid=pid))
        os.utime(path, (written, written))
        kept.add(source, path, key, history=False, urgent_since=30)
    assert [resting.path[-1] for resting in kept] == ["2", "3", "0", "1"]
    (tmp_path / name(pid=1)).write_text("more words")
    for _ in range(2):  # one that goes on growing keeps its place
        kept.check(str(tmp_path / name(pid=1)))
        kept.check(str(tmp_path / name(pid=2)))
    taken = [resting.path[-1] for resting in kept.take_waiting(3)]
    assert taken == ["2", "3", "1"]
    assert (kept.waiting, len(kept)) == (1, 1)


def test_unread_bytes_are_those_of_waiting_files(tmp_path: Path, source: LogDirectory) -> None:
    kept = ClosedFiles([])
    for pid in range(4):
        kept.add(source, *make(tmp_path / name(pid=pid)), history=False)
    assert kept.unread == 4 * len("words")
    (tmp_path / name(pid=0)).write_text("more words")
    kept.check(str(tmp_path / name(pid=0)))
    assert kept.unread == 3 * len("words") + len("more words")
    kept.remove(str(tmp_path / name(pid=0)))
    [refused] = kept.take_waiting(1)
    kept.refuse(refused, Refusal.PERMISSION)
    assert kept.unread == 2 * len("words")
    kept.check_some()  # tries it again
    assert kept.unread == 3 * len("words")
    kept.take_waiting(10)
    assert (kept.unread, kept.waiting) == (0, 0)


def test_refused_files_are_retried_in_turn(
    tmp_path: Path, source: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_files, "_RETRIES", 2)
    kept = ClosedFiles([])
    for pid in range(3):
        kept.add(source, *make(tmp_path / name(pid=pid)), history=False)
    for resting in kept.take_waiting(10):
        assert kept.refuse(resting, Refusal.PERMISSION)
    tried = []
    for _ in range(3):
        kept.check_some()
        again = kept.take_waiting(10)
        tried += [resting.path for resting in again]
        assert [kept.refuse(resting, Refusal.PERMISSION) for resting in again] == [False] * 2  # not new
    assert len(tried) == 6
    assert {tried.count(path) for path in tried} == {2}
    assert kept.refuse(next(kept.refused), Refusal.LINK)
