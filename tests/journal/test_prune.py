from __future__ import annotations

from typing import TYPE_CHECKING

from tests.journal.make import NOW, cursor, event
from tpuwatch.journal import schema, store
from tpuwatch.model import Launch

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tpuwatch.clock import ManualClock
    from tpuwatch.journal import Journal

DAY = 86_400.0
LARGE = 1 << 40


def prune(journal: Journal, max_age_seconds: float = 1e9, max_bytes: int = LARGE) -> int:
    removed = 0
    while step := journal.prune(max_age_seconds, max_bytes):
        removed += step
    return removed


def test_events_go_when_they_were_read_too_long_ago(journal: Journal, clock: ManualClock) -> None:
    journal.commit([event("old", observed=NOW)], [])
    journal.commit([event("history", observed=NOW + DAY, time=NOW - 100 * DAY)], [])
    clock.advance(1.5 * DAY)
    assert prune(journal, max_age_seconds=DAY) == 1
    assert [one.key for one in journal.events()] == [b"history"]


def test_one_call_is_a_small_step(journal: Journal, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PRUNE_LIMIT", 10)
    journal.commit([event(str(number)) for number in range(25)], [])
    clock.advance(10)
    assert [journal.prune(1, LARGE) for _ in range(4)] == [10, 10, 5, 0]


def test_the_oldest_go_when_the_journal_is_too_large(journal: Journal) -> None:
    for batch in range(10):
        journal.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(1000)], [])
    limit = journal.size_bytes() // 2
    assert prune(journal, max_bytes=limit) > 0
    assert limit * 0.8 < journal.size_bytes() <= limit
    left = journal.events(after_id=0, limit=100_000)
    assert left[-1].key == b"9.999"
    assert [one.id for one in left] == list(range(10_001 - len(left), 10_001))


def test_the_file_gives_its_space_back(journal: Journal, tmp_path: Path, clock: ManualClock) -> None:
    for batch in range(10):
        journal.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(1000)], [])
    checkpoint(journal)
    large = (tmp_path / schema.FILE_NAME).stat().st_size
    clock.advance(10)
    prune(journal, max_age_seconds=1)
    for _ in range(5):  # each gives back a limited number of pages
        journal.prune(1, LARGE)
    checkpoint(journal)
    assert (tmp_path / schema.FILE_NAME).stat().st_size < large / 20


def checkpoint(journal: Journal) -> None:
    journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_storm_without_end_leaves_the_file_bounded(journal: Journal, tmp_path: Path) -> None:
    limit = 2 << 20
    for batch in range(40):
        journal.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(500)], [])
        prune(journal, max_bytes=limit)
    checkpoint(journal)
    assert (tmp_path / schema.FILE_NAME).stat().st_size <= limit * 1.5


def test_an_empty_journal_has_nothing_to_prune(journal: Journal) -> None:
    assert journal.prune(0, 0) == 0


def test_launches_are_bounded(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_LAUNCHES", 3)
    journal.commit([], [], [Launch(pid=pid, started=NOW + pid) for pid in range(5)])
    journal.prune(1e9, LARGE)
    assert [launch.pid for launch in journal.launches()] == [4, 3, 2]


def test_cursors_of_files_long_gone_are_forgotten(journal: Journal, clock: ManualClock) -> None:
    journal.commit([], [cursor(inode=1), cursor(inode=2), cursor(inode=(1 << 64) - 1)])
    clock.advance(2 * DAY)
    journal.commit([], [cursor(inode=4)])
    assert journal.forget_cursors([(1, 2), (1, (1 << 64) - 1)], max_age_seconds=DAY) == 1
    assert {one.inode for one in journal.cursors()} == {2, 4, (1 << 64) - 1}


def test_cursors_are_bounded_in_number(journal: Journal, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_CURSORS", 2)
    for inode in range(5):
        journal.commit([], [cursor(inode=inode)])
        clock.advance(1)
    assert journal.forget_cursors([], max_age_seconds=DAY) == 3
    assert {one.inode for one in journal.cursors()} == {3, 4}
