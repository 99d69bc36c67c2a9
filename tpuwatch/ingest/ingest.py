"""One turn over the logs: read, recognise, store, count.

Events are committed together with the offsets that they were read up to. When the store cannot be written (a full
disk) the batch is kept and committed later; nothing more is read until then, as the files hold the rest.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tpuwatch.core import StoreError
from tpuwatch.ingest.double_reports import MAX_UNPAIRED, REPORT_SECONDS, DoubleReports
from tpuwatch.ingest.exec_findings import reported_failures
from tpuwatch.launches import Origin
from tpuwatch.model import EXEC, Cause, Outcome, Place, Repetition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tpuwatch.core import Clock
    from tpuwatch.ingest.exec_findings import ReportedFailure
    from tpuwatch.ingest.job_processes import JobProcesses
    from tpuwatch.launches import ExecRecord, LaunchTracker
    from tpuwatch.logs import FileMatch, Follower, Match, Refusal, Repeats, Rule
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Cursor, Event, Launch, StepReport
    from tpuwatch.store import EventStore

RETRY_SECONDS = 1.0
# How often offsets are stored while nothing is recognised: after a crash the same bytes are read again.
SAVE_SECONDS = 1.0
# What was written before a record was left is read before its findings are taken: so long it may be in a buffer, or on
# its way to a file that is found by the next scan,
HOLD_SECONDS = 5.0
MAX_HOLD_SECONDS = 60.0  # and so long behind much else that is to be read.
_MAX_PIDS = 4096
_MAX_QUEUED = 1000
_MAX_FINDINGS = 50  # records whose findings a turn takes
_KNOWN_EVENTS = 1000  # of a cause, that may be of the same failure as a finding

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Batch:
    events: list[Event] = field(default_factory=list)
    places: list[tuple[bytes, Place]] = field(default_factory=list)  # of other reports of the event with that key
    repetitions: list[Repetition] = field(default_factory=list)  # of these events
    cursors: list[Cursor] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    concluded: list[Launch] = field(default_factory=list)  # those of them whose outcome was decided
    added: list[Event] = field(default_factory=list)  # not from a log, so that they cannot be read again
    records: list[ExecRecord] = field(default_factory=list)  # merged into the launches, and their findings taken
    totals: Mapping[tuple[str, str], int] = field(default_factory=dict)  # what the last attempt to store it counted

    def __bool__(self) -> bool:
        return any((self.events, self.places, self.cursors, self.launches, self.concluded, self.added, self.records))


def _ignore_progress(_path: str, _progress: StepReport, _pid: int | None, _at: float) -> None:
    """No subscriber."""


def _ignore(_launches: Sequence[Launch], _records: Sequence[ExecRecord]) -> None:
    """No subscriber."""


def _stated(repeats: Repeats, keys: Sequence[bytes], wanted: Sequence[bytes]) -> dict[str, list[Any]]:
    """The details in those of the repeats that have one of the keys `wanted`; `keys`: of all of them."""
    some = set(wanted)
    return repeats.values_of([line for line, key in zip(repeats.lines, keys, strict=True) if key in some])


class Ingest:
    """Stores what a follower reads, and updates launches and metrics.

    `on_progress` is called with the path of a job's output, the progress that it shows, the pid of its process where
    libtpu's banner in it named one, and when it was written. `on_launches` is called after a commit with the launches
    that changed and the records that were merged. The subscribers set both.
    """

    def __init__(
        self,
        *,
        follower: Follower,
        store: EventStore,
        tracker: LaunchTracker,
        jobs: JobProcesses,
        metrics: Metrics,
        clock: Clock,
        on_events: Callable[[list[Event]], None],
        rules: Mapping[str, Rule],
    ) -> None:
        """`on_events` is called with the new events after they were stored. `rules`: all there are, by their ids, which
        may be replaced. Raises StoreError.
        """
        self.on_launches: Callable[[Sequence[Launch], Sequence[ExecRecord]], None] = _ignore
        self.on_progress: Callable[[str, StepReport, int | None, float], None] = _ignore_progress
        self.follower = follower
        self.due_in = 0.0  # seconds until the next turn is due without a wake-up
        self._store = store
        self.tracker = tracker
        self._jobs = jobs
        self._metrics = metrics
        self._clock = clock
        self._on_events = on_events
        self.rules = rules
        self._blocked: _Batch | None = None  # what the store could not commit
        self._added: deque[Event] = deque(maxlen=_MAX_QUEUED)
        self._records: deque[ExecRecord] = deque(maxlen=_MAX_QUEUED)
        self._held: deque[tuple[float, ExecRecord]] = deque(maxlen=_MAX_QUEUED)  # since when; their findings wait
        self._moved: dict[tuple[int, int], Cursor] = {}  # not stored yet, as nothing was recognised since
        self._next_save = clock.monotonic()
        recent = store.events(since=clock.time() - 2 * REPORT_SECONDS, history=False, newest_first=True)
        self._double_reports = DoubleReports(reversed(recent))
        self._pids: dict[str, int] = {}  # by path of a job's output, from libtpu's banner in it
        self._truncations = self._lost_bytes = 0
        self._refusals: Counter[Refusal] = Counter()
        metrics.logs.restore(store.totals())

    def turn(self, *, last: bool = False) -> str:
        """Do one turn; returns a sentence about the result. The `last` one stores all offsets."""
        batch = self._blocked or self._read(save=last)
        if not batch and not self._store.first_run:  # a first commit, even of nothing, ends the first run
            return "Following the logs; nothing new."
        try:
            stored = self._store.commit(
                batch.events + batch.added,
                batch.cursors,
                batch.launches,
                partial(self._totals, batch),
                batch.places,
                batch.repetitions,
            )
        except StoreError as error:
            self._blocked = batch
            self._metrics.daemon.count_store_error()
            self.due_in = RETRY_SECONDS
            return f"Reading waits until what was read can be stored: {error}"
        self._blocked = None
        self._report(batch, stored)
        return f"Files that were read on: {len(batch.cursors)}; new events: {len(stored)}."

    def add_event(self, event: Event) -> None:
        """Queue an event that is not from a log for the next turn. Thread-safe."""
        self._added.append(event)

    def add_record(self, record: ExecRecord) -> None:
        """Queue a record of `tpuwatch exec`, to be merged into the launches in the next turn. Thread-safe."""
        self._records.append(record)

    @property
    def blocked(self) -> bool:
        """Whether a batch waits for the store."""
        return self._blocked is not None

    def replace_follower(self, follower: Follower) -> None:
        """Read with `follower`, which starts at the stored offsets: events that are not stored are read again."""
        self.follower.close()
        self.follower = follower
        if (old := self._blocked) is not None:  # only what the new follower does not read again
            repetitions = [one for one in old.repetitions if one.event.is_from_exec]
            self._blocked = replace(old, events=[], places=[], repetitions=repetitions, cursors=[])
        self._moved.clear()
        self._truncations = self._lost_bytes = 0
        self._refusals.clear()

    def _read(self, *, save: bool) -> _Batch:
        reading = self.follower.poll()
        self.due_in = reading.due_in
        now = self._clock.time()
        if reading.bytes_read:
            self._metrics.logs.count_read(reading.bytes_read, now)
            self._metrics.logs.count_records(reading.records)
        self._metrics.logs.set_lag(self.follower.lag_bytes)
        self._count_files()
        batch = _Batch()
        for file_match in reading.matches:
            self._take(file_match, now, batch)
        for shown in reading.progress:
            path = str(shown.file.path)
            self.on_progress(path, shown.progress, self._pids.get(path), shown.at)
        while self._records:
            record = self._records.popleft()
            self.tracker.add_record(record)
            if record.findings:
                self._held.append((self._clock.monotonic(), record))
            else:
                batch.records.append(record)
        self._take_findings(now, batch)
        self.tracker.tick(now)
        batch.launches, batch.concluded = self.tracker.changed(), self.tracker.concluded()
        while self._added:
            batch.added.append(self._added.popleft())
        self._moved.update({(cursor.device, cursor.inode): cursor for cursor in reading.cursors})
        if batch or save or reading.late or self._store.first_run or self._clock.monotonic() >= self._next_save:
            batch.cursors = list(self._moved.values())
            self._moved.clear()
            self._next_save = self._clock.monotonic() + SAVE_SECONDS
        return batch

    def _take(self, file_match: FileMatch, now: float, batch: _Batch) -> None:
        match, file = file_match.match, file_match.file
        path = str(file.path)
        if match.rule.kill:
            self._take_kill(file_match, path, now, batch)
            return
        if file.pid is None and match.rule.mark == "banner" and "pid" in match.details:
            if len(self._pids) >= _MAX_PIDS:
                self._pids.clear()
            self._pids[path] = match.details["pid"]
        pid = file.pid if file.pid is not None else self._pids.get(path)
        output = file.pid is None
        stream = f"{path} {match.author}".rstrip() if output else ""
        origin = Origin(pid, file.user, file.host, file_match.history, output, stream)
        self.tracker.observe(match, origin, now)
        if match.repeats is None:
            self._add(match, match.event(path, pid, now, history=file_match.history), file_match.at, batch)
        elif (event := match.event(path, pid, now, history=file_match.history)) is not None:
            self._add_repeated(match, match.repeats, event, file_match.at, batch)

    def _take_kill(self, file_match: FileMatch, path: str, now: float, batch: _Batch) -> None:
        """Take a line on an out-of-memory kill: a fault if a job's process was killed, else a mere event."""
        match, history = file_match.match, file_match.history
        event = match.event(path, match.details.get("killed_pid"), now, history=history)
        if event is None:  # the limit, which the kill has too
            return
        if not self._jobs.include(match.details, now):
            event = replace(event, cause=Cause.PROCESS_KILLED)
        elif (launch := self._jobs.launch_of(match.details, now)) is not None:
            origin = Origin(launch.pid, launch.user, launch.host, history)
            self.tracker.event(event.cause, match.details, origin, event.when, match.key)
        self._add(match, event, file_match.at, batch)

    def _add_repeated(self, match: Match, repeats: Repeats, event: Event, written: float, batch: _Batch) -> None:
        """Take an event and its repeats; each by itself if one of them may be the second report of a failure."""
        keys = repeats.keys()

        def add(matches: Iterable[Match]) -> None:
            for one in matches:
                again = one.event(event.file, event.pid, event.observed, history=event.history)
                self._add(one, again, written, batch)

        if self._double_reports.may_answer(event, (*keys, event.key)):
            add(repeats.matches())
        else:
            first = next(repeats.matches())
            since = event.observed if first.time is None else first.time
            batch.repetitions.append(Repetition(event, keys, since, partial(_stated, repeats, keys)))
            if not event.history:  # what is printed next may be of one of these
                for one in repeats.matches(MAX_UNPAIRED):
                    known = one.event(event.file, event.pid, event.observed)
                    if known is not None:
                        self._double_reports.first_key(known, written)
        self._add(match, event, written, batch)

    def _add(self, match: Match, event: Event | None, written: float, batch: _Batch) -> None:
        if event is None:
            return
        first = self._double_reports.first_key(event, written)
        if first is None and not match.again:
            batch.events.append(event)
        else:
            place = Place(event.key, event.file, event.offset, event.time, event.severity)
            batch.places.append((first or event.key, place))

    def _take_findings(self, now: float, batch: _Batch) -> None:
        """Take those of the records for which all is read that may tell of the same failures."""
        for _ in range(min(len(self._held), _MAX_FINDINGS)):
            since, record = self._held[0]
            waited = self._clock.monotonic() - since
            left = (MAX_HOLD_SECONDS if self.follower.lag_bytes else HOLD_SECONDS) - waited
            if left > 0:
                self.due_in = min(self.due_in, left)
                return
            try:
                found = [
                    (failure, self._known(failure, batch))
                    for failure in reported_failures(record, self.rules, now, self._store.first_run_time)
                ]
            except StoreError:
                self._metrics.daemon.count_store_error()
                self.due_in = min(self.due_in, RETRY_SECONDS)
                return
            self._held.popleft()
            for failure, known in found:
                if known is not None:
                    batch.places.append((known.key, failure.place(known)))
                    continue
                batch.added.append(failure.event)
                if (repetition := failure.repetition()) is not None:
                    batch.repetitions.append(repetition)
            batch.records.append(record)

    def _known(self, failure: ReportedFailure, batch: _Batch) -> Event | None:
        """The event of the same failure that the daemon has read itself. Raises StoreError."""
        stored = self._store.events(
            since=failure.first - REPORT_SECONDS,
            cause=failure.event.cause,
            history=False,
            limit=_KNOWN_EVENTS,
            newest_first=True,
        )
        taken = frozenset(key for key, place in batch.places if place.file.startswith(EXEC))
        return failure.known_event([*batch.events, *stored], taken)

    def _count_files(self) -> None:
        counters = self.follower.counters
        known = self._truncations, self._lost_bytes, self._refusals
        if known == (counters.truncations, counters.lost_bytes, counters.refusals):
            return
        for _ in range(counters.truncations - self._truncations):
            self._metrics.logs.count_truncation()
        for reason in (counters.refusals - self._refusals).elements():
            self._metrics.logs.count_refused(reason.value)
        self._metrics.logs.count_lost(counters.lost_bytes - self._lost_bytes)
        self._truncations, self._lost_bytes = counters.truncations, counters.lost_bytes
        self._refusals = Counter(counters.refusals)

    def _report(self, batch: _Batch, stored: list[Event]) -> None:
        """Count what was stored and pass it on. It is not offered again: so whatever fails, the rest is done."""
        failed = False
        for step in self._steps(batch, stored):
            try:
                step()
            except Exception:  # noqa: BLE001, PERF203 # whatever it is, the next step is done; it is logged once a turn
                self._metrics.logs.count_report_failure()
                if not failed:
                    _log.exception("Not all that was stored could be counted and passed on.")
                failed = True

    def _steps(self, batch: _Batch, stored: list[Event]) -> Iterator[Callable[[], None]]:
        for (series, label), number in batch.totals.items():
            yield partial(self._metrics.logs.count, series, label, number)
        for launch in batch.concluded:
            yield partial(self._show_launch, launch)
        if stored:
            yield lambda: self._on_events(stored)
        if batch.launches or batch.records:
            yield lambda: self.on_launches(batch.launches, batch.records)

    def _totals(
        self, batch: _Batch, new: Sequence[Event], repeated: Sequence[tuple[Event, Sequence[bytes]]]
    ) -> Counter[tuple[str, str]]:
        """What the batch adds to metrics and to the store's totals, if these of its events and repeats are new."""
        totals: Counter[tuple[str, str]] = Counter()
        for event, keys in [*((event, (event.key,)) for event in new), *repeated]:
            if not event.cause.is_fault:
                continue
            if event.history:
                totals["backlog_events", ""] += len(keys)
                continue
            totals["events", event.cause.value] += len(keys)
            if event.cause is Cause.PREMAPPED_EXHAUSTED:
                totals["premapped_failures", ""] += sum(not self.tracker.is_duplicate(key) for key in keys)
        for launch in batch.concluded:
            totals["launches", launch.outcome.value] += 1
        batch.totals = totals
        return totals

    def _show_launch(self, launch: Launch) -> None:
        if launch.outcome in (Outcome.OK, Outcome.SLOW) and launch.init_seconds is not None:
            self._metrics.logs.observe_init(launch.init_seconds)
        if launch.premapped_bytes is not None:
            self._metrics.logs.set_premapped_size(launch.premapped_bytes)
