"""Files that are known but not open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.logs.sites import name
from tpuwatch.logs import shelf
from tpuwatch.logs.files import FileKey, Refusal
from tpuwatch.logs.shelf import Resting, Shelf
from tpuwatch.logs.sources import LogDirectory
from tpuwatch.model import Cursor

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


def rest(kept: Shelf, source: LogDirectory, path: str, cursor: Cursor) -> None:
    """Put a file away as if nothing had been in it when it was last looked at."""
    kept.put(Resting(source, path, (cursor.device, cursor.inode), 0, cursor.offset), cursor)


def test_a_cursor_comes_back_as_it_was_put(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    cursor = Cursor(path, *key, head=bytes(range(256)), offset=3, state={"a": [1, 2.5, "ä"], "b": {}}, history_until=4)
    kept = Shelf([])
    rest(kept, source, path, cursor)
    [resting] = kept
    assert kept.cursor(resting) == cursor


def test_a_new_file_begins_at_nothing_and_history_ends_where_it_does(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = Shelf([])
    assert kept.add(source, path, key, history=False) is None
    assert kept.unread == 5
    assert Shelf([]).add(source, path, key, history=True) == Cursor(path, *key, b"", 0, history_until=5)


def test_a_file_takes_up_its_cursor_under_a_new_name(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = Shelf([Cursor("/elsewhere", *key, b"w", 3)])
    assert kept.add(source, path, key, history=True) is None  # known, so it is not history anew
    [resting] = kept.take_waiting(10)
    assert kept.cursor(resting).offset == resting.offset == 3


def test_a_file_without_a_name_is_remembered(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = Shelf([])
    rest(kept, source, path, Cursor(path, *key, b"w", 5))
    kept.remove(path)
    assert list(kept) == []
    kept.add(source, path + ".1", key, history=False)
    [resting] = kept
    assert kept.cursor(resting).offset == 5
    assert kept.unread == 0


def test_a_name_given_to_another_file_leaves_the_first_ones_cursor(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = Shelf([])
    rest(kept, source, path, Cursor(path, *key, b"w", 5))
    kept.add(source, path, (key[0], key[1] + 1), history=False)
    assert list(kept._strays) == [key]
    kept.add(source, path + ".1", key, history=False)
    assert {resting.path: resting.offset for resting in kept} == {path: 0, path + ".1": 5}


def test_what_is_remembered_of_files_without_a_name_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "_MAX_STRAYS", 3)
    kept = Shelf([])
    for inode in range(10):
        kept.keep(Cursor("gone", 1, inode, b"", 0))
    assert list(kept._strays) == [(1, 7), (1, 8), (1, 9)]


def test_a_file_is_opened_again_only_when_it_changed(tmp_path: Path, source: LogDirectory) -> None:
    path, key = make(tmp_path / name())
    kept = Shelf([])
    mtime_ns = (tmp_path / name()).stat().st_mtime_ns
    kept.put(Resting(source, path, key, 5, 5, mtime_ns), Cursor(path, *key, b"words", 5))
    kept.look(path)
    assert kept.waiting == 0
    (tmp_path / name()).write_text("more words")
    kept.look(path)
    assert kept.waiting == 1
    assert kept.unread == 5


def test_looking_round_comes_to_all_files_a_few_at_a_time(
    tmp_path: Path, source: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "_CHECKS", 10)
    kept = Shelf([])
    for pid in range(25):
        path, key = make(tmp_path / name(pid=pid))
        rest(kept, source, path, Cursor(path, *key, b"words", 5))
    kept.look_round()  # begins the round
    waiting = []
    for _ in range(3):
        kept.look_round()
        waiting.append(kept.waiting)
    assert waiting == [10, 20, 25]


def test_refused_files_are_tried_again_in_turn(
    tmp_path: Path, source: LogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "_RETRIES", 2)
    kept = Shelf([])
    for pid in range(3):
        kept.add(source, *make(tmp_path / name(pid=pid)), history=False)
    for resting in kept.take_waiting(10):
        assert kept.refuse(resting, Refusal.PERMISSION)
    tried = []
    for _ in range(3):
        kept.look_round()
        again = kept.take_waiting(10)
        tried += [resting.path for resting in again]
        assert [kept.refuse(resting, Refusal.PERMISSION) for resting in again] == [False] * 2  # no news
    assert len(tried) == 6
    assert {tried.count(path) for path in tried} == {2}
    assert kept.refuse(next(kept.refused), Refusal.LINK)
