from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.store.make import NOW, cursor, event
from tpuwatch.model.launches import Launch
from tpuwatch.store import schema

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tpuwatch.core.clock import ManualClock
    from tpuwatch.store import EventStore

DAY = 86_400.0
LARGE = 1 << 40


def prune(store: EventStore, max_age_seconds: float = 1e9, max_bytes: int = LARGE) -> int:
    removed = 0
    while step := store.prune(max_age_seconds, max_bytes):
        removed += step
    return removed


def test_events_go_when_they_were_read_too_long_ago(store: EventStore, clock: ManualClock) -> None:
    store.commit([event("old", observed=NOW)], [])
    store.commit([event("history", observed=NOW + DAY, time=NOW - 100 * DAY)], [])
    clock.advance(1.5 * DAY)
    assert prune(store, max_age_seconds=DAY) == 1
    assert [one.key for one in store.events()] == [b"history"]


def test_one_call_is_a_small_step(store: EventStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.PRUNE_LIMIT", 10)
    store.commit([event(str(number)) for number in range(25)], [])
    clock.advance(10)
    assert [store.prune(1, LARGE) for _ in range(4)] == [10, 10, 5, 0]


def test_the_oldest_go_when_the_store_is_too_large(store: EventStore) -> None:
    for batch in range(10):
        store.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(1000)], [])
    limit = store.size_bytes() // 2
    assert prune(store, max_bytes=limit) > 0
    assert limit * 0.8 < store.size_bytes() <= limit
    left = store.events(after_id=0, limit=100_000)
    assert left[-1].key == b"9.999"
    assert [one.id for one in left] == list(range(10_001 - len(left), 10_001))


def test_the_file_gives_its_space_back(store: EventStore, tmp_path: Path, clock: ManualClock) -> None:
    for batch in range(10):
        store.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(1000)], [])
    checkpoint(store)
    large = (tmp_path / schema.FILE_NAME).stat().st_size
    clock.advance(10)
    prune(store, max_age_seconds=1)
    for _ in range(5):  # each gives back a limited number of pages
        store.prune(1, LARGE)
    checkpoint(store)
    assert (tmp_path / schema.FILE_NAME).stat().st_size < large / 20


def checkpoint(store: EventStore) -> None:
    store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_flood_without_end_leaves_the_file_bounded(store: EventStore, tmp_path: Path) -> None:
    limit = 2 << 20
    for batch in range(40):
        store.commit([event(f"{batch}.{number}", text="x" * 1000) for number in range(500)], [])
        prune(store, max_bytes=limit)
    checkpoint(store)
    assert (tmp_path / schema.FILE_NAME).stat().st_size <= limit * 1.5


def test_an_empty_store_has_nothing_to_prune(store: EventStore) -> None:
    assert store.prune(0, 0) == 0


def test_launches_are_bounded(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_LAUNCHES", 3)
    store.commit([], [], [Launch(pid=pid, started=NOW + pid) for pid in range(5)])
    store.prune(1e9, LARGE)
    assert [launch.pid for launch in store.launches()] == [4, 3, 2]


def test_cursors_of_files_long_gone_are_forgotten(store: EventStore, clock: ManualClock) -> None:
    store.commit([], [cursor(inode=1), cursor(inode=2), cursor(inode=(1 << 64) - 1)])
    clock.advance(2 * DAY)
    store.commit([], [cursor(inode=4)])
    assert store.forget_cursors([(1, 2), (1, (1 << 64) - 1)], max_age_seconds=DAY) == 1
    assert {one.inode for one in store.cursors()} == {2, 4, (1 << 64) - 1}


def test_cursors_are_bounded_in_number(store: EventStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_CURSORS", 2)
    for inode in range(5):
        store.commit([], [cursor(inode=inode)])
        clock.advance(1)
    assert store.forget_cursors([], max_age_seconds=DAY) == 3
    assert {one.inode for one in store.cursors()} == {3, 4}
