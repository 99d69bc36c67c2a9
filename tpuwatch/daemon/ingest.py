"""One turn of the log side: read, recognise, store, count.

What was read is committed together with how far it was read. When the journal cannot take it (a full disk) it is kept
and offered again, and nothing more is read until then: the files hold the rest.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuwatch.errors import JournalError
from tpuwatch.launches.tracker import Origin
from tpuwatch.model import Cause, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.journal import Journal
    from tpuwatch.launches.tracker import LaunchTracker
    from tpuwatch.logs.files import Refusal
    from tpuwatch.logs.follow import Follower, Sighting
    from tpuwatch.model import Cursor, Event, Launch
    from tpuwatch.tune.record import Record

RETRY_SECONDS = 1.0
SAVE_SECONDS = 1.0  # how far was read need not be stored at each turn where nothing was recognised: it is read again
_MAX_PIDS = 4096
_MAX_PUT = 1000


@dataclass(slots=True)
class _Batch:
    events: list[Event] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)  # that do not come from a log, so that they cannot be read again
    records: list[Record] = field(default_factory=list)  # that the launches have taken in

    def __bool__(self) -> bool:
        return bool(self.events or self.cursors or self.launches or self.others or self.records)


def _nobody(_launches: Sequence[Launch], _records: Sequence[Record]) -> None:
    """Where nobody asks what was stored."""


class Ingest:
    """Takes what a follower reads into the journal, the launches and the metrics."""

    def __init__(
        self,
        *,
        follower: Follower,
        journal: Journal,
        tracker: LaunchTracker,
        metrics: Metrics,
        clock: Clock,
        tell: Callable[[list[Event]], None],
        stored: Callable[[Sequence[Launch], Sequence[Record]], None] = _nobody,
    ) -> None:
        """`tell` is given the events that are new, after they were stored; `stored` the launches that changed, and the
        records that were adopted.
        """
        self.follower = follower
        self.due_in = 0.0  # seconds until the next turn is due even if nothing wakes
        self._journal = journal
        self.tracker = tracker
        self._metrics = metrics
        self._clock = clock
        self._tell = tell
        self._stored = stored
        self._held: _Batch | None = None  # what the journal did not take
        self._put: deque[Event] = deque(maxlen=_MAX_PUT)
        self._records: deque[Record] = deque(maxlen=_MAX_PUT)
        self._moved: dict[tuple[int, int], Cursor] = {}  # of files in which nothing was recognised since
        self._next_save = clock.monotonic()
        self._pids: dict[str, int] = {}  # of jobs' outputs, from the banner that libtpu prints there
        self._truncations = 0
        self._refusals: Counter[Refusal] = Counter()

    def turn(self, *, last: bool = False) -> str:
        """Do one turn; the sentence says what came of it. The `last` one stores how far was read, whatever it was."""
        batch = self._held or self._read(save=last)
        if not batch and not self._journal.first_run:  # a first commit, even of nothing, ends the time before
            return "Following the logs; nothing new."
        try:
            stored = self._journal.commit(batch.events + batch.others, batch.cursors, batch.launches)
        except JournalError as error:
            self._held = batch
            self._metrics.journal_error()
            self.due_in = RETRY_SECONDS
            return f"Reading waits until what was read can be stored: {error}"
        self._held = None
        self._count_events(stored)
        self._count_launches()
        self._tell(stored)
        if batch.launches or batch.records:
            self._stored(batch.launches, batch.records)
        return f"Files that were read on: {len(batch.cursors)}; new events: {len(stored)}."

    def put(self, event: Event) -> None:
        """Have an event that did not come from a log stored with the next turn. Any thread may call it."""
        self._put.append(event)

    def adopt(self, record: Record) -> None:
        """Have the launches take in what `tpuwatch exec` has left, with the next turn. Any thread may call it."""
        self._records.append(record)

    @property
    def holding(self) -> bool:
        """Whether something that was read waits for the journal."""
        return self._held is not None

    def begin_again(self, follower: Follower) -> None:
        """Read with `follower`, which stands where the journal does: what the journal did not take is read again."""
        self.follower.close()
        self.follower = follower
        if self._held is not None:
            # These are not to be read again.
            held = self._held
            self._held = _Batch(launches=held.launches, others=held.others, records=held.records)
        self._moved.clear()
        self._truncations, self._refusals = 0, Counter()

    def _read(self, *, save: bool) -> _Batch:
        reading = self.follower.poll()
        self.due_in = reading.due_in
        now = self._clock.time()
        if reading.bytes_read:
            self._metrics.read(reading.bytes_read, now)
            self._metrics.records(reading.records)
        self._metrics.lag(self.follower.lag_bytes)
        self._count_files()
        batch = _Batch()
        for sighting in reading.sightings:
            event = self._take(sighting, now)
            if event is not None:
                batch.events.append(event)
        while self._records:
            batch.records.append(self._records.popleft())
            self.tracker.adopt(batch.records[-1])
        self.tracker.tick(now)
        batch.launches = self.tracker.changed()
        while self._put:
            batch.others.append(self._put.popleft())
        self._moved.update({(cursor.device, cursor.inode): cursor for cursor in reading.cursors})
        if batch or save or self._journal.first_run or self._clock.monotonic() >= self._next_save:
            batch.cursors = list(self._moved.values())
            self._moved.clear()
            self._next_save = self._clock.monotonic() + SAVE_SECONDS
        return batch

    def _take(self, sighting: Sighting, now: float) -> Event | None:
        match, file = sighting.match, sighting.file
        path = str(file.path)
        if file.pid is None and match.rule.mark == "banner" and "pid" in match.details:
            if len(self._pids) >= _MAX_PIDS:
                self._pids.clear()
            self._pids[path] = match.details["pid"]
        pid = file.pid if file.pid is not None else self._pids.get(path)
        origin = Origin(pid, file.user, file.host, sighting.history, output=file.pid is None)
        self.tracker.hear(match, origin, now)
        return match.event(path, pid, now, history=sighting.history)

    def _count_files(self) -> None:
        counters = self.follower.counters
        for _ in range(counters.truncations - self._truncations):
            self._metrics.truncation()
        for reason in (counters.refusals - self._refusals).elements():
            self._metrics.refused(reason.value)
        self._truncations, self._refusals = counters.truncations, Counter(counters.refusals)

    def _count_events(self, stored: Sequence[Event]) -> None:
        for event in stored:
            if not event.cause.is_fault:
                continue
            self._metrics.event(event.cause, history=event.history)
            failed = event.cause is Cause.PREMAPPED_EXHAUSTED and not event.history
            if failed and not self.tracker.is_retold(event.key):
                self._metrics.premapped_failed()

    def _count_launches(self) -> None:
        for launch in self.tracker.concluded():
            self._metrics.launch(launch.outcome)
            if launch.outcome in (Outcome.OK, Outcome.SLOW) and launch.init_seconds is not None:
                self._metrics.init_seconds(launch.init_seconds)
            if launch.premapped_bytes is not None:
                self._metrics.premapped(launch.premapped_bytes)
