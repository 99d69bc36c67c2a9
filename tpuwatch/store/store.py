"""Writes the store: one per state directory, opened by the daemon."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

from tpuwatch.core import StoreBusyError, StoreError
from tpuwatch.store import opening, rows, schema
from tpuwatch.store.reader import StoreReads, page_figures, used_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tpuwatch.core import Clock
    from tpuwatch.model import (
        CloudNode,
        Cursor,
        Event,
        Judgement,
        Launch,
        NodeSpan,
        PaceRecord,
        Place,
        Repetition,
        StepRun,
    )

    Counted = Mapping[tuple[str, str], int]
    Count = Callable[[Sequence[Event], Sequence[tuple[Event, Sequence[bytes]]]], Counted]

PRUNE_LIMIT = 5000  # events that one call of prune removes at most: some tens of milliseconds
KEPT_LAUNCHES = 10_000
KEPT_VERDICTS = 20_000  # and the latest one of each node besides, up to the same number
KEPT_NODE_VERDICTS = 500  # of one node
KEPT_CLOUD_NODES = 20_000
CLOUD_NODES_SECONDS = 900.0
KEPT_CURSORS = 200_000
KEPT_PACES = 200  # launches, of some 20 KB each
KEPT_STEP_RUNS = 500  # of some 10 KiB each
KEPT_USER_STEP_RUNS = 200  # of one user, who can begin any number
KEPT_NODE_SPANS = 2000
MEMORY_BYTES = 32 << 20  # the limit of a store in memory, whatever the configuration allows
_VACUUM_PAGES = 2000  # pages that one call of prune frees at most

_LAST_READ_BEFORE = "SELECT max(id) FROM (SELECT id, observed FROM events ORDER BY id LIMIT ?) WHERE observed < ?"
_ID_RANGE = "SELECT (SELECT min(id) FROM events), (SELECT max(id) FROM events)"  # each is an index lookup
_LAST_OF_OLDEST = "SELECT max(id) FROM (SELECT id FROM events ORDER BY id LIMIT ?)"
# The oldest ones, of events that are gone.
_DROP_REPEATS = """DELETE FROM repeats WHERE id IN (SELECT id FROM repeats ORDER BY id LIMIT ?)
    AND event < (SELECT coalesce(min(id), 9e18) FROM events)"""
_DROP_OLD_LAUNCHES = """DELETE FROM launches
    WHERE id <= (SELECT id FROM launches ORDER BY id DESC LIMIT 1 OFFSET ?)"""
_DROP_NODES_VERDICTS = """DELETE FROM verdicts WHERE id IN (
    SELECT old.id FROM (SELECT node FROM verdicts GROUP BY node HAVING count(*) > :kept) AS many
    JOIN verdicts AS old ON old.node = many.node
        AND old.id <= (SELECT id FROM verdicts WHERE node = many.node ORDER BY id DESC LIMIT 1 OFFSET :kept))"""
_DROP_OLD_VERDICTS = """DELETE FROM verdicts
    WHERE id <= (SELECT id FROM verdicts ORDER BY id DESC LIMIT 1 OFFSET :kept)
    AND id NOT IN (SELECT max(id) FROM verdicts GROUP BY node ORDER BY max(id) DESC LIMIT :kept)"""
_DROP_OLD_CLOUD_NODES = """DELETE FROM cloud_nodes WHERE (project, zone, name) IN
    (SELECT project, zone, name FROM cloud_nodes ORDER BY stored DESC LIMIT -1 OFFSET ?)"""
_DROP_OLD_CURSORS = """DELETE FROM cursors WHERE (device, inode, head) IN
    (SELECT device, inode, head FROM cursors ORDER BY seen DESC LIMIT -1 OFFSET ?)"""
_DROP_OLD_BASELINES = """DELETE FROM baselines WHERE launch IN
    (SELECT launch FROM baselines ORDER BY at DESC LIMIT -1 OFFSET ?)"""
_DROP_OLD_PACES = "DELETE FROM pace WHERE launch NOT IN (SELECT launch FROM baselines)"
_DROP_USERS_STEP_RUNS = """DELETE FROM step_runs WHERE (began, source, name, pid) IN (
    SELECT began, source, name, pid FROM (SELECT began, source, name, pid,
        row_number() OVER (PARTITION BY user ORDER BY began DESC) AS place FROM step_runs) WHERE place > :kept)"""
_DROP_OLD_STEP_RUNS = """DELETE FROM step_runs WHERE (began, source, name, pid) IN
    (SELECT began, source, name, pid FROM step_runs ORDER BY began DESC LIMIT -1 OFFSET ?)"""
_DROP_OLD_NODE_SPANS = """DELETE FROM node_spans WHERE (kind, since) IN
    (SELECT kind, since FROM node_spans ORDER BY since DESC LIMIT -1 OFFSET ?)"""
_REPLACE_META = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"


class EventStore(StoreReads):
    """Events, launches and read offsets of one machine.

    One thread reads logs and calls `commit`, `prune`, `forget_cursors` and `close`. All other methods are thread-safe.
    """

    notices: tuple[str, ...]  # what was done at opening and renewing, for the log and the status
    first_run: bool  # there was no commit before; True until the first commit
    first_run_time: float  # when tpuwatch first ran here, in seconds since the epoch
    last_clean_stop: float | None  # when the run before was closed, in seconds since the epoch; None if it was killed

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        clock: Clock,
        *,
        lock: opening.DirectoryLock | None,
        notices: Iterable[str],
        problem: str = "",
    ) -> None:
        """Use `open` instead. `problem`: the connection is to memory, for this reason."""
        super().__init__(path)
        self.notices = tuple(notices)
        self._problem = problem
        self._files: opening.FileIds = () if problem else opening.file_ids(path)  # empty: it is in memory
        self._connection = connection
        self._clock = clock
        self._directory_lock = lock
        self._turn = threading.RLock()  # for the connection
        self._damaged = False
        self._next_id = self._read_meta()

    @classmethod
    def open(cls, directory: Path, clock: Clock) -> EventStore:
        """Lock `directory` (created if necessary) and open its store; `notices` says what was done.

        If it cannot be written, the store is in memory (see `durable`). Raises StoreBusyError if another process has
        the lock.
        """
        path = directory / schema.FILE_NAME
        notices: list[str] = []
        lock = None
        try:
            lock = opening.lock_directory(directory)
            opening.take_over_former(directory, notices)
            connection = opening.open_file(path, clock, notices)
        except (OSError, sqlite3.OperationalError) as error:
            connection = opening.open_memory(path, notices)
            return cls(path, connection, clock, lock=lock, notices=notices, problem=_not_kept(directory, error))
        except StoreBusyError:
            if lock is not None:
                lock.release()
            raise
        return cls(path, connection, clock, lock=lock, notices=notices)

    @property
    def durable(self) -> bool:
        """Whether what is stored reaches the disk, and not memory or files that were deleted: three calls of stat."""
        return any(self._files) and opening.file_ids(self._path) == self._files

    @property
    def problem(self) -> str:
        """Why the store is not durable, in sentences; empty if it is."""
        if self.durable:
            return ""
        return self._problem or f"The files of the store {self._path} were deleted or replaced."

    def renew(self) -> None:
        """Make the store durable again, after its files were deleted or while they could not be written.

        It keeps offsets, launches, what nodes are, and the latest events. Raises StoreError if that is not possible
        yet; then it is in memory. `commit` does it first where files were deleted.
        """
        with self._turn:
            if self.durable:
                return
            notices: list[str] = []
            try:
                if self._files:
                    self._move_to_memory()
                    notices.append(f"the files of the store {self._path} were deleted or replaced while tpuwatch ran")
                self._move_to_file(notices)
            except StoreBusyError as error:
                self._problem = f"{error}."
                raise
            except (OSError, sqlite3.Error) as error:
                self._problem = _not_kept(self._path.parent, error)
                raise StoreError(self._problem) from error
            finally:
                self.notices += tuple(notice for notice in notices if notice not in self.notices)

    def commit(
        self,
        events: Sequence[Event],
        cursors: Sequence[Cursor],
        launches: Sequence[Launch] = (),
        count: Count | None = None,
        places: Iterable[tuple[bytes, Place]] = (),
        repetitions: Iterable[Repetition] = (),
    ) -> list[Event]:
        """Store everything in one transaction, or raise StoreError and change nothing: the call may be repeated later.

        Returns the new events, in order and with their ids and repeats. An event whose key is stored is a copy and left
        out. Launches are identified by pid and start; a later one replaces the facts. `count` is given the new events,
        without ids, and the new ones of `repetitions` by the keys of their events, and returns what is to be added to
        `totals`. `places`: keys of events, and where else the failure
        was reported. The first commit ends the first run.
        """
        launch_rows = [rows.launch_row(launch) for launch in launches]
        place_rows = [rows.place_row(key, place) for key, place in places]
        cursor_rows = [rows.cursor_row(cursor, self._clock.time()) for cursor in cursors]
        with self._turn:
            if self._files and not self.durable:  # nothing would be kept of what files take that were deleted
                with contextlib.suppress(StoreError):
                    self.renew()
            with self._transaction() as connection:
                new = self._insert_events(connection, events)
                repeated = [(one, *self._insert_repeats(connection, one)) for one in repetitions]
                _write(connection, rows.ADD_PLACE, place_rows)
                _write(connection, rows.DROP_OTHER_HEADS, [row[:3] for row in cursor_rows])
                _write(connection, rows.REPLACE_CURSOR, cursor_rows)
                _write(connection, rows.UPSERT_LAUNCH, launch_rows)
                if count is not None:
                    counted = count([event for _, event in new], [(one.event, keys) for one, keys, _ in repeated])
                    _write(connection, rows.ADD_TOTAL, [(*total, number) for total, number in counted.items()])
                _write(connection, _REPLACE_META, list(self._unsaved.items()))
            self._unsaved.clear()
            self.first_run = False
            for one, keys, spread in repeated:  # frozen otherwise, as in _assign_ids
                object.__setattr__(one.event, "repeats", len(keys))
                object.__setattr__(one.event, "spread", spread)
                object.__setattr__(one.event, "since", one.since)
            return self._assign_ids(events, new)

    def add_events(self, events: Sequence[Event]) -> list[Event]:
        """Store events that are not from a log, all or none; returns the new ones, as `commit` does.

        It does not end the first run. Thread-safe. Raises StoreError.
        """
        with self._turn:
            with self._transaction() as connection:
                new = self._insert_events(connection, events)
            return self._assign_ids(events, new)

    def add_verdicts(self, judgements: Sequence[Judgement], boot_id: str) -> None:
        """Store changes of verdict, all or none. Thread-safe. Raises StoreError."""
        verdict_rows = [rows.verdict_row(judgement, boot_id) for judgement in judgements]
        with self._transaction() as connection:
            connection.executemany(rows.INSERT_VERDICT, verdict_rows)

    def cloud_nodes(self) -> list[CloudNode]:
        """The stored facts of the cloud's nodes. Raises StoreError.

        Nothing from before a pause of more than CLOUD_NODES_SECONDS, as it would be outdated.
        """
        return [rows.cloud_of(row) for row in self._select(rows.SELECT_CLOUD_NODES, self._cloud_nodes_from)]

    def save_cloud_nodes(self, nodes: Sequence[CloudNode]) -> None:
        """Store facts of the cloud's nodes, all or none. Thread-safe. Raises StoreError."""
        node_rows = [rows.cloud_row(node, self._clock.time()) for node in nodes]
        with self._transaction() as connection:
            connection.executemany(rows.REPLACE_CLOUD_NODE, node_rows)

    def save_paces(self, records: Sequence[PaceRecord]) -> None:
        """Store the pace of launches as it is now, all or none. Thread-safe. Raises StoreError."""
        with self._transaction() as connection:
            for record in records:
                connection.execute(rows.REPLACE_BASELINE, rows.baseline_row(record))
                stored = {step for (step,) in connection.execute(rows.SELECT_STEPS, (record.launch,))}
                steps = {point.step for point in record.points}
                gone, new = stored - steps, steps - stored
                connection.executemany(rows.DROP_STEP, [(record.launch, step) for step in gone])
                added = [rows.step_row(record.launch, point) for point in record.points if point.step in new]
                connection.executemany(rows.ADD_STEP, added)

    def save_steps(self, runs: Sequence[StepRun], spans: Sequence[NodeSpan]) -> None:
        """Store steps of training loops and how the node was, all or none; each replaces the one that began at the same
        time. Thread-safe. Raises StoreError."""
        run_rows, span_rows = list(map(rows.step_run_row, runs)), list(map(rows.node_span_row, spans))
        with self._transaction() as connection:
            _write(connection, rows.REPLACE_STEP_RUN, run_rows)
            _write(connection, rows.REPLACE_NODE_SPAN, span_rows)

    def prune(self, max_age_seconds: float, max_bytes: int) -> int:
        """Remove some of the oldest events if they or the size of the store exceed the limits.

        One call is a small step, of PRUNE_LIMIT events at most, so that it does not delay reading the logs: repeat it
        while it returns more than 0, the number of events removed. The file shrinks if it is larger than `max_bytes` or
        more than half empty; its write-ahead log takes up to 16 MiB besides. Raises StoreError.
        """
        if not self._files:
            max_bytes = min(max_bytes, MEMORY_BYTES)
        with self._transaction() as connection:
            horizon = self._clock.time() - max_age_seconds
            last = max(
                connection.execute(_LAST_READ_BEFORE, (PRUNE_LIMIT, horizon)).fetchone()[0] or 0,
                connection.execute(_LAST_OF_OLDEST, (_surplus(connection, max_bytes),)).fetchone()[0] or 0,
            )
            removed = connection.execute("DELETE FROM events WHERE id <= ?", (last,)).rowcount
            removed += connection.execute(_DROP_REPEATS, (PRUNE_LIMIT,)).rowcount
            if removed:  # so that ids are not reused when the table is empty
                connection.execute(_REPLACE_META, ("last_id", str(self._next_id - 1)))
            connection.execute(_DROP_OLD_LAUNCHES, (KEPT_LAUNCHES,))
            connection.execute(_DROP_NODES_VERDICTS, {"kept": KEPT_NODE_VERDICTS})
            connection.execute(_DROP_OLD_VERDICTS, {"kept": KEPT_VERDICTS})
            connection.execute(_DROP_OLD_CLOUD_NODES, (KEPT_CLOUD_NODES,))
            if connection.execute(_DROP_OLD_BASELINES, (KEPT_PACES,)).rowcount:
                connection.execute(_DROP_OLD_PACES)
            connection.execute(_DROP_USERS_STEP_RUNS, {"kept": KEPT_USER_STEP_RUNS})
            connection.execute(_DROP_OLD_STEP_RUNS, (KEPT_STEP_RUNS,))
            connection.execute(_DROP_OLD_NODE_SPANS, (KEPT_NODE_SPANS,))
            connection.execute(_REPLACE_META, ("at_work", repr(self._clock.time())))
        self._vacuum(max_bytes)
        return removed

    def forget_cursors(self, present: Iterable[tuple[int, int]], max_age_seconds: float) -> int:
        """Remove the cursors of files that have been gone for `max_age_seconds`; returns how many.

        `present` are the (device, inode) of all existing files, whose cursors are kept. At most KEPT_CURSORS are kept,
        those of the files that existed last. Raises StoreError.
        """
        now = self._clock.time()
        seen = [(now, rows.signed(device), rows.signed(inode)) for device, inode in present]
        with self._transaction() as connection:
            connection.executemany("UPDATE cursors SET seen = ? WHERE device = ? AND inode = ?", seen)
            gone = connection.execute("DELETE FROM cursors WHERE seen < ?", (now - max_age_seconds,)).rowcount
            surplus = connection.execute(_DROP_OLD_CURSORS, (KEPT_CURSORS,)).rowcount
        return gone + surplus

    def close(self, *, clean: bool = True) -> None:
        """Close the store and release the lock. `clean`: everything that was read has been committed."""
        with self._turn:
            if clean and not self._damaged:
                with contextlib.suppress(sqlite3.Error):  # no space: the next run checks the file
                    self._connection.execute(_REPLACE_META, ("clean_stop", repr(self._clock.time())))
            self._connection.close()
            if self._directory_lock is not None:
                self._directory_lock.release()
                self._directory_lock = None

    def _move_to_memory(self) -> None:
        """Let go of files that were deleted. While they are open, they can be read."""
        memory = opening.new_memory()
        try:
            opening.copy(self._connection, memory)
        except BaseException:
            memory.close()
            raise
        self._connection.close()
        self._connection, self._files = memory, ()

    def _move_to_file(self, notices: list[str]) -> None:
        directory = self._path.parent
        self._directory_lock = opening.lock_directory(directory, self._directory_lock)
        opening.take_over_former(directory, notices)
        connection = opening.open_file(self._path, self._clock, notices)
        try:
            opening.copy(self._connection, connection)
            last = connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0]
        except BaseException:
            connection.close()
            raise
        self._connection.close()
        self._connection, self._files = connection, opening.file_ids(self._path)
        self._next_id = max(self._next_id, last + 1)
        self._problem, self._damaged = "", False

    def _read_meta(self) -> int:
        """Read what earlier runs stored; returns the next event id.

        What this run stores about itself is written with its first commit.
        """
        meta = dict(self._connection.execute("SELECT name, value FROM meta"))
        self.first_run = "first_run_time" not in meta
        self.first_run_time = self._clock.time() if self.first_run else float(meta["first_run_time"])
        self.last_clean_stop = float(meta["clean_stop"]) if meta.get("clean_stop") else None
        now, at_work = self._clock.time(), max(float(meta.get("at_work", 0)), self.last_clean_stop or 0.0)
        self._cloud_nodes_from = now if now - at_work > CLOUD_NODES_SECONDS else 0.0
        self._unsaved = {"first_run_time": repr(self.first_run_time), "clean_stop": ""}
        return max(self.last_id(), int(meta.get("last_id", 0))) + 1

    def _insert_events(self, connection: sqlite3.Connection, events: Sequence[Event]) -> list[tuple[int, Event]]:
        """Insert the events; returns the new ones with the ids that they get when the transaction is committed."""
        if not events:
            return []
        before = connection.total_changes
        connection.executemany(rows.INSERT_EVENT, rows.event_rows(events, self._next_id))
        if connection.total_changes - before == len(events):
            return list(zip(range(self._next_id, self._next_id + len(events)), events, strict=True))
        found = connection.execute("SELECT id FROM events WHERE id >= ? ORDER BY id", (self._next_id,))
        return [(number, events[number - self._next_id]) for (number,) in found]

    def _insert_repeats(
        self, connection: sqlite3.Connection, repetition: Repetition
    ) -> tuple[list[bytes], Mapping[str, Sequence[Any]]]:
        """Insert the records that are stored with an event, which is there or was.

        Returns the keys of the new ones, and the spread of the event.
        """
        found = connection.execute(rows.SELECT_HOLDER, (repetition.event.key,)).fetchone()
        holder = 0 if found is None else found[0]
        last = connection.execute("SELECT coalesce(max(id), 0) FROM repeats").fetchone()[0]
        before = connection.total_changes
        connection.execute(rows.INSERT_REPEATS, rows.repeats_row(repetition.keys, holder))
        new = list(repetition.keys)
        if connection.total_changes - before < len(new):
            new = [key for (key,) in connection.execute("SELECT key FROM repeats WHERE id > ?", (last,))]
        if not new:
            return [], {}
        spread = rows.spread_of(connection.execute(rows.SELECT_STATED, (holder,)).fetchone(), repetition.stated(new))
        connection.execute(rows.ADD_REPEATS, (holder, len(new), repetition.since, rows.spread_row(spread)))
        return new, spread

    def _assign_ids(self, events: Sequence[Event], new: Sequence[tuple[int, Event]]) -> list[Event]:
        """Set the ids of the new events after the commit."""
        self._next_id += len(events)
        for number, event in new:
            object.__setattr__(event, "id", number)  # frozen otherwise; a copy would be slow
        return [event for _, event in new]

    def _vacuum(self, max_bytes: int) -> None:
        """Return free pages to the file system, except those that the next events will fill."""
        with self._turn, self._writing():
            size, pages, free = page_figures(self._connection)
            surplus = min(free, max(pages - max_bytes // size, free - pages // 2), _VACUUM_PAGES)
            if surplus > 0:  # only executescript runs all steps, of one page each
                self._connection.executescript(f"PRAGMA incremental_vacuum({surplus})")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn, self._writing():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it when the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._damaged = self._damaged or schema.is_damage(error)
            raise StoreError(
                f"the store {self._path} is damaged ({error}): restart tpuwatch, which sets it aside"
                if self._damaged
                else f"cannot write the store {self._path}: {error}; nothing is lost while the logs are there: "
                "make room, or make it writable, and it continues by itself"
            ) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if self.durable:
            with super()._reading() as connection:
                yield connection
            return
        with self._turn:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise self._unreadable(error) from error


def _write(connection: sqlite3.Connection, statement: str, written: list[rows.Row]) -> None:
    if written:  # most commits have little; to be asked to write nothing costs as much as a row
        connection.executemany(statement, written)


def _not_kept(directory: Path, error: Exception) -> str:
    return (
        f"The store cannot be kept in {directory} ({error}): it is in memory, and lost when tpuwatch ends. "
        "Make the directory writable, with room, and it is kept there at once."
    )


def _surplus(connection: sqlite3.Connection, max_bytes: int) -> int:
    """About how many events exceed `max_bytes`, by their mean size; PRUNE_LIMIT at most."""
    used = used_bytes(connection)
    if used <= max_bytes:
        return 0
    first, last = connection.execute(_ID_RANGE).fetchone()
    return 0 if first is None else min(PRUNE_LIMIT, 1 + (last - first + 1) * (used - max_bytes) // used)
