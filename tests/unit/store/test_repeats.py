"""Records that are stored with an event: each key once, with the event or by itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
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


def test_repeats_are_kept_when_deleted_files_are_made_again(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        commit(store, together("c", "a", "b"))
        for path in tmp_path.glob("store.db*"):
            path.unlink()
        store.renew()
        assert [(one.key, one.repeats, one.since) for one in store.events()] == [(b"c", 2, NOW)]
        assert commit(store, together("c", "a", "b")) == [(b"c", [])]
