from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.journal.make import NOW, cursor, event
from tpuwatch.errors import JournalBusyError
from tpuwatch.journal import Journal, opening, schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.clock import ManualClock

STAMP = "20260921T141320Z"  # NOW


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_the_directory_is_made_and_kept_from_strangers(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path / "a" / "b", clock)
    assert journal.durable
    assert journal.notices == ()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o007 == 0
    journal.close()


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_only_its_owner_may_read_it(tmp_path: Path, clock: ManualClock, mode: int | None) -> None:
    if mode is not None:  # as an earlier version left them
        with closing(schema.connect(tmp_path / schema.FILE_NAME)) as left:
            schema.migrate(left)
            for path in tmp_path.glob("journal.db*"):
                path.chmod(mode)
            assert len(list(tmp_path.glob("journal.db*"))) == 3
            with closing(Journal.open(tmp_path, clock)) as journal:
                assert journal.durable
                assert modes(tmp_path) == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm"), 0o600)
        return
    before = os.umask(0)
    try:
        with closing(Journal.open(tmp_path, clock)) as journal:
            journal.commit([event("a")], [])
            assert modes(tmp_path) == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm"), 0o600)
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.glob("journal.db*")}


def test_the_first_run_lasts_until_a_commit(tmp_path: Path, clock: ManualClock) -> None:
    for _ in range(2):  # a run that committed nothing has left nothing
        journal = Journal.open(tmp_path, clock)
        assert journal.first_run
        journal.close()
        clock.advance(60)
    journal = Journal.open(tmp_path, clock)
    journal.commit([], [])
    assert (journal.first_run, journal.first_run_time) == (False, NOW + 120)
    journal.close()
    clock.advance(60)
    journal = Journal.open(tmp_path, clock)
    assert (journal.first_run, journal.first_run_time) == (False, NOW + 120)
    journal.close()


def test_a_run_knows_the_end_of_the_one_before(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path, clock)
    assert journal.last_clean_stop is None
    journal.commit([], [])
    clock.advance(5)
    journal.close()
    journal = Journal.open(tmp_path, clock)
    assert journal.last_clean_stop == NOW + 5
    journal.commit([], [])
    journal.close(clean=False)
    journal = Journal.open(tmp_path, clock)
    assert journal.last_clean_stop is None
    journal.close()


def test_a_second_daemon_is_told_who_has_the_directory(journal: Journal, tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(JournalBusyError, match=rf"pid {os.getpid()}\) uses the state directory {tmp_path}: stop that"):
        Journal.open(tmp_path, clock)
    assert len(journal.commit([event("a")], [])) == 1


def test_the_lock_ends_with_the_process_that_has_it(tmp_path: Path, clock: ManualClock) -> None:
    code = (
        "import sys, pathlib; from tpuwatch.journal import opening; opening.DirectoryLock(pathlib.Path(sys.argv[1])); "
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "print(1, flush=True); sys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(JournalBusyError, match=f"pid {holder.pid}"):
            Journal.open(tmp_path, clock)
        holder.kill()
    Journal.open(tmp_path, clock).close()


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / opening.LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    journal = Journal.open(tmp_path, clock)
    assert not journal.durable
    assert not (tmp_path / "elsewhere").exists()
    journal.close()


def filled(directory: Path, clock: ManualClock) -> Path:
    journal = Journal.open(directory, clock)
    journal.commit([event(str(number), text="x" * 500) for number in range(2000)], [cursor(10)])
    journal.close()
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
    journal = Journal.open(tmp_path, clock)
    kept = tmp_path / f"journal.db.{kind}-{STAMP}"
    (notice,) = journal.notices
    assert notice.startswith(f"{path} {words}")
    assert f"it was kept as {kept.name}, and a new journal begun" in notice
    assert kept.read_bytes() == before
    assert journal.durable
    assert journal.first_run
    assert journal.cursors() == []
    assert len(journal.commit([event("1")], [])) == 1
    journal.close()


def test_two_files_set_aside_in_one_second_are_both_kept(tmp_path: Path, clock: ManualClock) -> None:
    for content in (b"first " * 999, b"second " * 999):
        (tmp_path / schema.FILE_NAME).write_bytes(content)
        Journal.open(tmp_path, clock).close()
    assert {f"journal.db.corrupt-{STAMP}", f"journal.db.corrupt-{STAMP}.2"} < names(tmp_path)


def test_the_log_of_a_file_that_is_set_aside_goes_with_it(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / schema.FILE_NAME
    rubbish(path)
    path.with_name("journal.db-wal").write_bytes(b"a log")
    Journal.open(tmp_path, clock).close()
    assert (tmp_path / f"journal.db.corrupt-{STAMP}-wal").read_bytes() == b"a log"


@pytest.mark.skipif(os.geteuid() == 0, reason="no permission stops root")
def test_a_directory_without_a_lock_file_that_may_not_be_written(tmp_path: Path, clock: ManualClock) -> None:
    tmp_path.chmod(0o555)
    try:
        journal = Journal.open(tmp_path, clock)
    finally:
        tmp_path.chmod(0o755)
    assert not journal.durable
    assert "Permission denied" in journal.notices[0]
    journal.close()


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
