"""The writing side of the journal: one per state directory, held by the daemon."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tpuwatch.clock import Clock
from tpuwatch.errors import JournalError
from tpuwatch.journal import opening, rows, schema
from tpuwatch.journal.reader import JournalReader, used_bytes
from tpuwatch.model import Cursor, Event, Launch

PRUNE_LIMIT = 5000  # events that one call of prune removes at most: some tens of milliseconds
KEPT_LAUNCHES = 10_000
KEPT_CURSORS = 20_000
MEMORY_BYTES = 32 << 20  # a journal in memory never holds more, whatever the configuration allows on disk
_VACUUM_PAGES = 2000  # pages that one call of prune gives back at most

_INSERT_EVENT = f"INSERT INTO events ({rows.EVENT_COLUMNS}) VALUES (?{', ?' * 13}) ON CONFLICT (key) DO NOTHING"
_PUT_CURSOR = f"INSERT OR REPLACE INTO cursors ({rows.CURSOR_COLUMNS}) VALUES (?{', ?' * 7})"
# A file that has grown since its first bytes were taken is the same file: its older, shorter head goes.
_DROP_SHORTER = "DELETE FROM cursors WHERE device = ? AND inode = ? AND head <> ?3 AND substr(?3, 1, length(head)) = head"
_PUT_LAUNCH = """INSERT INTO launches (started, pid, facts) VALUES (?, ?, ?)
    ON CONFLICT (started, pid) DO UPDATE SET facts = excluded.facts"""


class Journal(JournalReader):
    """Events, launches and read offsets of one machine.

    One thread writes (`commit`, `prune`, `forget_cursors`, `close`); any thread reads at any time.
    """

    notices: tuple[str, ...]  # what had to be done at opening, for the log and the status
    durable: bool  # False: the directory cannot be written, all is kept in memory and ends with the process
    first_run: bool  # no earlier run has left anything here; stays so until one commit has been made
    first_run_time: float  # when tpuwatch first ran here, in seconds since the epoch
    last_boot_id: str | None  # the boot id that the run before was given
    last_clean_stop: float | None  # when the run before was closed, in seconds since the epoch; None if it was not

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: opening.DirectoryLock | None, clock: Clock, boot_id: str
    ) -> None:
        """For `open`, which is the way to get one."""
        super().__init__(path)
        self._connection = connection
        self._directory_lock = lock
        self._clock = clock
        self._thread_lock = threading.RLock()
        self._closed = self._damaged = False
        self.notices = ()
        self.durable = lock is not None
        self._load_meta(boot_id)

    @classmethod
    def open(cls, directory: Path, clock: Clock, *, boot_id: str = "") -> Journal:  # type: ignore[override]  # a writer needs more
        """Lock `directory` (made if it is not there) and open its journal; see `notices` for what had to be done.

        Raises JournalBusyError if another process holds the directory. `boot_id` is the machine's boot, for the next run.
        """
        path = directory / schema.FILE_NAME
        notices: list[str] = []
        lock = None
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            lock = opening.DirectoryLock(directory)
            connection = opening.open_file(path, clock, notices)
        except (OSError, sqlite3.OperationalError) as error:
            if lock is not None:
                lock.release()
                lock = None
            notices.append(
                f"the journal cannot be kept in {directory} ({error}): it is in memory, and lost when tpuwatch ends; "
                "make the directory writable, with room, and restart tpuwatch"
            )
            connection = opening.open_memory(path, notices)
        journal = cls(path, connection, lock, clock, boot_id)
        journal.notices = tuple(notices)
        return journal
