from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, cursor, event
from tpuwatch.core.errors import StoreError
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import MAX_PLACES, Place
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.store import EventStore, schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock


def test_events_come_back_as_they_went_in(store: EventStore) -> None:
    events = [
        event("a", details={}),
        event(
            "b", time=None, pid=None, severity="", history=True, details={"allocations": [{"op": "x", "size_bytes": 1}]}
        ),
    ]
    new = store.commit(events, [])
    assert [one.id for one in new] == [1, 2]
    assert store.events() == new
    assert [replace(one, id=None) for one in store.events()] == [replace(one, id=None) for one in events]


def test_copies_count_once_in_one_commit_and_over_commits_and_runs(next_run: Callable[[], EventStore]) -> None:
    store = next_run()
    new = store.commit([event("a"), event("b"), event("a", file="/x.ERROR")], [])
    assert [one.key for one in new] == [b"a", b"b"]
    assert [one.key for one in store.commit([event("b"), event("c"), event("a")], [])] == [b"c"]
    store = next_run()
    copy = event("a")
    assert store.commit([copy, event("b")], []) == []
    assert copy.id is None
    assert [one.key for one in store.events()] == [b"a", b"b", b"c"]
    assert store.events()[0].file == event("a").file


def test_events_that_are_not_from_a_log_are_stored_beside_commits(store: EventStore) -> None:
    first = event("a")
    assert store.add_events([first]) == [first]
    assert store.add_events([event("a")]) == []
    assert store.first_run  # no log has been read
    store.commit([event("a"), event("b")], [])
    assert store.add_events([event("c"), event("b")])[0].key == b"c"
    assert [(one.key, one.id) for one in store.events(after_id=0)] == [(b"a", 1), (b"b", 4), (b"c", 5)]


def test_threads_that_store_at_once_give_no_id_twice(store: EventStore) -> None:
    together = threading.Barrier(3)

    def put(name: str) -> None:
        together.wait()
        for number in range(50):
            store.add_events([event(f"{name}{number}")])

    def commit() -> None:
        together.wait()
        for number in range(50):
            store.commit([event(f"r{number}"), event(f"s{number}")], [])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(put, "p"), pool.submit(put, "q"), pool.submit(commit)]:
            done.result()
    stored = store.events(after_id=0, limit=1000)
    assert sorted(one.key for one in stored) == sorted(
        f"{name}{number}".encode() for name in "pqrs" for number in range(50)
    )


def test_ids_rise_from_run_to_run_even_when_all_events_are_pruned(
    next_run: Callable[[], EventStore], clock: ManualClock
) -> None:
    store = next_run()
    store.commit([event("a"), event("b")], [])
    clock.advance(1000)
    assert store.prune(max_age_seconds=10, max_bytes=1 << 30) == 2
    assert [one.id for one in next_run().commit([event("c")], [])] == [3]


@pytest.mark.parametrize("text", ["a\0b", "\ud800 lone", "caf\udce9", "naïve ☃ 🦕", "\ufffd"])
def test_any_string_can_be_kept(store: EventStore, text: str) -> None:
    stored = event("a", text=text, file=f"/logs/{text}", details={"op": text})
    store.commit([stored], [cursor(path=f"/logs/{text}", state={"tail": text})])
    assert store.events() == [stored]
    assert store.cursors() == [cursor(path=f"/logs/{text}", state={"tail": text})]


def test_pids_and_times_that_are_none_spoil_nothing(store: EventStore) -> None:
    nonsense = [event("a", pid=10**30), event("b", time=float("nan")), event("c", time=float("inf"))]
    assert len(store.commit(nonsense, [])) == 3
    assert {one.key: one.pid for one in store.events()} == {b"a": None, b"b": 42, b"c": 42}


def test_offsets_and_events_fail_together(store: EventStore, tmp_path: Path) -> None:
    store.commit([event("a")], [cursor(10)])
    with sqlite3.connect(tmp_path / schema.FILE_NAME) as stranger:
        stranger.execute("CREATE TRIGGER no BEFORE INSERT ON cursors BEGIN SELECT RAISE(FAIL, 'no'); END")
    stranger.close()
    with pytest.raises(StoreError, match=r"cannot write the store .*store\.db: no;"):
        store.commit([event("b")], [cursor(20)])
    assert [one.key for one in store.events()] == [b"a"]
    assert [one.offset for one in store.cursors()] == [10]


