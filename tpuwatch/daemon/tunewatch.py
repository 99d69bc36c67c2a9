"""The tuning side of the daemon: a loop that decides the next launch of each workload, after each of its launches.

A `TuneWatch` is made for one configuration; when that changes another one takes its place, which decides all anew. It
takes the records of `tpuwatch exec` out of the drop box and has the log side adopt them; their files go once that is in
the journal. Slow disks hold up nobody but this loop.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tpuwatch.daemon import badvalues
from tpuwatch.daemon.loops import Loop
from tpuwatch.daemon.planning import MOST_PLANS, Planner
from tpuwatch.errors import JournalError, TuneError
from tpuwatch.export.view import LoopStatus, TunedStatus, TuneStatus
from tpuwatch.tune.deciding import name_of, workloads
from tpuwatch.tune.model import DEFAULT_WORKLOAD, Step
from tpuwatch.tune.records import discard, take
from tpuwatch.tune.resets import read_resets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.journal import Journal
    from tpuwatch.model import Event, Launch
    from tpuwatch.node.board import Posted
    from tpuwatch.tune.record import Record

NAME: Final = "tune"  # the loop's, in metrics and status
EVERY_SECONDS: Final = 3.0  # it is woken by each change of a launch besides
SETTLE_SECONDS: Final = 1.0  # a launch that changes is about to change again
AGAIN_SECONDS: Final = 5.0  # between two decisions about one workload
RETRY_SECONDS: Final = 60.0  # after what could not be written
FORGET_EVERY_SECONDS: Final = 3600.0
STOP_SECONDS: Final = 5.0
LIMIT_SECONDS: Final = 150.0  # how long the loop may go without success
KNOWN_LAUNCHES: Final = 2000  # the latest of all workloads
_WAITING: Final = 500  # records that the log side has not stored yet
_HEARD: Final = 10_000
_WARN_SECONDS: Final = 3600.0  # what is refused in the drop box is told so often
_KEYS: Final = 4096

_log = logging.getLogger(__name__)


class TuneWatch:
    """Made and used by the daemon's thread, but for `heard` and `stored`, which are for the log side."""

    def __init__(
        self,
        config: Config,
        *,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        posted: Callable[[], Posted],
        adopt: Callable[[Record], None],
        put: Callable[[Event], None],
        progress: Callable[[str, float], None],
    ) -> None:
        """`adopt` has the log side take a record in, `put` has it store an event. `progress` is told of each turn of
        the loop, from its thread.
        """
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._adopt = adopt
        self._put = put
        self._progress = progress
        self._planner = Planner(config, posted=posted, metrics=metrics, clock=clock, store=self._store)
        self._launches: dict[tuple[int, float], Launch] | None = None  # None: not read yet
        self._heard: deque[Launch] = deque()
        self._missed = False  # some could not be heard
        self._stored: deque[str] = deque()  # files of records that are in the journal
        self._waiting: set[str] = set()  # files of records that are not yet
        self._resets: dict[str, float] = {}
        self._due: dict[str, float] = {}  # workloads that are to be decided, and when, by the monotonic clock
        self._decided: dict[str, TunedStatus] = {}
        self._decided_at: dict[str, float] = {}
        self._told: dict[bytes, None] = {}  # keys of events about wrong values
        self._problems: dict[str, str] = {}  # sentences, by what they are about
        self._next_take = self._next_forget = self._next_warning = float("-inf")
        self.status = TuneStatus(self._planner.applies, str(self._planner.directory))  # replaced, never changed
        self._last_success: float | None = None
        self._began_at = clock.time()
        self._loop = Loop(NAME, self.turn, clock=clock, done=self._done)

    # -- for the daemon

    def start(self) -> None:
        """Let the loop begin."""
        self._loop.start()

    def stop(self) -> None:
        """End. What is in the drop box stays there for whoever comes next."""
        self._loop.stop()
        self._loop.join(STOP_SECONDS)

    def limits(self) -> dict[str, float]:
        """How long the loop may go without success, in seconds."""
        return {NAME: LIMIT_SECONDS}

    def loops(self) -> list[LoopStatus]:
        """How the loop is. One that has not finished its first turn is fresh for as long as a turn may take."""
        last = self._last_success
        age = self._clock.time() - (self._began_at if last is None else last)
        return [LoopStatus(NAME, last, age < LIMIT_SECONDS)]

    def heard(self, launches: Sequence[Launch], records: Sequence[Record]) -> None:
        """These launches have changed and these records were adopted, and that is in the journal."""
        if len(self._heard) + len(launches) > _HEARD:
            self._missed = True  # it does not come round to them: the journal has them
        else:
            self._heard.extend(launches)
        self._stored.extend(record.file for record in records)
        if any(launch.ended is not None for launch in launches):
            self._next_take = float("-inf")  # what ended may have left a record
        self._loop.wake()

    # -- the loop

    def turn(self) -> float:
        """Take, decide and tell what is due; returns the seconds until it should be done again."""
        now = self._clock.monotonic()
        self._note("directory", self._planner.make_directory())
        more = self._take_records(now)
        if not self._read_launches():
            return AGAIN_SECONDS
        self._hear_launches(now)
        self._read_resets(now)
        self._decide(now)
        if now >= self._next_forget:
            self._next_forget = now + FORGET_EVERY_SECONDS
            self._forget()
        self._show()
        waits = [at - now for at in self._due.values()]
        return max(0.1, min([EVERY_SECONDS, *([SETTLE_SECONDS] if more else []), *waits]))

    def _done(self, name: str, seconds: float) -> None:
        self._last_success = self._clock.time()
        self._progress(name, seconds)

    # -- the drop box

    def _take_records(self, now: float) -> bool:
        """Give what lies in the drop box to the log side, and remove what that has stored; whether there is more."""
        names = [self._stored.popleft() for _ in range(len(self._stored))]
        more = False
        try:
            discard(self._planner.directory, names)
            self._waiting.difference_update(names)
            self._metrics.tune_records("taken", len(names))
            if now >= self._next_take and len(self._waiting) < _WAITING:
                taken = take(self._planner.directory, skip=self._waiting, now=self._clock.time())
                more = taken.more
                self._next_take = now if more else now + EVERY_SECONDS
                for record in taken.records:
                    self._waiting.add(record.file)
                    self._adopt(record)
                self._refuse(taken.refused, taken.why, now)
        except OSError as error:
            self._stored.extend(names)
            told = f"The records of launches in {self._planner.directory} cannot be taken: {error.strerror}."
            self._note("records", told if self._problems.get("directory", "") == "" else "")
            return False
        self._note("records", "")
        return more

    def _refuse(self, count: int, why: Sequence[str], now: float) -> None:
        self._metrics.tune_records("refused", count)
        if count and now >= self._next_warning:
            self._next_warning = now + _WARN_SECONDS
            rest = f" So it is with {count - 1} more." if count > 1 else ""
            _log.warning("In %s: %s%s", self._planner.directory, why[0], rest)

    # -- launches

    def _read_launches(self) -> bool:
        """Read the launches of earlier runs from the journal, once; whether they are known."""
        if self._launches is not None and not self._missed:
            return True
        self._missed = False
        try:
            found = self._journal.launches(KNOWN_LAUNCHES)
        except JournalError as error:
            self._metrics.journal_error()
            self._note("journal", f"Nothing is decided about next launches: {error}.")
            return False
        self._note("journal", "")
        self._launches = {(one.pid, one.started): one for one in found}
        self._due = dict.fromkeys(map(name_of, found), self._clock.monotonic() + SETTLE_SECONDS)
        return True

    def _hear_launches(self, now: float) -> None:
        known = self._launches if self._launches is not None else {}
        for _ in range(len(self._heard)):
            launch = self._heard.popleft()
            key = (launch.pid, launch.started)
            before = known.get(key)
            known[key] = launch
            for name in {name_of(one) for one in (before, launch) if one is not None}:
                again = self._decided_at.get(name, float("-inf")) + AGAIN_SECONDS
                self._due.setdefault(name, max(now + SETTLE_SECONDS, again))
            self._tell_bad_values(launch)
        if len(known) > KNOWN_LAUNCHES:
            for key in sorted(known, key=lambda key: key[1])[:-KNOWN_LAUNCHES]:
                del known[key]

    def _tell_bad_values(self, launch: Launch) -> None:
        for event in badvalues.found(launch, self._clock.time()):
            if event.key not in self._told:
                self._told[event.key] = None
                self._put(event)
        while len(self._told) > _KEYS:
            del self._told[next(iter(self._told))]

    def _read_resets(self, now: float) -> None:
        """A person may have had tuning forget what was."""
        try:
            resets = read_resets(self._planner.directory)
        except TuneError:
            return  # the directory's own trouble is told
        for name in {one[0] for one in resets.items() ^ self._resets.items()}:
            self._due[name] = now
        self._resets = resets

    # -- deciding

    def _decide(self, now: float) -> None:
        due = [name for name, at in self._due.items() if at <= now]
        if not due:
            return
        found = workloads((self._launches or {}).values(), self._resets, self._clock.time())
        # Those launched last come first: where there is no room for all, they have it.
        for name in sorted(due, key=lambda name: -found[name][-1].started if name in found else 0.0):
            del self._due[name]
            if name not in found:
                self._decided.pop(name, None)
                self._planner.begin_again(name)
            elif self._has_room(name):
                self._decided[name] = made = self._planner.decide(name, found[name])
                self._decided_at[name] = now
                if made.problem:
                    self._due[name] = now + RETRY_SECONDS

    def _store(self, events: Sequence[Event]) -> None:
        """Put them into the journal; what it does not take now goes the way of other events and is offered again."""
        try:
            self._journal.put_events(events)
        except JournalError:
            self._metrics.journal_error()
            for event in events:
                self._put(event)

    def _has_room(self, name: str) -> bool:
        """Whether there may be a plan for it: anybody can think up names, and none may push out another."""
        if name == DEFAULT_WORKLOAD or name in self._decided:
            return True
        planned = self._planner.planned()
        if name in planned or len(planned.keys() | self._decided.keys()) < MOST_PLANS:
            return True
        told = (
            f"There are {MOST_PLANS} plans: further workloads get none. Remove old ones from {self._planner.directory}."
        )
        self._note("room", told)
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
        written = [] if self._planner.applies else [one.plan for one in made if one.file]
        stale = [plan.workload for plan in written if self._planner.is_stale(plan)]
        names = f"{', '.join(stale[:5])}{' …' if len(stale) > 5 else ''}"
        told = (
            f"[tune] mode is observe: the environment files of {names} stay as they are, and do not give what is "
            "decided now."
        )
        self._note("stale", told if stale else "")
        self._metrics.tune_state(
            workloads=len(made),
            stuck=sum(one.plan.decision.step is Step.STUCK for one in made),
            conflicts=sum(bool(one.plan.decision.conflict) for one in made),
            unwritten=sum(bool(one.problem) for one in made),
        )
        problems = tuple(filter(None, self._problems.values()))
        self.status = TuneStatus(self._planner.applies, str(self._planner.directory), tuple(made), problems)
