from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.store.make import NOW
from tpuwatch.model import PacePoint, PaceRecord
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tpuwatch.core.clock import ManualClock

RECORD = PaceRecord(
    1, "output\0/jobs/train.log", "run", 900, NOW, {"mean": 0.5, "alarm": None}, (PacePoint(8, NOW - 60, 1.5),)
)


def test_a_pace_comes_back_as_it_was_stored(store: EventStore) -> None:
    other = replace(RECORD, launch=2, at=NOW + 1, workload="heartbeat\0alice\0\udcff\0train.py")
    store.save_paces([RECORD, other])
    assert store.paces(RECORD.workload, 5) == [RECORD]
    assert store.paces(other.workload, 5) == [other]
    assert store.paces("another", 5) == []


def test_the_launch_that_stepped_last_is_first(store: EventStore) -> None:
    store.save_paces([replace(RECORD, launch=number, at=NOW + number) for number in (1, 3, 2)])
    assert [one.launch for one in store.paces(RECORD.workload, 2)] == [3, 2]


def test_points_that_went_and_points_that_came_are_stored(store: EventStore) -> None:
    points = tuple(PacePoint(8 * number, NOW + number, 1.5) for number in range(10))
    store.save_paces([replace(RECORD, points=points)])
    thinned = (*points[::2], PacePoint(100, NOW + 50, 1.6))
    store.save_paces([replace(RECORD, points=thinned, step=100)])
    (stored,) = store.paces(RECORD.workload, 1)
    assert (stored.points, stored.step) == (thinned, 100)


def test_launches_are_bounded(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_PACES", 2)
    store.save_paces([replace(RECORD, launch=number, at=NOW + number) for number in range(5)])
    store.prune(1e9, 1 << 40)
    assert [one.launch for one in store.paces(RECORD.workload, 9)] == [4, 3]
    assert store._connection.execute("SELECT count(*) FROM pace").fetchone() == (2,)


def test_unreadable_facts_are_left_out(store: EventStore) -> None:
    store.save_paces([RECORD])
    store._connection.execute("UPDATE baselines SET facts = '['")
    assert store.paces(RECORD.workload, 1) == []


def test_the_points_of_a_launch_take_at_most_15_kb(store: EventStore) -> None:
    before = store.size_bytes()
    points = tuple(PacePoint(10_000 + 8 * number, NOW + 61.7 * number, 1.23456789) for number in range(400))
    for number in range(10):
        store.save_paces([replace(RECORD, launch=2**47 + number, points=points)])
    assert (store.size_bytes() - before) / 10 < 15_000


def test_a_store_that_replaces_another_takes_them_over(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        store.commit([], [])
        store.save_paces([RECORD])
    (tmp_path / "store.lock").unlink()
    (tmp_path / "store.lock").symlink_to("elsewhere")
    with closing(EventStore.open(tmp_path, clock)) as store:
        assert not store.durable
        assert store.paces(RECORD.workload, 1) == [RECORD]
