"""Opens a state directory: its lock, its store file, and what to do when either is not usable."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tpuwatch.core import StoreBusyError
from tpuwatch.store import schema

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core import Clock

LOCK_NAME = "store.lock"
_FORMER_LOCK_NAME = "journal.lock"  # of the version that named the file schema.FORMER_NAME
# What a store in memory copies from the file: of the events enough to recognise copies and to show the recent past.
_SEEDS = (
    "INSERT INTO main.meta SELECT * FROM file.meta",
    "INSERT INTO main.cursors SELECT * FROM file.cursors",
    "INSERT INTO main.launches SELECT * FROM file.launches",
    "INSERT INTO main.events SELECT * FROM (SELECT * FROM file.events ORDER BY id DESC LIMIT 10000) ORDER BY id",
    "INSERT INTO main.verdicts SELECT * FROM file.verdicts"
    " WHERE id IN (SELECT max(id) FROM file.verdicts GROUP BY node ORDER BY max(id) DESC LIMIT 10000)",
    "INSERT INTO main.cloud_nodes SELECT * FROM file.cloud_nodes",
)


class DirectoryLock:
    """Ensures one daemon per state directory. The kernel releases the lock when its holder dies."""

    def __init__(self, directory: Path, name: str = LOCK_NAME) -> None:
        """Take the lock. Raises StoreBusyError if another process has it, OSError if the file cannot be opened."""
        path = directory / name
        try:
            # Who may open it may lock it and so keep the daemon out: its own user only.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)  # not writable, but it can be locked
            except OSError:
                raise error from None
        try:
            self._take(directory)
        except BaseException:
            self.release()
            raise

    def _take(self, directory: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            raise StoreBusyError(
                f"another tpuwatch ({f'pid {holder}' if holder else 'pid unknown'}) uses the state directory "
                f"{directory}: stop that one, or give this one another [state] dir"
            ) from error
        with contextlib.suppress(OSError):  # full or read-only: the lock holds nevertheless
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Release the lock. The file stays: its removal would allow two holders at once."""
        os.close(self._fd)


def take_over_former(directory: Path, notices: list[str]) -> None:
    """Rename the store of the version that called it journal.db. For the holder of the lock.

    Raises StoreBusyError if a daemon of that version is running, OSError if the directory cannot be written.
    """
    former, path = directory / schema.FORMER_NAME, directory / schema.FILE_NAME
    if path.exists() or not former.exists():
        return
    lock = DirectoryLock(directory, _FORMER_LOCK_NAME)
    try:
        _rename_database(former, path)
        (directory / _FORMER_LOCK_NAME).unlink()
    finally:
        lock.release()
    notices.append(f"{former}, the store of an earlier tpuwatch, was renamed to {path.name} and is used")


def open_file(path: Path, clock: Clock, notices: list[str]) -> sqlite3.Connection:
    """A writable connection to an up-to-date store. An unusable file is set aside, with a notice.

    Raises OSError or sqlite3.OperationalError if the directory cannot be written.
    """
    try:
        return _checked(path)
    except _UnusableError as fault:
        kept = _set_aside(path, fault.kind, clock.time())
        notices.append(f"{path} {fault}: it was kept as {kept.name}, and a new store begun")
    return _checked(path)


def open_memory(path: Path, notices: list[str]) -> sqlite3.Connection:
    """A store in memory, filled with what can be read from `path`."""
    connection = sqlite3.connect(":memory:", uri=True, isolation_level=None, check_same_thread=False)
    schema.migrate(connection)
    with contextlib.suppress(OSError):
        if path.exists():
            _seed(connection, path, notices)
    return connection


class _UnusableError(Exception):
    """This version cannot use the file. `kind` becomes part of the name that it is kept under."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _checked(path: Path) -> sqlite3.Connection:
    try:
        if path.exists():
            _check(path)
        _keep_private(path)
        connection = schema.connect(path)
        try:
            schema.migrate(connection)
        except sqlite3.Error:
            connection.close()
            raise
    except sqlite3.DatabaseError as error:
        if schema.is_damage(error):
            raise _UnusableError("corrupt", f"is damaged ({error})") from error
        raise
    return connection


def _keep_private(path: Path) -> None:
    """Only its owner may read the store, which quotes logs. SQLite gives its other files the mode of the first."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError, PermissionError):  # owned by another user
            path.with_name(path.name + suffix).chmod(0o600)


def _check(path: Path) -> None:
    """Raise _UnusableError if the file cannot be used. It is opened read-only: one that is set aside is not changed."""
    try:
        connection = schema.connect_read_only(path)
    except sqlite3.OperationalError:
        return  # the writable connection reports the reason
    with contextlib.closing(connection):
        version = schema.user_version(connection)
        if version > schema.VERSION:
            message = f"was written by a newer tpuwatch (schema {version}, this one: {schema.VERSION})"
            raise _UnusableError("newer", message)
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise _UnusableError("foreign", "is a database of some other program")
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]  # a quarter of a second for 256 MiB
        if verdict != "ok":
            raise _UnusableError("corrupt", f"is damaged ({' '.join(verdict.split())})")


def _set_aside(path: Path, kind: str, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    kept = path.with_name(f"{path.name}.{kind}-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{kind}-{stamp}.{number}")
    _rename_database(path, kept)
    return kept


def _rename_database(path: Path, target: Path) -> None:
    """Rename a database with its -wal and -shm. If it is interrupted, a second call completes it."""
    for suffix in ("-wal", "-shm", ""):  # the main file last: SQLite deletes a -wal that has none
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(target.with_name(target.name + suffix))


def _seed(connection: sqlite3.Connection, path: Path, notices: list[str]) -> None:
    try:
        connection.execute("ATTACH ? AS file", (schema.read_only_uri(path),))
        if schema.user_version(connection, "file") != schema.VERSION:
            notices.append(f"{path} is of another version of tpuwatch: nothing was read from it")
            return
        connection.execute("BEGIN")
        for statement in _SEEDS:
            connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        notices.append(f"nothing could be read from {path} ({error})")
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("DETACH file")
