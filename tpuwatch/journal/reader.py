"""Reading the journal: for the daemon itself, for its HTTP threads, and for commands beside a running daemon."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from tpuwatch.errors import JournalError
from tpuwatch.journal import rows, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.health.verdict import Judgement
    from tpuwatch.model import Cause, Cursor, Event, Launch


class JournalReads:
    """What can be asked of a journal. Any thread may ask: each call has a connection of its own.

    Every method raises JournalError if the journal cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def cursors(self) -> list[Cursor]:
        """Where reading stands in each file, the file that was heard of last at the end."""
        return [rows.cursor_of(row) for row in self._select(rows.SELECT_CURSORS + " ORDER BY seen")]

    def events(
        self,
        *,
        since: float | None = None,
        cause: Cause | None = None,
        history: bool | None = None,
        after_id: int | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[Event]:
        """At most `limit` events, by their own time (`Event.when`), from `since` on, in seconds since the epoch.

        They come in the order of that time; with `after_id`, only those journalled after it, in the order of arrival.
        `newest_first` turns either order round before the limit is applied.
        """
        asked = {
            "at >= ?": since,
            "cause = ?": None if cause is None else cause.value,
            "history = ?": history,
            "id > ?": after_id,
        }
        given = {condition: value for condition, value in asked.items() if value is not None}
        where = f" WHERE {' AND '.join(given)}" if given else ""
        down = " DESC" if newest_first else ""
        order = f"at{down}, id{down}" if after_id is None else f"id{down}"
        found = self._select(f"{rows.SELECT_EVENTS}{where} ORDER BY {order} LIMIT ?", *given.values(), limit)
        return [event for row in found if (event := rows.event_of(row)) is not None]

    def counts(self) -> dict[Cause, int]:
        """How many events there are of each cause that has any."""
        found = self._select(f"{rows.COUNT_EVENTS} GROUP BY cause")
        return {cause: count for value, count in found if (cause := rows.cause_of(value)) is not None}

    def last_id(self) -> int:
        """The number of the event that was journalled last: where `after_id` starts. 0 if there is none."""
        return int(self._select("SELECT coalesce(max(id), 0) FROM events")[0][0])

    def launches(self, limit: int = 100) -> list[Launch]:
        """The `limit` launches that started last, the newest first."""
        found = self._select(rows.SELECT_LAUNCHES + " ORDER BY started DESC, pid DESC LIMIT ?", limit)
        return [rows.launch_of(row) for row in found]

    def verdicts(self, node: str | None = None, limit: int = 100) -> list[Judgement]:
        """The `limit` latest changes of verdict, of one node or of all, the newest first."""
        where, values = ("", ()) if node is None else (" WHERE node = ?", (rows.storable(node),))
        found = self._select(f"{rows.SELECT_VERDICTS}{where} ORDER BY id DESC LIMIT ?", *values, limit)
        return [judgement for row in found if (judgement := rows.verdict_of(row)) is not None]

    def last_verdicts(self, boot_id: str) -> dict[str, Judgement]:
        """The last verdict on each node that was stored while this machine's boot was `boot_id`."""
        found = self._select(rows.SELECT_LAST_VERDICTS, boot_id)
        return {judgement.node: judgement for row in found if (judgement := rows.verdict_of(row)) is not None}

    def size_bytes(self) -> int:
        """What the journal holds, without the space that is free for reuse inside its file."""
        with self._reading() as connection:
            return used_bytes(connection)

    def _select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read. A new one each time costs less than a millisecond and never shows an old state."""
        try:
            with contextlib.closing(schema.connect_read_only(self._path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> JournalError:
        return JournalError(f"cannot read the journal {self._path}: {error}; may this user read it and its directory?")


class JournalReader(JournalReads):
    """Reads a state directory's journal without locking it, whether or not a daemon is at work there."""

    @classmethod
    def open(cls, directory: Path) -> JournalReader:
        """The journal in `directory`. Raises JournalError if there is none, or none that this version can read."""
        path = directory / schema.FILE_NAME
        reader = cls(path)
        try:
            path.stat()
        except FileNotFoundError as error:
            raise JournalError(
                f"there is no journal in {directory}: start `tpuwatch run`, or name its directory as [state] dir"
            ) from error
        except OSError as error:
            raise reader._unreadable(error) from error
        with reader._reading() as connection:
            _check_version(connection, path)
        return reader


def used_bytes(connection: sqlite3.Connection) -> int:
    """The pages in use, in bytes; SQLite knows it without looking at them."""
    size, pages, free = page_figures(connection)
    return size * (pages - free)


def page_figures(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """The size of a page in bytes, how many the file has, and how many of them are free."""
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return size, pages, free


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    version = schema.user_version(connection)
    if version > schema.VERSION:
        raise JournalError(f"the journal {path} is of a newer tpuwatch (schema {version}): upgrade this one")
    if version < schema.VERSION:
        raise JournalError(f"the journal {path} is of an older tpuwatch: restart `tpuwatch run`, which converts it")
