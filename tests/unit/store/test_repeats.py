"""Records that are stored with an event: each key once, with the event or by itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.store.make import NOW, event
from tpuwatch.model.events import Event, Repetition
from tpuwatch.store import EventStore, schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock


def together(last: str, *keys: str, since: float = NOW) -> Repetition:
    return Repetition(event(last), [key.encode() for key in keys], since)


def commit(store: EventStore, *repetitions: Repetition) -> list[tuple[bytes, list[bytes]]]:
    """Store them; what was new of each."""
    new: list[tuple[bytes, list[bytes]]] = []

    def count(_: Sequence[Event], repeated: Sequence[tuple[Event, Sequence[bytes]]]) -> dict[tuple[str, str], int]:
        new.extend((one.key, list(keys)) for one, keys in repeated)
        return {}

    store.commit([one.event for one in repetitions], [], count=count, repetitions=repetitions)
    return new


def test_each_key_counts_once(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        assert commit(store, together("d", "a", "b", "c")) == [(b"d", [b"a", b"b", b"c"])]
        assert commit(store, together("d", "a", "b", "c")) == [(b"d", [])]
        # Cut otherwise: the last is a repeat there, and the event a repeat here.
        assert commit(store, together("c", "a", "b"), together("f", "d", "e")) == [(b"c", []), (b"f", [b"e"])]
        assert [one.key for one in store.commit([event("a"), event("g")], [])] == [b"g"]
        assert [(one.key, one.repeats) for one in store.events()] == [(b"d", 3), (b"f", 1), (b"g", 0)]


def test_more_repeats_of_an_event_that_is_stored_with_another(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        commit(store, together("c", "a", "b", since=NOW - 5))
        assert commit(store, together("b", "0", "a", since=NOW - 9)) == [(b"b", [b"0"])]
        (stored,) = store.events()
        assert (stored.repeats, stored.since) == (3, NOW - 9)


def test_the_state_of_the_version_before_is_converted(tmp_path: Path, clock: ManualClock) -> None:
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME, isolation_level=None)) as connection:
        schema.migrate(connection, schema.MIGRATIONS[:6])
        connection.execute(
            "INSERT INTO events (id, key, rule, cause, observed, time, at, severity, file, offset, text, details,"
            " history) VALUES (7, ?1, 'r', 'hang', ?2, ?2, ?2, 'E', '/a', 0, 'text', '', 0)",
            (b"a", NOW),
        )
        connection.execute("INSERT INTO meta VALUES ('first_run_time', '1.0')")
    with closing(EventStore.open(tmp_path, clock)) as store:
        (old,) = store.events()
        assert (old.id, old.key, old.repeats, old.since) == (7, b"a", 0, None)
        assert commit(store, together("c", "a", "b")) == [(b"c", [b"b"])]


def test_what_the_repeats_state_is_kept_together(tmp_path: Path, clock: ManualClock) -> None:
    def stating(last: str, *keys: str, **values: list[object]) -> Repetition:
        return replace(together(last, *keys), stated=lambda new: values if new else {})

    many = [f"host{number:02d}" for number in range(20)]
    with closing(EventStore.open(tmp_path, clock)) as store:
        first = stating("c", "a", "b", used_bytes=[7, 9], hosts=["x", "y"])
        commit(store, first)
        both = {"used_bytes": [7, 20 << 20], "hosts": ["x", "y"]}
        assert first.event.spread == both
        assert [one.spread for one in store.events()] == [both]
        commit(store, stating("c", "a", "b", used_bytes=[1, 1]))
        assert [one.spread for one in store.events()] == [both]
        commit(store, stating("c", "d", used_bytes=[3, 30 << 20], hosts=many))
        for path in tmp_path.glob("store.db*"):
            path.unlink()
        store.renew()
        assert [one.spread for one in store.events()] == [{"used_bytes": [3, 30 << 20], "hosts": many[:9]}]
        commit(store, stating("f", "e", used_bytes=[20 << 20, 20 << 20]))
        assert store.events()[-1].spread == {}


def test_a_store_of_the_schema_before_has_no_spread(tmp_path: Path, clock: ManualClock) -> None:
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME, isolation_level=None)) as connection:
        schema.migrate(connection, schema.MIGRATIONS[:7])
        connection.execute(
            "INSERT INTO events (id, key, rule, cause, observed, time, at, severity, file, offset, text, details,"
            " history, repeats, since) VALUES (7, ?1, 'r', 'hang', ?2, ?2, ?2, 'E', '/a', 0, 'text', '', 0, 3, ?2)",
            (b"a", NOW),
        )
        connection.execute("INSERT INTO meta VALUES ('first_run_time', '1.0')")
    with closing(EventStore.open(tmp_path, clock)) as store:
        (old,) = store.events()
        assert (old.repeats, old.spread) == (3, {})


def test_repeats_are_kept_when_deleted_files_are_made_again(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        commit(store, together("c", "a", "b"))
        for path in tmp_path.glob("store.db*"):
            path.unlink()
        store.renew()
        assert [(one.key, one.repeats, one.since) for one in store.events()] == [(b"c", 2, NOW)]
        assert commit(store, together("c", "a", "b")) == [(b"c", [])]
