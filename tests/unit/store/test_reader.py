from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, cursor, event
from tpuwatch.core.errors import StoreError
from tpuwatch.model.causes import Cause
from tpuwatch.store import EventStore, StoreReader, schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock


def keys(store: EventStore | StoreReader, **asked: object) -> str:
    return "".join(one.key.decode() for one in store.events(**asked))  # type: ignore[arg-type]  # each test gives its own


@pytest.fixture
def filled(store: EventStore) -> EventStore:
    """Events a to e in order of arrival; by their own time they are d, a, b, c, e."""
    store.commit([event("a", time=NOW + 1), event("b", time=NOW + 2, cause=Cause.HANG)], [])
    store.commit([event("c", time=None, observed=NOW + 3), event("d", time=NOW, history=True)], [])
    store.commit([event("e", time=NOW + 9, cause=Cause.HANG)], [])
    return store


def test_events_are_in_the_order_of_their_time(filled: EventStore) -> None:
    assert keys(filled) == "dabce"
    assert keys(filled, newest_first=True) == "ecbad"
    assert keys(filled, limit=2) == "da"
    assert keys(filled, limit=2, newest_first=True) == "ec"


def test_events_after_an_id_are_in_the_order_of_arrival(filled: EventStore) -> None:
    assert keys(filled, after_id=0) == "abcde"
    assert keys(filled, after_id=2) == "cde"
    assert keys(filled, after_id=2, newest_first=True, limit=1) == "e"
    assert keys(filled, after_id=filled.last_id()) == ""


def test_filters_combine(filled: EventStore) -> None:
    assert keys(filled, since=NOW + 1) == "abce"
    assert keys(filled, cause=Cause.HANG) == "be"
    assert keys(filled, cause=Cause.HANG, since=NOW + 5) == "e"
    assert keys(filled, history=True) == "d"
    assert keys(filled, history=False) == "abce"


def test_counts_by_cause(filled: EventStore) -> None:
    assert filled.counts() == {Cause.VMEM_OOM: 3, Cause.HANG: 2}


def test_an_empty_store_has_nothing(store: EventStore) -> None:
    assert (store.events(), store.counts(), store.last_id(), store.launches()) == ([], {}, 0, [])
    assert store.size_bytes() > 0


def test_causes_of_a_later_version_are_passed_over(filled: EventStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / schema.FILE_NAME) as stranger:
        stranger.execute("UPDATE events SET cause = 'cosmic_rays' WHERE key = CAST('a' AS BLOB)")
    stranger.close()
    assert keys(filled) == "dbce"
    assert filled.counts() == {Cause.VMEM_OOM: 2, Cause.HANG: 2}


def test_a_reader_sees_each_commit_of_a_running_daemon(store: EventStore, tmp_path: Path) -> None:
    reader = StoreReader.open(tmp_path)
    store.commit([event("a")], [cursor(10)])
    assert keys(reader) == "a"
    store.commit([event("b")], [cursor(20)])
    assert keys(reader) == "ab"
    assert reader.cursors() == [cursor(20)]


def test_a_reader_reads_when_no_daemon_runs_and_follows_one_that_starts(
    tmp_path: Path, next_run: Callable[[], EventStore]
) -> None:
    store = next_run()
    store.commit([event("a")], [])
    store.close()
    reader = StoreReader.open(tmp_path)
    assert keys(reader) == "a"
    next_run().commit([event("b")], [])
    assert keys(reader) == "ab"


def test_any_thread_may_read_while_another_writes(store: EventStore) -> None:
    start = threading.Barrier(3)

    def read() -> list[int]:
        start.wait(timeout=60)
        return [len(store.events(after_id=0)) for _ in range(30)]

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        start.wait(timeout=60)
        for number in range(100):
            store.commit([event(f"{number}.{part}") for part in range(5)], [])
    assert all(count % 5 == 0 for reader in readers for count in reader.result())


def test_a_missing_store_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store in .*: start `tpuwatch run`"):
        StoreReader.open(tmp_path)


def test_rubbish_is_an_error_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / schema.FILE_NAME).write_bytes(b"rubbish" * 1000)
    with pytest.raises(StoreError, match=r"cannot read the store .*not a database"):
        StoreReader.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [schema.FILE_NAME]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (schema.VERSION + 1, "newer tpuwatch"),
        (schema.VERSION - 1, "older tpuwatch"),
        (0, "is empty: `tpuwatch run` had no room"),
    ],
)
def test_another_version_is_named(tmp_path: Path, clock: ManualClock, version: int, words: str) -> None:
    EventStore.open(tmp_path, clock).close()
    with sqlite3.connect(tmp_path / schema.FILE_NAME) as stranger:
        stranger.execute(f"PRAGMA user_version = {version}")
    stranger.close()
    with pytest.raises(StoreError, match=words):
        StoreReader.open(tmp_path)


READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from tpuwatch.store import StoreReader
Path("/").as_uri()  # imports what it needs while the interpreter's own files can be read
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print(len(StoreReader.open(Path(sys.argv[1])).events()))
"""


@pytest.mark.parametrize("ending", ["running", "stopped", "killed"])
def test_a_user_who_cannot_write_there_can_read(open_place: Path, clock: ManualClock, ending: str) -> None:
    directory = open_place / "state"
    store = EventStore.open(directory, clock)
    store.commit([event("a")], [])
    if ending == "stopped":
        store.close()
    if ending == "killed":  # what a SIGKILL leaves: the log and its index, and no one who holds them
        left = {path.name: path.read_bytes() for path in directory.iterdir()}
        store.close()
        for name, content in left.items():
            (directory / name).write_bytes(content)
    for path in directory.glob("store.db*"):  # as its owner may choose
        path.chmod(0o644)
    directory.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, str(directory)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        directory.chmod(0o755)
        store.close()
    assert (done.stdout, done.stderr) == ("1\n", "")
