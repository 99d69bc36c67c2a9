"""The tuning service: it decides the next launch of each workload, after each of its launches.

Turns: the records of `tpuwatch exec` in the drop box, and the workloads whose launches have changed.
Every: 3 s, and when a launch has changed.
Owns: for one configuration: the planner, the workloads that are due, and the drop box.
Never: changes a launch that runs, or removes a record that is not in the store.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tpuwatch.core import LoopGroup, StoreError, TuneError
from tpuwatch.ingest import bad_value_events
from tpuwatch.launches import discard_record, take_records
from tpuwatch.model import DEFAULT_WORKLOAD, SizeStep, TunedStatus, TuneStatus, workload_of
from tpuwatch.tune.plan import plan_times, read_resets
from tpuwatch.tune.planner import MAX_PLANS, Planner, launches_by_workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopStatus
    from tpuwatch.launches import ExecRecord
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Event, Launch, Snapshot
    from tpuwatch.store import EventStore

NAME: Final = "tune"  # the loop's, in metrics and status
EVERY_SECONDS: Final = 3.0  # it is woken by each change of a launch besides
SETTLE_SECONDS: Final = 1.0  # a launch that changes is about to change again
AGAIN_SECONDS: Final = 5.0  # between two decisions about one workload
RETRY_SECONDS: Final = 60.0  # after what could not be written
PRUNE_EVERY_SECONDS: Final = 3600.0
STOP_SECONDS: Final = 5.0
SLOW_SECONDS: Final = 30.0  # that a turn may take on slow disks; the loop's limit is derived from it
KNOWN_LAUNCHES: Final = 2000  # the latest of all workloads
_WAITING: Final = 500  # records that the log side has not stored yet
_MAX_CHANGED: Final = 10_000
_WARN_SECONDS: Final = 3600.0  # between two warnings about refused records
_KEYS: Final = 4096

_log = logging.getLogger(__name__)


class TuneService:
    """Made and used by the daemon's thread, but for `on_launches`, which the log service calls."""

    def __init__(
        self,
        config: Config,
        *,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        snapshot: Callable[[], Snapshot],
        add_record: Callable[[ExecRecord], None],
        add_event: Callable[[Event], None],
        progress: Callable[[str, float], None],
    ) -> None:
        """`add_record` and `add_event` pass a record and an event to the log service. `progress` is called after each
        turn of the loop, from its thread.
        """
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._add_record = add_record
        self._add_event = add_event
        self._planner = Planner(config, snapshot=snapshot, metrics=metrics, clock=clock, store=self._store_events)
        self._launches: dict[tuple[int, float], Launch] | None = None  # None: not read yet
        self._changed: deque[Launch] = deque()
        self._missed = False  # the queue was full
        self._stored: deque[str] = deque()  # files of records that are in the store
        self._waiting: set[str] = set()  # files of records that are not yet
        self._resets: dict[str, float] = {}
        self._due: dict[str, float] = {}  # workloads that are to be decided, and when, by the monotonic clock
        self._decided: dict[str, TunedStatus] = {}
        self._decided_at: dict[str, float] = {}
        self._reported: dict[bytes, None] = {}  # keys of events about wrong values
        self._problems: dict[str, str] = {}  # sentences, by what they are about
        self._next_take = self._next_forget = self._next_warning = float("-inf")
        self.status = TuneStatus(self._planner.acts, str(self._planner.directory))  # replaced, never changed
        self._loops = LoopGroup(clock=clock, on_turn=progress)
        self._loops.add(NAME, self.turn, SLOW_SECONDS)

    # -- for the daemon

    def start(self) -> None:
        """Let the loop begin."""
        self._loops.start()

    def stop(self) -> None:
        """Stop. What is in the drop box stays there for the next start."""
        self._loops.stop()
        self._loops.join(NAME, STOP_SECONDS)

    def limits(self) -> dict[str, float]:
        """How long the loop may go without success, in seconds."""
        return self._loops.limits()

    def loops(self) -> list[LoopStatus]:
        """How the loop is."""
        return self._loops.status()

    def on_launches(self, launches: Sequence[Launch], records: Sequence[ExecRecord]) -> None:
        """These changed launches and new records are in the store."""
        if len(self._changed) + len(launches) > _MAX_CHANGED:
            self._missed = True  # it does not come round to them: the store has them
        else:
            self._changed.extend(launches)
        self._stored.extend(record.file for record in records)
        if any(launch.ended is not None for launch in launches):
            self._next_take = float("-inf")  # what ended may have left a record
        self._loops.wake(NAME)

    # -- the loop

    def turn(self) -> float:
        """Take records, decide and report what is due; returns the seconds until it should be done again."""
        now = self._clock.monotonic()
        self._note("directory", self._planner.make_directory())
        more = self._take_records(now)
        if not self._read_launches():
            return AGAIN_SECONDS
        self._take_launches(now)
        self._read_resets(now)
        self._decide(now)
        if now >= self._next_forget:
            self._next_forget = now + PRUNE_EVERY_SECONDS
            self._forget()
        self._show()
        waits = [at - now for at in self._due.values()]
        return max(0.1, min([EVERY_SECONDS, *([SETTLE_SECONDS] if more else []), *waits]))

    # -- the drop box

    def _take_records(self, now: float) -> bool:
        """Give what lies in the drop box to the log side, and remove what that has stored; whether there is more."""
        names = [self._stored.popleft() for _ in range(len(self._stored))]
        more = False
        try:
            discard_record(self._planner.directory, names)
            self._waiting.difference_update(names)
            self._metrics.tune.count_records("taken", len(names))
            if now >= self._next_take and len(self._waiting) < _WAITING:
                taken = take_records(self._planner.directory, skip=self._waiting, now=self._clock.time())
                more = taken.more
                self._next_take = now if more else now + EVERY_SECONDS
                for record in taken.records:
                    self._waiting.add(record.file)
                    self._add_record(record)
                self._refuse(taken.refused, taken.why, now)
        except OSError as error:
            self._stored.extend(names)
            problem = f"The records of launches in {self._planner.directory} cannot be taken: {error.strerror}."
            self._note("records", problem if self._problems.get("directory", "") == "" else "")
            return False
        self._note("records", "")
        return more

    def _refuse(self, count: int, why: Sequence[str], now: float) -> None:
        self._metrics.tune.count_records("refused", count)
        if count and now >= self._next_warning:
            self._next_warning = now + _WARN_SECONDS
            rest = f" So it is with {count - 1} more." if count > 1 else ""
            _log.warning("In %s: %s%s", self._planner.directory, why[0], rest)

    # -- launches

    def _read_launches(self) -> bool:
        """Read the launches of earlier runs from the store, once; whether they are known."""
        if self._launches is not None and not self._missed:
            return True
        self._missed = False
        try:
            found = self._store.launches(KNOWN_LAUNCHES)
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            self._note("store", f"Nothing is decided about next launches: {error}.")
            return False
        self._note("store", "")
        self._launches = {(one.pid, one.started): one for one in found}
        self._due = dict.fromkeys(map(workload_of, found), self._clock.monotonic() + SETTLE_SECONDS)
        return True

    def _take_launches(self, now: float) -> None:
        known = self._launches if self._launches is not None else {}
        for _ in range(len(self._changed)):
            launch = self._changed.popleft()
            key = (launch.pid, launch.started)
            before = known.get(key)
            known[key] = launch
            has_failed = launch.premapped_failures > 0 and (before is None or not before.premapped_failures)
            for name in {workload_of(one) for one in (before, launch) if one is not None}:
                soon = now + SETTLE_SECONDS
                again = self._decided_at.get(name, float("-inf")) + AGAIN_SECONDS
                at = soon if has_failed else max(soon, again)  # for the first failure `tpuwatch exec` waits
                self._due[name] = min(self._due.get(name, at), at)
            self._report_bad_values(launch)
        if len(known) > KNOWN_LAUNCHES:
            for key in sorted(known, key=lambda key: key[1])[:-KNOWN_LAUNCHES]:
                del known[key]

    def _report_bad_values(self, launch: Launch) -> None:
        for event in bad_value_events(launch, self._clock.time()):
            if event.key not in self._reported:
                self._reported[event.key] = None
                self._add_event(event)
        while len(self._reported) > _KEYS:
            del self._reported[next(iter(self._reported))]

    def _read_resets(self, now: float) -> None:
        """Read the resets, and decide again where one has changed."""
        try:
            resets = read_resets(self._planner.directory)
        except TuneError:
            return  # the directory's own problem is reported
        for name in {one[0] for one in resets.items() ^ self._resets.items()}:
            self._due[name] = now
        self._resets = resets

    # -- deciding

    def _decide(self, now: float) -> None:
        due = [name for name, at in self._due.items() if at <= now]
        if not due:
            return
        found = launches_by_workload((self._launches or {}).values(), self._resets, self._clock.time())
        # Those launched last come first: where there is no room for all, they have it.
        for name in sorted(due, key=lambda name: -found[name][-1].started if name in found else 0.0):
            del self._due[name]
            if name not in found:
                self._decided.pop(name, None)
                self._planner.decide_without_launches(name)
            elif self._has_room(name):
                self._decided[name] = made = self._planner.decide(name, found[name])
                self._decided_at[name] = now
                if made.problem:
                    self._due[name] = now + RETRY_SECONDS

    def _store_events(self, events: Sequence[Event]) -> None:
        """Put them into the store; what it does not take now goes the way of other events and is offered again."""
        try:
            self._store.add_events(events)
        except StoreError:
            self._metrics.daemon.count_store_error()
            for event in events:
                self._add_event(event)

    def _has_room(self, name: str) -> bool:
        """Whether there may be a plan for it: anybody can think up names, and none may push out another."""
        if name == DEFAULT_WORKLOAD or name in self._decided:
            return True
        planned = plan_times(self._planner.directory)
        if name in planned or len(planned.keys() | self._decided.keys()) < MAX_PLANS:
            return True
        problem = (
            f"There are {MAX_PLANS} plans: further workloads get none. Remove old ones from {self._planner.directory}."
        )
        self._note("room", problem)
        return False

    def _forget(self) -> None:
        last = {name: one.last_launch for name, one in self._decided.items()}
        for name in self._planner.forget(last):
            self._decided.pop(name, None)
            self._note("room", "")

    # -- what is shown

    def _note(self, about: str, sentence: str) -> None:
        """Something is wrong, or right again if the sentence is empty; it is logged when it changes."""
        if sentence and sentence != self._problems.get(about):
            _log.warning("%s", sentence)
        self._problems[about] = sentence

    def _show(self) -> None:
        made = sorted(self._decided.values(), key=lambda one: -one.last_launch)
        written = [] if self._planner.acts else [one.plan for one in made if one.file]
        stale = [plan.workload for plan in written if self._planner.is_stale(plan)]
        names = f"{', '.join(stale[:5])}{' …' if len(stale) > 5 else ''}"
        problem = (
            f"[tune] mode is observe: the environment files of {names} stay as they are, and do not give what is "
            "decided now."
        )
        self._note("stale", problem if stale else "")
        self._metrics.tune.set_state(
            workloads=len(made),
            unsatisfiable=sum(one.plan.decision.step is SizeStep.UNSATISFIABLE for one in made),
            conflicts=sum(bool(one.plan.decision.conflict) for one in made),
            write_failed=sum(bool(one.problem) for one in made),
        )
        problems = tuple(filter(None, self._problems.values()))
        self.status = TuneStatus(self._planner.acts, str(self._planner.directory), tuple(made), problems)
