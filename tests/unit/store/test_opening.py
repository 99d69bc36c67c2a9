from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, cursor, event
from tpuwatch.core.errors import StoreBusyError
from tpuwatch.store import EventStore, opening, schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

STAMP = "20260921T141320Z"  # NOW


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_directory_is_made_and_kept_from_strangers(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path / "a" / "b", clock)) as store:
        assert (store.durable, store.notices) == (True, ())
    assert (tmp_path / "a" / "b").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_only_its_owner_may_read_it(tmp_path: Path, clock: ManualClock, mode: int | None) -> None:
    if mode is not None:  # as an earlier version left them
        with closing(schema.connect(tmp_path / schema.FILE_NAME)) as left:
            schema.migrate(left)
            for path in tmp_path.glob("store.db*"):
                path.chmod(mode)
            assert len(list(tmp_path.glob("store.db*"))) == 3
            with closing(EventStore.open(tmp_path, clock)) as store:
                assert store.durable
                assert modes(tmp_path) == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
        return
    before = os.umask(0)
    try:
        with closing(EventStore.open(tmp_path, clock)) as store:
            store.commit([event("a")], [])
            assert modes(tmp_path) == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.glob("store.db*")}


def test_the_first_run_lasts_until_a_commit(next_run: Callable[[], EventStore], clock: ManualClock) -> None:
    for _ in range(2):  # a run that committed nothing has left nothing
        assert next_run().first_run
        clock.advance(60)
    store = next_run()
    store.commit([], [])
    assert (store.first_run, store.first_run_time) == (False, NOW + 120)
    clock.advance(60)
    store = next_run()
    assert (store.first_run, store.first_run_time) == (False, NOW + 120)


def test_a_run_knows_the_end_of_the_one_before(next_run: Callable[[], EventStore], clock: ManualClock) -> None:
    store = next_run()
    assert store.last_clean_stop is None
    store.commit([], [])
    clock.advance(5)
    store = next_run()
    assert store.last_clean_stop == NOW + 5
    store.commit([], [])
    store.close(clean=False)
    assert next_run().last_clean_stop is None


def test_a_second_daemon_is_refused_and_named_the_first(store: EventStore, tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(StoreBusyError, match=rf"pid {os.getpid()}\) uses the state directory {tmp_path}: stop that"):
        EventStore.open(tmp_path, clock)
    assert len(store.commit([event("a")], [])) == 1


def test_the_lock_ends_with_the_process_that_has_it(tmp_path: Path, clock: ManualClock) -> None:
    code = "import sys, pathlib; from tpuwatch.store import opening; opening.DirectoryLock(pathlib.Path(sys.argv[1])); "
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print(1, flush=True); sys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(StoreBusyError, match=f"pid {holder.pid}"):
            EventStore.open(tmp_path, clock)
        holder.kill()
    EventStore.open(tmp_path, clock).close()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / opening.LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    store = EventStore.open(tmp_path, clock)
    assert not store.durable
    assert not (tmp_path / "elsewhere").exists()
    store.close()


def filled(directory: Path, clock: ManualClock) -> Path:
    store = EventStore.open(directory, clock)
    store.commit([event(str(number), text="x" * 500) for number in range(2000)], [cursor(10)])
    store.close()
    return directory / schema.FILE_NAME


def rubbish(path: Path) -> None:
    path.write_bytes(b"rubbish " * 4096)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scribbled(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(40 * 4096)
        file.write(b"\xff" * 8192)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("PRAGMA user_version = 99")


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("CREATE TABLE recipes (soup TEXT)")


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (rubbish, "corrupt", "is damaged (file is not a database)"),
        (torn, "corrupt", "is damaged (database disk image is malformed)"),
        (scribbled, "corrupt", "is damaged ("),
        (newer, "newer", "was written by a newer tpuwatch (schema 99"),
        (foreign, "foreign", "is a database of some other program"),
    ],
)
def test_a_file_that_cannot_be_used_is_set_aside(
    tmp_path: Path, clock: ManualClock, spoil: Callable[[Path], None], kind: str, words: str
) -> None:
    path = filled(tmp_path, clock)
    spoil(path)
    before = path.read_bytes()
    store = EventStore.open(tmp_path, clock)
    kept = tmp_path / f"store.db.{kind}-{STAMP}"
    (notice,) = store.notices
    assert notice.startswith(f"{path} {words}")
    assert f"it was kept as {kept.name}, and a new store begun" in notice
    assert kept.read_bytes() == before
    assert store.durable
    assert store.first_run
    assert store.cursors() == []
    assert len(store.commit([event("1")], [])) == 1
    store.close()


def test_two_files_set_aside_in_one_second_are_both_kept(tmp_path: Path, clock: ManualClock) -> None:
    for content in (b"first " * 999, b"second " * 999):
        (tmp_path / schema.FILE_NAME).write_bytes(content)
        EventStore.open(tmp_path, clock).close()
    assert {f"store.db.corrupt-{STAMP}", f"store.db.corrupt-{STAMP}.2"} < names(tmp_path)


def test_the_log_of_a_file_that_is_set_aside_goes_with_it(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / schema.FILE_NAME
    rubbish(path)
    path.with_name("store.db-wal").write_bytes(b"a log")
    EventStore.open(tmp_path, clock).close()
    assert (tmp_path / f"store.db.corrupt-{STAMP}-wal").read_bytes() == b"a log"


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")
def test_a_directory_without_a_lock_file_that_may_not_be_written(tmp_path: Path, clock: ManualClock) -> None:
    tmp_path.chmod(0o555)
    try:
        store = EventStore.open(tmp_path, clock)
    finally:
        tmp_path.chmod(0o755)
    assert not store.durable
    assert "Permission denied" in store.problem
    store.close()


def test_tables_of_an_older_version_are_converted(tmp_path: Path) -> None:
    connection = schema.connect(tmp_path / "a.db")
    first = [("CREATE TABLE soups (name TEXT)", "INSERT INTO soups VALUES ('leek')")]
    second = [*first, ("ALTER TABLE soups ADD COLUMN salt INTEGER DEFAULT 3",)]
    schema.migrate(connection, first)
    schema.migrate(connection, second)
    schema.migrate(connection, second)
    assert connection.execute("SELECT * FROM soups").fetchall() == [("leek", 3)]
    assert schema.user_version(connection) == 2
    with pytest.raises(sqlite3.Error, match="nonsense"):
        schema.migrate(connection, [*second, ("CREATE TABLE stews (name)", "nonsense")])
    assert schema.user_version(connection) == 2
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("soups",)]
    connection.close()
