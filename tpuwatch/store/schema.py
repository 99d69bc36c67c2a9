"""The tables of the store, their migrations, and how to connect to them."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Migration = tuple["str | Callable[[sqlite3.Connection], None]", ...]  # SQL statements and functions

FILE_NAME = "store.db"
FORMER_NAME = "journal.db"  # of the file, up to schema version 3
APPLICATION_ID = 0x74707577  # "tpuw": distinguishes it from the SQLite files of other programs


def _rename_verdict_words(connection: sqlite3.Connection) -> None:
    """Translate the keys and values of stored verdicts that were renamed with version 4."""
    rows = connection.execute("SELECT id, facts FROM verdicts").fetchall()
    translated = [(facts, number) for number, stored in rows if (facts := _translated(stored)) is not None]
    connection.executemany("UPDATE verdicts SET facts = ? WHERE id = ?", translated)


def _translated(stored: str) -> str | None:
    """The facts of a verdict in the words of version 4; None if they are already, or are not readable."""
    try:
        facts = json.loads(stored)
        confidence, action = facts.pop("sureness"), facts.pop("rung")
        facts["confidence"] = {"certain": "high", "likely": "medium", "weak": "low"}.get(confidence, confidence)
        facts["action"] = {"nothing": "none", "ask": "manual"}.get(action, action)
        facts["reasons"] = [["peer" if source == "agent" else source, *rest] for source, *rest in facts["reasons"]]
    except (ValueError, TypeError, KeyError):
        return None
    return json.dumps(facts, separators=(",", ":"))


# One entry per version of the schema: the steps from the version before. A released entry never changes.
MIGRATIONS: tuple[Migration, ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        # `at` is the event's own time or, without one, the time of reading.
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, rule TEXT, cause TEXT, observed REAL, time REAL, at REAL,
            severity TEXT, pid INTEGER, file TEXT, offset INTEGER, text TEXT, details TEXT, history INTEGER)""",
        "CREATE INDEX events_at ON events (at, cause, history)",
        """CREATE TABLE cursors (
            device INTEGER, inode INTEGER, head BLOB, path TEXT, offset INTEGER, state TEXT, history_until INTEGER,
            seen REAL, PRIMARY KEY (device, inode, head)) WITHOUT ROWID""",
        # A launch gains facts with every version: only what queries need has a column, the rest is JSON.
        "CREATE TABLE launches (id INTEGER PRIMARY KEY, started REAL, pid INTEGER, facts TEXT, UNIQUE (started, pid))",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    ),
    (
        # Changes only: a verdict holds until the next row of its node.
        """CREATE TABLE verdicts (
            id INTEGER PRIMARY KEY, node TEXT NOT NULL, verdict TEXT, at REAL, since REAL, boot_id TEXT, facts TEXT)""",
        "CREATE INDEX verdicts_node ON verdicts (node, id)",
    ),
    (
        # The last answer of the Cloud TPU API for each node, as far as a later run needs it.
        """CREATE TABLE cloud_nodes (
            project TEXT, zone TEXT, name TEXT, stored REAL, facts TEXT,
            PRIMARY KEY (project, zone, name)) WITHOUT ROWID""",
    ),
    (_rename_verdict_words,),
    (
        # How much has been counted since the first run: events are removed, these numbers never. They begin at 0 for a
        # store of before, as a number that leaps would look like so many failures at once.
        "CREATE TABLE totals (series TEXT, label TEXT, number INTEGER, PRIMARY KEY (series, label)) WITHOUT ROWID",
    ),
    ("ALTER TABLE events ADD COLUMN places TEXT",),  # a line of JSON for each; null: there are none
    (
        "ALTER TABLE events ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE events ADD COLUMN since REAL",
        # The keys of records that are stored with an event: each is counted once, in whichever files it stands. They
        # are numbered in the order of storage, in which they are removed.
        "CREATE TABLE repeats (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, event INTEGER NOT NULL)",
    ),
    ("ALTER TABLE events ADD COLUMN spread TEXT",),  # JSON; null: its repeats state what it does
    (
        # The pace of training loops, of a launch each: what the detector of slow steps knows, and the step times.
        """CREATE TABLE baselines (
            launch INTEGER PRIMARY KEY, workload TEXT, run TEXT, step INTEGER, at REAL, facts TEXT)""",
        "CREATE INDEX baselines_workload ON baselines (workload, at)",
        """CREATE TABLE pace (
            launch INTEGER, step INTEGER, at INTEGER, seconds REAL, PRIMARY KEY (launch, step)) WITHOUT ROWID""",
        # Steps of training loops and how the node was, from which follows where the time of trainings went.
        """CREATE TABLE step_runs (
            began REAL, source TEXT, name TEXT, pid INTEGER, user TEXT, until REAL, facts TEXT,
            PRIMARY KEY (began, source, name, pid)) WITHOUT ROWID""",
        """CREATE TABLE node_spans (
            kind TEXT, since REAL, until REAL, boot_id TEXT, PRIMARY KEY (kind, since)) WITHOUT ROWID""",
    ),
)
VERSION = len(MIGRATIONS)

_BUSY_SECONDS = 5.0  # waiting for the lock of another program (a shell, a backup): our readers never block the writer
_CACHE_KIB = 4096  # bounds the memory whatever the size of the file
_CHECKPOINT_PAGES = (
    4000  # 16 MiB: a page that many commits change is copied once, which saves most of the cost of many events
)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may write. Nothing is created in the file yet.

    In WAL mode a commit is one append to the log, which the kernel has before the call returns, so a SIGKILL loses
    nothing. synchronous=NORMAL flushes to the disk at checkpoints only: a power cut may lose the last commits, whole
    and in order. As events and their offsets are committed together, the same bytes are then read again: nothing is
    lost or doubled, and no commit waits for the disk.
    """
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        user_version(connection)  # makes SQLite read the file: an invalid one is refused before anything is changed
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # effective only before the first table; must precede journal_mode
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
            f"journal_size_limit = {_CHECKPOINT_PAGES * 4096}",
            f"cache_size = -{_CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A read-only connection, which needs no write permission, whether or not a daemon is running."""
    uri = read_only_uri(path)
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA cache_size = -2048")
    return connection


def read_only_uri(path: Path) -> str:
    """The SQLite URI to read `path` with, whether or not its directory is writable.

    SQLite reads a WAL file through its -shm file, which a stopped daemon does not leave and which cannot be made in a
    directory without write permission, or on a full disk. If nothing is in the WAL file either, no one writes, and the
    file is opened as "immutable".
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    try:
        user_version(connection)
    except sqlite3.OperationalError:
        wal = path.with_name(f"{path.name}-wal")
        if not path.exists() or (wal.exists() and wal.stat().st_size):
            raise
        uri += "&immutable=1"
    finally:
        connection.close()
    return uri


def user_version(connection: sqlite3.Connection) -> int:
    """The schema's version in the file: 0 if it has no tables yet."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the tables to the newest version in one transaction, which also checks that the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = user_version(connection)
        for migration in migrations[version:]:
            for step in migration:
                connection.execute(step) if isinstance(step, str) else step(connection)
        if version < len(migrations):
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the error means that the file is damaged or no database, not that it cannot be accessed."""
    return type(error) is sqlite3.DatabaseError  # Python raises the plain class for these two only
