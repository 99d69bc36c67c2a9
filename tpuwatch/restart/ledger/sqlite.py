"""The ledger on one machine: a SQLite file in the state directory, shared by all processes of its user.

Each call has a connection of its own, so any thread and any process may use it, and one that is killed leaves nothing
behind but a store that the next one rolls back.

The rollback store is chosen over a write-ahead log: writes are rare and small, and at rest the ledger is one file
that can be copied and read by itself. synchronous=EXTRA is FULL and flushes the directory too: else a power cut could
bring the store back, and with it the record as it was before a call that has been made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError, LedgerError, create_private
from tpuwatch.model import Fleet
from tpuwatch.restart.ledger.base import Stored, StoredFleet
from tpuwatch.restart.ledger.codec import decode, decode_fleet, encode
from tpuwatch.store import is_damage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.core import Clock
    from tpuwatch.model import RestartRecord, Target

FILE_NAME: Final = "ledger.db"
BUSY_SECONDS: Final = 5.0  # how long a call waits for others, who need milliseconds
KEPT_SECONDS: Final = 90 * 86_400.0  # ended restarts, after their end
_APPLICATION_ID: Final = 0x7470776C  # "tpwl"
_VERSION: Final = 1
_TABLES: Final = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    # One row for each node, by its path, and one for the fleet.
    """CREATE TABLE entries (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, ended REAL, value TEXT NOT NULL) WITHOUT ROWID""",
    # One count for all: a version never comes twice, even of a node whose record was removed in between.
    "CREATE TABLE versions (last INTEGER NOT NULL)",
    "INSERT INTO versions VALUES (0)",
    f"PRAGMA user_version = {_VERSION}",
)
_FLEET: Final = "fleet"
_SELECT: Final = "SELECT version, value FROM entries WHERE name = ?"
_SELECT_RECORDS: Final = "SELECT version, value FROM entries WHERE name <> ? ORDER BY name"
_PUT: Final = "INSERT OR REPLACE INTO entries (name, version, ended, value) VALUES (?, ?, ?, ?)"
_DROP_OLD: Final = "DELETE FROM entries WHERE ended < ?"


class SqliteLedger:
    """The ledger in a state directory. Reading makes no file; the first write does, readable by its owner alone."""

    def __init__(self, directory: Path, clock: Clock, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = directory / FILE_NAME
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._checked: tuple[int, int] | None = None  # the file that was found whole

    def read(self, target: Target) -> Stored | None:
        """The node's record; None if it never had one. Raises LedgerError."""
        found = self._select(_SELECT, target.path)
        return self._stored(*found[0]) if found else None

    def records(self) -> list[Stored]:
        """All records that are open, or ended within the last 90 days, by node. Raises LedgerError."""
        return [self._stored(version, text) for version, text in self._select(_SELECT_RECORDS, _FLEET)]

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes together. Raises LedgerError."""
        found = self._select(_SELECT, _FLEET)
        return StoredFleet(decode_fleet(found[0][1], str(self.path)), found[0][0]) if found else StoredFleet(Fleet(), 0)

    def write(self, record: RestartRecord, version: int) -> Stored:
        """Store it, on the disk when this returns, if the node's record still is `version` (0: there is none).

        Raises ConflictError if it is not, else LedgerError: then the write is done or not, and it is to be read again.
        """
        ended = None if record.open else max(record.entered, record.requested)
        return Stored(record, self._put(record.target.path, version, ended, encode(record)))

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """Store it, as `write` does, and with the same errors."""
        return StoredFleet(fleet, self._put(_FLEET, version, None, encode(fleet)))

    def close(self) -> None:
        """Nothing is held between calls."""

    def _stored(self, version: int, text: str) -> Stored:
        return Stored(decode(text, str(self.path)), version)

    def _put(self, name: str, version: int, ended: float | None, text: str) -> int:
        with self._explained("written"):
            self._make_file()
            with self._connected() as connection, _transaction(connection):
                return self._replace(connection, name, version, ended, text)

    def _replace(self, connection: sqlite3.Connection, name: str, version: int, ended: float | None, text: str) -> int:
        """Store a value in the place of `version`; its own version."""
        found = connection.execute("SELECT version FROM entries WHERE name = ?", (name,)).fetchone()
        if version != (found[0] if found else 0):
            raise ConflictError(f"{name} in the ledger {self.path} was written by another writer meanwhile")
        last = connection.execute("SELECT last FROM versions").fetchone()
        if last is None:
            raise sqlite3.DatabaseError("its count of versions is not there")
        new = int(last[0]) + 1
        connection.execute("UPDATE versions SET last = ?", (new,))
        connection.execute(_PUT, (name, new, ended, text))
        connection.execute(_DROP_OLD, (self._clock.time() - KEPT_SECONDS,))
        return new

    def _select(self, sql: str, *values: object) -> list[tuple[int, str]]:
        with self._explained("read"):
            if not self.path.exists():
                return []
            with self._connected() as connection:
                # One that was killed before it had made the tables has left an empty file.
                return connection.execute(sql, values).fetchall() if _version(connection) else []

    def _make_file(self) -> None:
        """Have an empty file that only its owner can read, if there is none.

        One that is there is not opened: to close it again would end all locks that this process holds on it, and let
        others write while a thread here does.
        """
        if self.path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not self.path.exists():
            create_private(self.path)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"  # never makes a file
        connection = sqlite3.connect(uri, uri=True, timeout=self._busy_seconds, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("PRAGMA synchronous = EXTRA")
            self._check(connection)
            yield connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not whole, or not ours; once for each file."""
        entry = self.path.stat()
        if self._checked == (entry.st_dev, entry.st_ino):
            return
        version = _version(connection)
        if version > _VERSION:
            raise LedgerError(
                f"the ledger {self.path} is of a newer tpuwatch (its version is {version}, this one's {_VERSION}): use "
                "that one"
            )
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not empty and connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise LedgerError(f"{self.path} is no ledger but a database of some other program: {_AWAY}")
        verdict = " ".join(str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]).split())
        if verdict != "ok":
            raise LedgerError(self._damaged(verdict))
        self._checked = (entry.st_dev, entry.st_ino)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise errors of SQLite and of the system as a LedgerError."""
        try:
            yield
        except sqlite3.Error as error:
            if is_damage(error):
                self._checked = None
                raise LedgerError(self._damaged(str(error))) from error
            raise LedgerError(f"the ledger {self.path} cannot be {what} ({error}): {_NOT_NOW}") from error
        except OSError as error:
            raise LedgerError(f"the ledger {self.path} cannot be {what} ({error.strerror}): {_NOT_NOW}") from error

    def _damaged(self, how: str) -> str:
        # It is not set aside by itself: an empty one in its place would be a budget that is unused, and would
        # know nothing of nodes that are stopped this minute.
        return f"the ledger {self.path} is damaged ({how}), so nothing is restarted: {_AWAY}"


_NOT_NOW: Final = (
    "nothing is restarted before it can be; check its directory's owner and free space, and what has it open"
)
_AWAY: Final = (
    "look at your nodes (`gcloud compute tpus tpu-vm list`), start those that it may have left stopped, then move the "
    "file away to begin a new one"
)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing, in tables that are made if they are not there. Waits for others here, and not after it."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if not _version(connection):
            for statement in _TABLES:
                connection.execute(statement)
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
