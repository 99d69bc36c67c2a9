"""The tables of the journal, how they came to be, and how a connection to them is made."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_NAME = "journal.db"
APPLICATION_ID = 0x74707577  # "tpuw": tells our files from other people's SQLite files

# One entry per version of the schema: what leads there from the version before. A released entry never changes.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        # `at` is the event's own time or, without one, that of reading: what people ask for.
        """CREATE TABLE events (
            id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, rule TEXT, cause TEXT, observed REAL, time REAL, at REAL,
            severity TEXT, pid INTEGER, file TEXT, offset INTEGER, text TEXT, details TEXT, history INTEGER)""",
        "CREATE INDEX events_at ON events (at, cause, history)",
        """CREATE TABLE cursors (
            device INTEGER, inode INTEGER, head BLOB, path TEXT, offset INTEGER, state TEXT, history_until INTEGER,
            seen REAL, PRIMARY KEY (device, inode, head)) WITHOUT ROWID""",
        # A launch gains facts with every version: only what is searched for has a column, the rest is JSON.
        "CREATE TABLE launches (id INTEGER PRIMARY KEY, started REAL, pid INTEGER, facts TEXT, UNIQUE (started, pid))",
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    ),
    (
        # Changes only: what a node is holds until its next row.
        """CREATE TABLE verdicts (
            id INTEGER PRIMARY KEY, node TEXT NOT NULL, verdict TEXT, at REAL, since REAL, boot_id TEXT, facts TEXT)""",
        "CREATE INDEX verdicts_node ON verdicts (node, id)",
    ),
    (
        # What the Cloud TPU API last said of each node, as far as a later run has to know it.
        """CREATE TABLE cloud_nodes (
            project TEXT, zone TEXT, name TEXT, stored REAL, facts TEXT,
            PRIMARY KEY (project, zone, name)) WITHOUT ROWID""",
    ),
)
VERSION = len(MIGRATIONS)

_BUSY_SECONDS = 5.0  # for strangers with a lock (a shell, a backup): our own readers never block the writer
_CACHE_KIB = 4096  # bounds the memory however large the file is
_CHECKPOINT_PAGES = 4000  # 16 MiB: a page that many commits touch is carried over once, which is most of a storm's cost


def connect(path: Path) -> sqlite3.Connection:
    """A connection that may write. Nothing is created in the file yet.

    In WAL mode a commit is one append to the log that the kernel has before the call returns, so a SIGKILL loses none
    of it. synchronous=NORMAL flushes to the disk at checkpoints only: a power cut may take the last commits, but whole
    ones and in order. As events and the offsets that they were read up to go together, the same bytes are then read
    again: nothing is lost, nothing is doubled, and no commit waits for the disk.
    """
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        user_version(connection)  # makes SQLite look at the file: rubbish is refused before anything is changed
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # counts only before the first table; must precede journal_mode
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
    """A connection that cannot write and needs no right to write, with or without a daemon at work."""
    uri = read_only_uri(path)
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA cache_size = -2048")
    return connection


def read_only_uri(path: Path) -> str:
    """The SQLite URI by which `path` can be read, whether or not we may write beside it.

    SQLite reads a WAL file by way of its -shm file, which a stopped daemon leaves none of and which cannot be made in a
    directory of others. Then, and only then, the file is not going to change and can be read as it is ("immutable").
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    try:
        user_version(connection)
    except sqlite3.OperationalError:
        if not path.exists() or path.with_name(f"{path.name}-wal").exists():
            raise
        uri += "&immutable=1"
    finally:
        connection.close()
    return uri


def user_version(connection: sqlite3.Connection, database: str = "main") -> int:
    """The schema's version in the file: 0 where nothing has been made yet."""
    return int(connection.execute(f"PRAGMA {database}.user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the tables to the newest version, all of it or nothing. Also finds out whether the file can be written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = user_version(connection)
        for statements in migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(migrations):
            connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file itself is broken or no database, and not that something stands in its way."""
    return type(error) is sqlite3.DatabaseError  # Python keeps the plain class for just these two
