"""Reads the store: for the daemon, its HTTP threads, and commands beside a running daemon."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING, Any

from tpuwatch.core import StoreDeniedError, StoreError
from tpuwatch.store import rows, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.model import Cause, Cursor, Event, Judgement, Launch, NodeSpan, PaceRecord, StepRun


class StoreReads:
    """The queries of a store. Thread-safe: each call has its own connection.

    Every method raises StoreError if the store cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def cursors(self) -> list[Cursor]:
        """How far each file is read, ordered by when the file was last known to exist."""
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

        Ordered by that time; with `after_id`, only those stored after it, in the order of storage. `newest_first`
        reverses the order before the limit is applied.
        """
        conditions = {
            "at >= ?": since,
            "cause = ?": None if cause is None else cause.value,
            "history = ?": history,
            "id > ?": after_id,
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        where = f" WHERE {' AND '.join(given)}" if given else ""
        down = " DESC" if newest_first else ""
        order = f"at{down}, id{down}" if after_id is None else f"id{down}"
        found = self._select(f"{rows.SELECT_EVENTS}{where} ORDER BY {order} LIMIT ?", *given.values(), limit)
        return [event for row in found if (event := rows.event_of(row)) is not None]

    def counts(self) -> dict[Cause, int]:
        """The number of events of each cause that has any."""
        found = self._select(f"{rows.COUNT_EVENTS} GROUP BY cause")
        return {cause: count for value, count in found if (cause := rows.cause_of(value)) is not None}

    def totals(self) -> dict[tuple[str, str], int]:
        """What commits have counted since the first run, by series and value of its label; see `EventStore.commit`."""
        return {(series, label): number for series, label, number in self._select(rows.SELECT_TOTALS)}

    def last_id(self) -> int:
        """The id of the event stored last, for `after_id`; 0 if there is none."""
        return int(self._select("SELECT coalesce(max(id), 0) FROM events")[0][0])

    def launches(self, limit: int = 100) -> list[Launch]:
        """The `limit` launches that started last, the newest first, without those that are superseded."""
        found = self._select(rows.SELECT_LAUNCHES + " ORDER BY started DESC, pid DESC LIMIT ?", limit)
        return [launch for launch in map(rows.launch_of, found) if not launch.superseded]

    def step_runs(self, since: float = 0.0, limit: int = 1000) -> list[StepRun]:
        """Steps of training loops that were seen since then, in the order of their start: the `limit` latest."""
        sql = f"{rows.SELECT_STEP_RUNS} WHERE until >= ? ORDER BY began DESC LIMIT ?"
        found = map(rows.step_run_of, self._select(sql, since, limit))
        return [run for run in found if run is not None][::-1]

    def node_spans(self, since: float = 0.0) -> list[NodeSpan]:
        """How the node was since then, in the order of time."""
        found = self._select(f"{rows.SELECT_NODE_SPANS} WHERE until >= ? ORDER BY since", since)
        return [span for row in found if (span := rows.node_span_of(row)) is not None]

    def last_verdicts(self, boot_id: str) -> dict[str, Judgement]:
        """The last verdict on each node that was stored while this machine's boot was `boot_id`."""
        found = self._select(rows.SELECT_LAST_VERDICTS, boot_id)
        return {judgement.node: judgement for row in found if (judgement := rows.verdict_of(row)) is not None}

    def paces(self, workload: str, limit: int) -> list[PaceRecord]:
        """The pace of the workload's launches that made a step last, the newest first."""
        with self._reading() as connection:
            sql = rows.SELECT_BASELINES + " WHERE workload = ? ORDER BY at DESC LIMIT ?"
            found = connection.execute(sql, (rows.storable(workload), limit)).fetchall()
            records = [rows.pace_of(row, connection.execute(rows.SELECT_PACE, row[:1])) for row in found]
        return [record for record in records if record is not None]

    def size_bytes(self) -> int:
        """The size of the store in bytes, without the free space inside its file."""
        with self._reading() as connection:
            return used_bytes(connection)

    def _select(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read. Opening it takes less than a millisecond, and it never shows an old state."""
        try:
            with contextlib.closing(schema.connect_read_only(self._path)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StoreError:
        if isinstance(error, PermissionError) or not os.access(self._path, os.R_OK):
            return StoreDeniedError(f"this user may not read the store {self._path}")
        return StoreError(f"cannot read the store {self._path}: {error}")


class StoreReader(StoreReads):
    """Reads the store of a state directory without its lock, whether or not a daemon is running."""

    @classmethod
    def open(cls, directory: Path) -> StoreReader:
        """The store in `directory`. Raises StoreError if there is none, or none that this version can read."""
        path = directory / schema.FILE_NAME
        reader = cls(path)
        try:
            path.stat()
        except FileNotFoundError as error:
            if path.with_name(schema.FORMER_NAME).exists():
                raise _outdated(path.with_name(schema.FORMER_NAME)) from error
            raise StoreError(
                f"there is no store in {directory}: start `tpuwatch run`, or name its directory as [state] dir"
            ) from error
        except OSError as error:
            raise reader._unreadable(error) from error
        with reader._reading() as connection:
            _check_version(connection, path)
        return reader


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the pages in use, in bytes; SQLite knows it without reading them."""
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
    if version == 0:
        raise StoreError(f"the store {path} is empty: `tpuwatch run` had no room to begin it; free some")
    if version > schema.VERSION:
        raise StoreError(f"the store {path} is of a newer tpuwatch (schema {version}): upgrade this one")
    if version < schema.VERSION:
        raise _outdated(path)


def _outdated(path: Path) -> StoreError:
    return StoreError(f"the store {path} is of an older tpuwatch: restart `tpuwatch run`, which converts it")
