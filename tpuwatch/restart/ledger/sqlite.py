"""The ledger on one machine: a SQLite file in the state directory, shared by all processes of its user.

Each call has a connection of its own, so any thread and any process may use it, and one that is killed leaves nothing
behind but a log that the next one takes up.

It has a write-ahead log, so that a process that is suspended in the middle of a write keeps nobody from reading. The
last one that closes the file folds the log into it: at rest the ledger is one file that can be copied by itself.
synchronous=EXTRA flushes the log with each write: a power cut takes nothing back that a call was made upon.

A damaged file is kept under another name, and a new one begins with what can be read of it and with the breaker open:
what was used of the budgets is not known for sure, and only an operator can say that restarts may go on.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError, LedgerDeniedError, LedgerError, create_private
from tpuwatch.model import Fleet, RestartRecord
from tpuwatch.restart.ledger.base import KEPT_NODES, Stored, StoredFleet
from tpuwatch.restart.ledger.codec import LOOK, DamagedError, decode, encode
from tpuwatch.restart.ledger.file_lock import describe_writer, in_use, unsuspended
from tpuwatch.store import is_damage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.core import Clock
    from tpuwatch.model import Target

FILE_NAME: Final = "ledger.db"
BUSY_SECONDS: Final = 5.0  # how long a call waits for others, who need milliseconds
_APPLICATION_ID: Final = 0x7470776C  # "tpwl"
_VERSION: Final = 1
_TABLES: Final = (
    f"PRAGMA application_id = {_APPLICATION_ID}",
    # One row for each node, by its path, and one for the fleet.
    """CREATE TABLE entries (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, ended REAL, value TEXT NOT NULL) WITHOUT ROWID""",
    # One count for all: a version never comes twice, even of a node whose record was removed in between. It follows
    # the clock, so that it goes on above all others where the file is put back from a copy.
    "CREATE TABLE versions (last INTEGER NOT NULL)",
    "INSERT INTO versions VALUES (0)",
    f"PRAGMA user_version = {_VERSION}",
)
_FLEET: Final = "fleet"
_SELECT: Final = "SELECT version, value FROM entries WHERE name = ?"
_SELECT_RECORDS: Final = "SELECT version, value FROM entries WHERE name <> ? ORDER BY name"
_PUT: Final = "INSERT OR REPLACE INTO entries (name, version, ended, value) VALUES (?, ?, ?, ?)"
_PURGE: Final = """DELETE FROM entries WHERE ended IS NOT NULL AND name NOT IN
    (SELECT name FROM entries WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT ?)"""
_SALVAGE: Final = "SELECT name, version, ended, value FROM entries ORDER BY name"

_log = logging.getLogger(__name__)


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
        """All records, by node. Raises LedgerError."""
        return [self._stored(version, text) for version, text in self._select(_SELECT_RECORDS, _FLEET)]

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes together. Raises LedgerError."""
        found = self._select(_SELECT, _FLEET)
        return (
            StoredFleet(decode(Fleet, found[0][1], str(self.path)), found[0][0]) if found else StoredFleet(Fleet(), 0)
        )

    def write(self, record: RestartRecord, version: int) -> Stored:
        """Store it, on the disk when this returns, if the node's record still is `version` (0: there is none).

        Raises ConflictError if it is not, else LedgerError: then the write is done or not, and it is to be read again.
        """
        ended = None if record.open else max(record.entered, record.requested)
        return Stored(record, self._put(record.target.path, version, ended, encode(record)))

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """Store it, as `write` does, and with the same errors."""
        return StoredFleet(fleet, self._put(_FLEET, version, None, encode(fleet)))

    def stamp(self) -> object:
        """Size and time of the file and of the log beside it. A reader makes an empty log, which is no difference."""
        found = []
        for path in (self.path, self.path.with_name(f"{FILE_NAME}-wal")):
            with contextlib.suppress(OSError):
                entry = path.stat()
                found += [(entry.st_ino, entry.st_mtime_ns, entry.st_size)] if entry.st_size else []
        return tuple(found)

    def server_time(self) -> None:
        """A file has no clock."""

    def purge(self) -> int:
        """Remove the records of the nodes that were restarted longest ago; how many. Raises LedgerError."""
        with self._explained("written"):
            if not self.path.exists():
                return 0
            with self._connected() as connection, _transaction(connection):
                return connection.execute(_PURGE, (KEPT_NODES,)).rowcount

    def set_aside(self) -> bool:
        """Keep a damaged file under another name, and begin a new one; whether that was done. Raises LedgerError.

        Nobody uses the file meanwhile. Where another process has done it before, nothing is done.
        """
        with self._explained("repaired"), in_use(self.path.parent, self._busy_seconds, alone=True):
            if not (damage := self._damage()):
                return False
            self._replace_file(damage)
            return True

    def close(self) -> None:
        """Nothing is held between calls."""

    def _stored(self, version: int, text: str) -> Stored:
        return Stored(decode(RestartRecord, text, str(self.path)), version)

    def _put(self, name: str, version: int, ended: float | None, text: str) -> int:
        try:
            return self._put_once(name, version, ended, text)
        except DamagedError:
            self.set_aside()
            return self._put_once(name, version, ended, text)

    def _put_once(self, name: str, version: int, ended: float | None, text: str) -> int:
        with self._explained("written"):
            self._make_file()
            with self._connected() as connection:
                _use_log(connection)
                with _transaction(connection):
                    return self._replace(connection, name, version, ended, text)

    def _replace(self, connection: sqlite3.Connection, name: str, version: int, ended: float | None, text: str) -> int:
        """Store a value in the place of `version`; its own version."""
        found = connection.execute("SELECT version FROM entries WHERE name = ?", (name,)).fetchone()
        if version != (found[0] if found else 0):
            raise ConflictError(f"{name} in the ledger {self.path} was written by another writer meanwhile")
        last = connection.execute("SELECT last FROM versions").fetchone()
        if last is None:
            raise sqlite3.DatabaseError("its count of versions is not there")
        new = max(int(last[0]) + 1, int(self._clock.time() * 1e6))
        connection.execute("UPDATE versions SET last = ?", (new,))
        connection.execute(_PUT, (name, new, ended, text))
        return new

    def _select(self, sql: str, *values: object) -> list[tuple[int, str]]:
        with self._explained("read"):
            if not self.path.exists():
                return []
            try:
                return self._selected(sql, values)
            except sqlite3.OperationalError as error:
                if "disk I/O error" not in str(error) or not self._is_folded():
                    raise
                # A full disk has no room for SQLite's own files either; nobody can be writing then.
                return self._selected(sql, values, alone=True)

    def _selected(self, sql: str, values: tuple[object, ...], *, alone: bool = False) -> list[tuple[int, str]]:
        with self._connected(alone=alone) as connection:
            # One that was killed before it had made the tables has left an empty file.
            return connection.execute(sql, values).fetchall() if _version(connection) else []

    def _is_folded(self) -> bool:
        """Whether all that was written is in the file itself, and nothing in the log beside it."""
        log = self.path.with_name(f"{FILE_NAME}-wal")
        return not log.exists() or not log.stat().st_size

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
    def _connected(self, *, alone: bool = False) -> Iterator[sqlite3.Connection]:
        """`alone`: what is beside the file is neither made nor read."""
        with unsuspended(), in_use(self.path.parent, self._busy_seconds), self._opened(alone=alone) as connection:
            self._check(connection)
            yield connection

    @contextlib.contextmanager
    def _opened(self, *, alone: bool = False) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"  # never makes a file
        if alone or (_is_read_only(self.path.parent) and not self.path.with_name(f"{FILE_NAME}-wal").exists()):
            uri = f"{uri[:-2]}ro&immutable=1"  # else SQLite would make a log to read it
        connection = sqlite3.connect(uri, uri=True, timeout=self._busy_seconds, isolation_level=None)
        with contextlib.closing(connection):
            connection.execute("PRAGMA synchronous = EXTRA")
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
            raise DamagedError(self._damaged(verdict))
        self._checked = (entry.st_dev, entry.st_ino)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise errors of SQLite and of the system as a LedgerError."""
        try:
            yield
        except sqlite3.Error as error:
            if is_damage(error):
                self._checked = None
                raise DamagedError(self._damaged(str(error))) from error
            why = str(error)
            if "locked" in why and (writer := describe_writer(self.path)):
                raise LedgerError(
                    f"the ledger {self.path} cannot be {what}: it is being written by {writer}"
                ) from error
            if self.path.is_dir():
                raise LedgerError(f"the ledger {self.path} cannot be {what}: it is a directory; {_AWAY}") from error
            if not self._may_be_used():
                raise self._denied(what) from error
            raise LedgerError(f"the ledger {self.path} cannot be {what} ({why}): {_NOT_NOW}") from error
        except OSError as error:
            if isinstance(error, PermissionError) and not self._may_be_used():
                raise self._denied(what) from error
            raise LedgerError(f"the ledger {self.path} cannot be {what} ({error.strerror}): {_NOT_NOW}") from error

    def _may_be_used(self) -> bool:
        """Whether this user may read and write the ledger, as far as the modes of files say."""
        used = self.path if os.path.lexists(self.path) else self.path.parent
        return os.access(used, os.R_OK | os.W_OK) and os.access(self.path.parent, os.W_OK | os.X_OK)

    def _denied(self, what: str) -> LedgerDeniedError:
        return LedgerDeniedError(f"the ledger {self.path} cannot be {what}: uid {os.geteuid()} may not")

    def _damaged(self, how: str) -> str:
        return (
            f"the ledger {self.path} is damaged ({how}): the next write sets it aside and begins a new one; "
            "look at your nodes with `gcloud compute tpus tpu-vm list`, and start those that it may have left stopped"
        )

    # -- a damaged file

    def _damage(self) -> str:
        """What is wrong with the file; "" if it is whole. Raises LedgerError if it is not ours to be replaced."""
        self._checked = None
        try:
            with self._opened() as connection:
                self._check(connection)
                for name, _, _, text in connection.execute(_SALVAGE) if _version(connection) else ():
                    _decode(name, text)
        except DamagedError as error:
            return str(error)
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            return self._damaged(str(error))
        return ""

    def _replace_file(self, damage: str) -> None:
        """Put a new ledger in the place of the damaged one, at once and for good, with what can be read of that."""
        kept = self.path.with_name(
            f"{FILE_NAME}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self._clock.time()))}"
        )
        while kept.exists():
            kept = kept.with_name(f"{kept.name}x")
        fresh = self.path.with_name(f".{FILE_NAME}.new")
        fresh.unlink(missing_ok=True)
        entries = self._salvaged()
        create_private(fresh)
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection, _transaction(connection):
            self._fill(connection, entries, kept.name)
        _flush(fresh)
        for end in ("-wal", "-shm"):  # it belongs to the damaged file, and would be taken up with the new one
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(f"{FILE_NAME}{end}").rename(kept.with_name(f"{kept.name}{end}"))
        os.link(self.path, kept)
        fresh.replace(self.path)
        _flush(self.path.parent)
        self._checked = None
        _log.error(
            "A damaged ledger is kept as %s; the new one holds the %d records that could be read, its breaker open. "
            "What was found: %s",
            *(kept, sum(name != _FLEET for name in entries), damage),
        )

    def _salvaged(self) -> dict[str, tuple[int, float | None, str]]:
        """What can be read of the damaged file, from its beginning and from its end."""
        found: dict[str, tuple[int, float | None, str]] = {}
        for order in ("ASC", "DESC"):
            with contextlib.suppress(sqlite3.Error, OSError), self._opened() as connection:
                for name, version, ended, text in connection.execute(f"{_SALVAGE} {order}"):
                    with contextlib.suppress(DamagedError, TypeError):
                        _decode(name, text)
                        found[str(name)] = (int(version), ended, text)
        return found

    def _fill(
        self, connection: sqlite3.Connection, entries: dict[str, tuple[int, float | None, str]], kept: str
    ) -> None:
        # Higher than any version of before: none comes twice.
        last = max(int(self._clock.time() * 1e6), *(version for version, _, _ in entries.values()), 0) + 1
        fleet = decode(Fleet, entries.pop(_FLEET)[2], kept) if _FLEET in entries else Fleet()
        reason = f"The ledger was damaged and is kept as {kept}: what was used of the budgets is not known. {LOOK}"
        breaker = replace(fleet.breaker, opened=self._clock.time(), reason=reason)
        entries = {_FLEET: (last, None, encode(replace(fleet, breaker=breaker))), **entries}
        connection.executemany(_PUT, [(name, *entry) for name, entry in entries.items()])
        connection.execute("UPDATE versions SET last = ?", (last,))


_NOT_NOW: Final = "check its directory's owner and free space, and what has it open"
_AWAY: Final = (
    "look at your nodes with `gcloud compute tpus tpu-vm list`, start those that it may have left stopped, then move "
    "it away to begin a new one"
)


def _decode(name: object, text: str) -> None:
    """Raise DamagedError if the entry makes no sense. One of another version of tpuwatch is left to that one."""
    try:
        decode(Fleet, text, str(name)) if name == _FLEET else decode(RestartRecord, text, str(name))
    except DamagedError:
        raise
    except LedgerError:
        return


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_read_only(directory: Path) -> bool:
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


def _use_log(connection: sqlite3.Connection) -> None:
    """Have a write-ahead log from now on. Where others use a file without one it goes on without."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing, in tables that are made if they are not there. Waits for others here, and not after it."""
    connection.execute("BEGIN IMMEDIATE")
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
