"""Opens a state directory: its lock, its store file, and what to do when either is not usable."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tpuwatch.core import StoreBusyError
from tpuwatch.store import rows, schema

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core import Clock

LOCK_NAME = "store.lock"
_FORMER_LOCK_NAME = "journal.lock"  # of the version that named the file schema.FORMER_NAME
# What one store takes over from another: a query of the one, a statement for the other. Of events and verdicts it is
# enough to recognise copies and to show the recent past.
_COPIED = (
    ("SELECT places, key FROM events WHERE places IS NOT NULL", "UPDATE events SET places = ? WHERE key = ?"),
    (
        "SELECT name, value FROM meta",
        "INSERT INTO meta VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE name <> 'first_run_time'",
    ),
    (rows.SELECT_BASELINES, rows.REPLACE_BASELINE),
    ("SELECT launch, step, at, seconds FROM pace", rows.ADD_STEP),
    (rows.SELECT_TOTALS, "INSERT OR REPLACE INTO totals (series, label, number) VALUES (?, ?, ?)"),
    ("SELECT device, inode, head FROM cursors", rows.DROP_OTHER_HEADS),
    ("SELECT device, inode, head, path, offset, state, history_until, seen FROM cursors", rows.REPLACE_CURSOR),
    ("SELECT started, pid, facts FROM launches ORDER BY id", rows.UPSERT_LAUNCH),
    (
        "SELECT node, verdict, at, since, boot_id, facts FROM verdicts WHERE id IN"
        " (SELECT max(id) FROM verdicts GROUP BY node ORDER BY max(id) DESC LIMIT 10000) ORDER BY id",
        "INSERT INTO verdicts (node, verdict, at, since, boot_id, facts) SELECT ?1, ?2, ?3, ?4, ?5, ?6"
        " WHERE NOT EXISTS (SELECT 1 FROM verdicts WHERE node = ?1 AND at = ?3)",
    ),
    ("SELECT project, zone, name, stored, facts FROM cloud_nodes", rows.REPLACE_CLOUD_NODE),
    ("SELECT began, source, name, pid, user, until, facts FROM step_runs", rows.REPLACE_STEP_RUN),
    (rows.SELECT_NODE_SPANS, rows.REPLACE_NODE_SPAN),
)
_SELECT_EVENTS = """SELECT id, key, rule, cause, observed, time, at, severity, pid, file, offset, text, details,
    history, repeats, since, spread FROM (SELECT * FROM events ORDER BY id DESC LIMIT 10000) ORDER BY id"""
_SELECT_REPEATS = """SELECT key, event FROM (SELECT * FROM repeats ORDER BY id DESC LIMIT 200000)
    WHERE event >= ? ORDER BY id"""

FileIds = tuple["tuple[int, int] | None", ...]


class DirectoryLock:
    """Ensures one daemon per state directory. The kernel releases the lock when its holder dies."""

    def __init__(self, directory: Path, name: str = LOCK_NAME) -> None:
        """Take the lock. Raises StoreBusyError if another process has it, OSError if the file cannot be opened."""
        path = self._path = directory / name
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

    @property
    def is_in_place(self) -> bool:
        """Whether the file of that name is the one that is locked, so that it keeps another daemon out."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Release the lock. The file stays: its removal would allow two holders at once."""
        os.close(self._fd)


def lock_directory(directory: Path, held: DirectoryLock | None = None) -> DirectoryLock:
    """Lock `directory`, which is created if necessary. `held` is a lock of it whose file may have been deleted.

    Raises StoreBusyError and OSError as DirectoryLock.
    """
    if held is not None and held.is_in_place:
        return held
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    lock = DirectoryLock(directory)
    if held is not None:
        held.release()
    return lock


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
    connection = new_memory()
    try:
        if path.exists():
            with contextlib.closing(schema.connect_read_only(path)) as file:
                version = schema.user_version(file)
                if version == schema.VERSION:
                    copy(file, connection)
                elif version:  # else there was no room to begin it
                    notices.append(f"{path} is of another version of tpuwatch: nothing was read from it")
    except sqlite3.Error as error:
        notices.append(f"nothing could be read from {path} ({error})")
    except OSError:
        pass  # the notice about the directory says it
    return connection


def new_memory() -> sqlite3.Connection:
    """An empty store in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    schema.migrate(connection)
    return connection


def copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Add the contents of a store to another one, of the events and verdicts the latest, or raise and change nothing.

    Where both have something, `source` is right: it is the later one. Events keep their ids, unless `target` has
    others with such ids: then they follow those.
    """
    target.execute("BEGIN IMMEDIATE")
    try:
        known = "SELECT 1 FROM events WHERE key = ?"
        events = [row for row in source.execute(_SELECT_EVENTS) if not target.execute(known, row[1:2]).fetchone()]
        if events:
            last = target.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]
            shift = max(0, last + 1 - events[0][0])
            target.executemany(rows.INSERT_EVENT, ((number + shift, *rest[:-3]) for number, *rest in events))
            counted = [(number + shift, *rest[-3:]) for number, *rest in events if rest[-3]]
            target.executemany("UPDATE events SET repeats = ?2, since = ?3, spread = ?4 WHERE id = ?1", counted)
            target.executemany(
                rows.INSERT_REPEAT,
                ((key, event + shift) for key, event in source.execute(_SELECT_REPEATS, events[0][:1])),
            )
        for select, insert in _COPIED:
            target.executemany(insert, source.execute(select))
        target.execute("COMMIT")
    except BaseException:
        if target.in_transaction:
            target.execute("ROLLBACK")
        raise


def file_ids(path: Path) -> FileIds:
    """Device and inode of each file of an open database, None for one that is not there.

    They stay the same while the database is open, unless someone deletes or replaces a file.
    """
    return tuple(map(_file_id, (f"{path}{suffix}" for suffix in ("", "-wal", "-shm"))))


def _file_id(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - a Path costs more than the call, which each read makes
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _UnusableError(Exception):
    """This version cannot use the file. `kind` becomes part of the name that it is kept under."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _checked(path: Path) -> sqlite3.Connection:
    try:
        if path.exists():
            _drop_orphaned_index(path)
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


def _drop_orphaned_index(path: Path) -> None:
    """Remove a -shm without its -wal. If a reader has it open, SQLite would look for the deleted log's pages."""
    if not path.with_name(f"{path.name}-wal").exists():
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)


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