def test_a_bound_value_that_sqlite_refuses_leaves_no_transaction_open(store: EventStore) -> None:
    with pytest.raises(OverflowError):
        store.commit([event("a"), event("b", offset=1 << 70)], [])
    assert store.events() == []
    assert len(store.commit([event("a")], [])) == 1


def test_cursors_know_a_file_by_device_and_inode(store: EventStore) -> None:
    store.commit([], [cursor(10, head=b"first file"), cursor(5, device=9, head=b"first file")])
    store.commit([], [cursor(20, head=b"first file", path="/logs/renamed")])
    assert {one.device: (one.path, one.offset) for one in store.cursors()} == {
        1: ("/logs/renamed", 20),
        9: ("/logs/a", 5),
    }


def test_cursors_are_ordered_by_when_their_file_last_existed(store: EventStore, clock: ManualClock) -> None:
    for inode in (26, 1, 13):
        store.commit([], [cursor(inode=inode)])
        clock.advance(1)
    assert [one.inode for one in store.cursors()] == [26, 1, 13]


@pytest.mark.parametrize("first", [b"", b"Log", b"z, the first file"], ids=["empty", "shorter", "of another file"])
def test_an_inode_has_the_cursor_of_its_latest_first_bytes_alone(store: EventStore, first: bytes) -> None:
    store.commit([], [cursor(10, head=first)])
    store.commit([], [cursor(3, head=b"Log file")])
    store.forget_cursors([(1, 2)], 60)
    assert store.cursors() == [cursor(3, head=b"Log file")]


def test_device_and_inode_may_use_all_64_bits(store: EventStore) -> None:
    large = cursor(device=(1 << 64) - 1, inode=1 << 63, history_until=7)
    store.commit([], [large])
    assert store.cursors() == [large]


def test_a_launch_is_known_by_pid_and_start(store: EventStore) -> None:
    launch = Launch(pid=7, started=NOW, environment={"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"})
    store.commit([], [], [launch, Launch(pid=7, started=NOW + 60)])
    launch.outcome, launch.cause, launch.init_seconds = Outcome.FAILED, Cause.PREMAPPED_EXHAUSTED, 21.5
    store.commit([], [], [launch])
    newest, oldest = store.launches()
    assert (newest.started, newest.outcome) == (NOW + 60, Outcome.STARTING)
    assert oldest == replace(launch, id=oldest.id)
    assert store.launches(limit=1) == [newest]


def test_totals_are_counted_with_what_is_stored_and_outlive_it(
    next_run: Callable[[], EventStore], clock: ManualClock
) -> None:
    store = next_run()
    assert store.totals() == {}
    hang = ("events", "hang")
    store.commit([event("a"), event("b")], [], count=lambda new, _: {hang: len(new), ("launches", "ok"): 1})
    store.commit([event("b"), event("c")], [], count=lambda new, _: {hang: len(new)})
    with pytest.raises(OverflowError):
        store.commit([event("d", offset=1 << 70)], [], count=lambda _: {hang: 1})
    clock.advance(10)
    assert store.prune(1, 1 << 40) == 3
    assert store.totals() == {hang: 3, ("launches", "ok"): 1}
    assert next_run().totals() == {hang: 3, ("launches", "ok"): 1}


def test_a_failed_count_stores_nothing(store: EventStore) -> None:
    with pytest.raises(ZeroDivisionError):
        store.commit([event("a")], [cursor(10)], count=lambda *_: {("events", "hang"): 1 // 0})
    assert (store.events(), store.cursors(), store.totals()) == ([], [], {})


def test_a_closed_store_raises(store: EventStore) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.commit([event("a")], [])


def test_other_places_are_kept_with_an_event(store: EventStore) -> None:
    places = [Place(str(number).encode(), f"/jobs/\udce4{number}", number, None, "") for number in range(12)]
    store.commit([event("a"), event("b")], [], places=[(b"a", places[0]), (b"gone", places[1])])
    assert [one.places for one in store.events()] == [(places[0],), ()]
    store.commit([], [], places=[(b"a", place) for place in places])  # the first one again
    assert store.events()[0].places == tuple(places[:MAX_PLACES])


def test_a_launch_that_is_superseded_is_no_longer_shown(store: EventStore) -> None:
    launch = Launch(pid=-5, started=NOW, output="/jobs/a.log")
    store.commit([], [], [launch])
    assert [one.pid for one in store.launches()] == [-5]
    store.commit([], [], [replace(launch, superseded=True), Launch(pid=42, started=NOW)])
    assert [one.pid for one in store.launches()] == [42]
