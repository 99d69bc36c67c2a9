"""Launches: the processes that initialise the TPU, assembled from their logs and /proc.

The tracker is fed facts in the order in which they are read, from several files of one process, some of them twice;
it answers with launches that changed. The same facts always give the same launch, so nothing is lost when some are
read again after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpuwatch.launches import facts
from tpuwatch.launches.life import SAME_PROCESS_SECONDS, Life, Lives
from tpuwatch.launches.outputs import SETTLE_SECONDS, OutputLaunches, is_alike
from tpuwatch.model import LAUNCH_VARIABLE, Cause, Launch, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.host import Process, Processes
    from tpuwatch.launches.exec_records import ExecRecord
    from tpuwatch.logs import Match, Repeats

# What the tracker understands.
MARKS = frozenset({"banner", "premapped", "premapped_in_use", "init_started", "init_done", "chips"})
_BEGINS = frozenset({"init_started", "premapped", "init_done"})  # marks that only a process which wants the TPU leaves
_GONE_SECONDS = 5.0  # after a process went away its last lines are still being read
_DAY = 86_400.0
_KEPT = 256
_KEPT_FAILURES = 16_384  # whose copies are known again: a record stands in up to four files
_LOOK_SECONDS = 1.0  # between two looks whether processes have ended
# An out-of-memory kill is known by a counter that is read now and then; so long before, or after, the process was gone.
_KILL_BEFORE_SECONDS, _KILL_AFTER_SECONDS = 15.0, 5.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact was read: whose log, and whether it stood there before tpuwatch first ran."""

    pid: int | None
    user: str = ""
    host: str = ""
    history: bool = False
    output: bool = False  # what the job printed, which may repeat libtpu's log
    stream: str = ""  # the output, and its author there, if launches without a process number are to be made of it


class LaunchTracker:
    """Folds marks and events into launches. `version` grows whenever one of them changes."""

    def __init__(
        self,
        launches: Iterable[Launch] = (),
        *,
        processes: Processes | None = None,
        silent_after: float = 300.0,
        boot_id: str = "",
        booted: float = 0.0,
        counted: Iterable[bytes] = (),
    ) -> None:
        """`launches`: the latest ones known. `silent_after`: seconds without a word until a launch is silent.

        `boot_id`, `booted`: the machine's boot and its time. `counted`: the keys of failures that are in the launches.
        """
        self._launches: dict[int, Launch] = {}
        for launch in sorted(launches, key=lambda launch: launch.started):
            self._launches[launch.pid] = launch
        self._outputs = OutputLaunches(self.latest())
        self._settling: dict[tuple[int, float], tuple[float, Launch]] = {}  # decided, and when to conclude them
        self._banners: dict[int, tuple[float, Mapping[str, Any]]] = {}
        self.silent_after = silent_after
        self._boot_id, self._booted = boot_id, booted
        self._counted = dict.fromkeys(counted, False)  # by the keys of failures, whether another source had them too
        # How many failures each launch's log has, and how many its output; unknown for launches of an earlier run.
        self._tallies = {(one.pid, one.started): [one.premapped_failures] * 2 for one in self._launches.values()}
        self._lacked: dict[tuple[int, float], int] = {}  # bytes, by launches whose buffer's size is not known yet
        self._killed: float | None = None  # when the kernel was last found to have killed for want of memory
        self._next_look = float("-inf")
        self._lives = Lives(processes)
        self.version = 0
        self._changed: dict[tuple[int, float], Launch] = {}
        self._concluded: dict[tuple[int, float], Launch] = {}

    def observe(self, match: Match, origin: Origin, now: float) -> None:
        """A rule recognised something. `now` stands for the time of a record that has none."""
        if match.repeats is not None:
            self._observe_repeats(match, match.repeats, origin, now)
        when = now if match.time is None else match.time
        if origin.history and match.time is None:  # when it began is not known
            origin = replace(origin, stream="")
        if match.rule.mark is not None:
            self.mark(match.rule.mark, match.details, origin, when, match.key)
        if match.rule.cause is not None:
            self.event(match.rule.cause, match.details, origin, when, match.key)

    def _observe_repeats(self, match: Match, repeats: Repeats, origin: Origin, now: float) -> None:
        """Of many faults of one cause the first matters; of those of a launch's premapped buffer each, by its size."""
        first = next(repeats.matches())
        self.observe(first, origin, now)
        cause, when = match.rule.cause, now if first.time is None else first.time
        if cause is Cause.PREMAPPED_EXHAUSTED and self._of(cause, origin, when) is not None:
            for one in repeats.matches():
                self.observe(one, origin, now)

    def mark(self, name: str, details: Mapping[str, Any], origin: Origin, when: float, key: bytes = b"") -> None:
        """A fact of a launch was read; `when` in seconds since the epoch. `key`: of its record."""
        pid = origin.pid
        if name == "banner":
            if pid is None:
                return
            known, banner = self._banners.get(pid, (when, {}))
            if when - known > SAME_PROCESS_SECONDS:  # the number was given to another process
                known, banner = when, {}
            self._banners[pid] = (known, {**banner, **details})
            self._trim(self._banners)
            return
        if pid is None:
            launch = self._of_output(name, origin, when, key)
        else:
            launch = self._launch(pid, origin, when) if name in _BEGINS else self._launches.get(pid)
        if launch is None:
            return
        self._learn(launch, name, details)
        launch.last_heard = max(when, launch.last_heard or when)
        if name == "init_done":
            self._conclude(launch, Outcome.OK)
        self._note(launch)

    def event(
        self, cause: Cause, details: Mapping[str, Any], origin: Origin, when: float, key: bytes | None = None
    ) -> None:
        """A fault was recognised. `key` is the same for each copy of its record; None: there are no copies."""
        launch = self._of(cause, origin, when) if cause.is_known_fault else None
        if launch is None or when < launch.started:
            return
        changed = facts.add_fault(launch, cause, when)
        if cause is Cause.SLOW_INIT and "init_seconds" in details:
            launch.init_seconds = details["init_seconds"]
            self._conclude(launch, Outcome.SLOW)
        elif cause is Cause.PREMAPPED_EXHAUSTED:
            changed = self._count_failure(launch, details, key, output=origin.output) or changed
        elif cause.row.fatal and launch.outcome in (Outcome.STARTING, Outcome.SILENT, Outcome.KILLED):
            launch.cause = cause
            self._conclude(launch, Outcome.FAILED)
        elif not changed:
            return
        if changed or cause is not Cause.PREMAPPED_EXHAUSTED:
            launch.last_heard = max(when, launch.last_heard or when)
            self._note(launch)

    def oom_kill(self, at: float) -> None:
        """The kernel was found, at that time, to have killed something because memory ran out."""
        if at == self._killed:
            return
        self._killed = at
        for launch in self._launches.values():
            if launch.ended is not None:
                self._blame_memory(launch)

    def add_record(self, record: ExecRecord) -> None:
        """`tpuwatch exec` has left a record. The same one may come twice."""
        marked = [one for one in self._launches.values() if one.environment.get(LAUNCH_VARIABLE) == record.id]
        if marked and not {one.pid for one in marked} & {one.pid for one in record.launches}:
            self._add_record_by_mark(record, marked)
            return
        for theirs in record.launches:
            known = self._launches.get(theirs.pid)
            if known is not None and _is_same(known, theirs, record):
                if facts.may_describe(record, known):
                    self._merge(known, theirs, record)
            elif (printed := self._outputs.within(theirs, record.started - SETTLE_SECONDS, record.ended)) is not None:
                if facts.may_describe(record, printed):
                    self._merge(printed, theirs, record)
            else:
                self._add(theirs, record)

    def _add_record_by_mark(self, record: ExecRecord, marked: list[Launch]) -> None:
        """It saw none of the launches that name it in their environments, or knows of one by the output alone."""
        alone = len(marked) == 1
        for launch in marked:
            if not facts.may_describe(record, launch):
                continue
            if alone and len(record.launches) == 1:
                theirs = record.launches[0]
            else:
                theirs = replace(launch, exit_status=record.exit_status if alone else None, faults={})
            self._merge(launch, theirs, record)

    def tick(self, now: float) -> None:
        """Time has passed: find launches that went silent or whose process is gone, and the processes of new ones."""
        self._look()
        self._settle(now)
        if not 0 < self._next_look - now <= _LOOK_SECONDS:
            self._next_look = now + _LOOK_SECONDS
            self._find_ended(now)
        for launch in [launch for launch in self._launches.values() if launch.outcome is Outcome.STARTING]:
            if launch.ended is not None and now - launch.ended >= _GONE_SECONDS:
                self._conclude(launch, Outcome.KILLED)
                self._note(launch)
            elif now - (launch.last_heard or launch.started) > self.silent_after:
                self._conclude(launch, Outcome.SILENT)
                self._note(launch)

    def changed(self) -> list[Launch]:
        """Launches that are new or changed since this was last asked."""
        changed, self._changed = self._changed, {}
        return [replace(launch) for launch in changed.values()]

    def concluded(self) -> list[Launch]:
        """Launches, not of history, whose outcome was decided since this was last asked."""
        concluded, self._concluded = self._concluded, {}
        return list(concluded.values())

    def is_duplicate(self, key: bytes) -> bool:
        """Whether the failure of the premapped buffer with that key is in both a launch's log and its output, and was
        counted with the first of the two.
        """
        return self._counted.get(key, False)

    def latest(self) -> list[Launch]:
        """The last launch of each process number, oldest first."""
        return sorted(self._launches.values(), key=lambda launch: launch.started)

    def process(self, launch: Launch) -> Process | None:
        """The launch's process, which may have ended since it was found; None if it was not."""
        return self._lives.process(launch)

    def life(self, launch: Launch) -> Life:
        """Whether the launch's process is there."""
        if not self._lives.knows(launch):
            self._look()
        return self._lives.life(launch)

    def _count_failure(self, launch: Launch, details: Mapping[str, Any], key: bytes | None, *, output: bool) -> bool:
        """The premapped buffer had no room; whether this is no copy of what is counted already.

        What a job prints of it has another key than what libtpu logs, and often another wording. So each of them is
        counted by itself, and the launch has as many failures as the one that has more.
        """
        if key is not None and key in self._counted:
            return False
        which = (launch.pid, launch.started)
        tally = self._tallies.setdefault(which, [0, 0])
        self._trim(self._tallies)
        known = max(tally)
        tally[output] += 1
        if key is not None:
            self._counted[key] = max(tally) == known
            self._trim(self._counted, _KEPT_FAILURES)
        launch.premapped_failures = max(launch.premapped_failures, *tally)
        shortage = facts.shortage(details)
        if shortage is not None:
            asked, lacked = shortage
            launch.premapped_asked_bytes = max(asked, launch.premapped_asked_bytes or 0)
            self._lacked[which] = max(lacked, self._lacked.get(which, 0))
            self._trim(self._lacked)
            facts.add_need(launch, lacked)
        return True

    def _merge(self, launch: Launch, theirs: Launch, record: ExecRecord) -> None:
        before = replace(launch)
        self._conclude(launch, facts.merge(launch, theirs, record))
        if launch != before:
            self._note(launch)

    def _add(self, theirs: Launch, record: ExecRecord) -> None:
        """A launch of which only `tpuwatch exec` knows."""
        user = theirs.user if facts.is_trusted(record) else record.owner
        launch = replace(theirs, outcome=Outcome.STARTING, user=user, boot_id=self._boot_of(theirs.started), id=None)
        known = self._launches.get(launch.pid)
        if known is None or known.started < launch.started:
            self._launches[launch.pid] = launch
            self._trim(self._launches)
        self._conclude(launch, facts.merge(launch, theirs, record))
        self._note(launch)

    def _boot_of(self, started: float) -> str:
        return self._boot_id if started >= self._booted else ""

    def _find_ended(self, now: float) -> None:
        """Note the end of processes that have been found, and are gone."""
        for launch in self._launches.values():
            if launch.ended is None and self._lives.is_gone(launch):
                launch.ended = now
                self._blame_memory(launch)
                self._note(launch)

    def _blame_memory(self, launch: Launch) -> None:
        """Whether the launch vanished when the kernel killed for want of memory: then that is a fault of it."""
        if launch.ended is None or self._killed is None or launch.history or launch.exit_status == 0:
            return
        if -_KILL_AFTER_SECONDS <= self._killed - launch.ended <= _KILL_BEFORE_SECONDS and facts.add_fault(
            launch, Cause.HOST_OOM, launch.ended
        ):
            self._note(launch)

    def _of(self, cause: Cause, origin: Origin, when: float) -> Launch | None:
        """The launch that a fault belongs to."""
        if origin.pid is None:
            printed = self._outputs.latest(origin.stream)
            if printed is not None:
                return printed
            if cause.row.fatal or cause is Cause.SLOW_INIT:
                return self._only_starting(when)
            return None if origin.history else self._only_running(when)
        if cause.row.fatal and cause.row.wants_tpu and origin.pid in self._banners:
            return self._launch(origin.pid, origin, when)
        launch, banner = self._launches.get(origin.pid), self._banners.get(origin.pid)
        if launch is not None and banner is not None and launch.started < banner[0] - SAME_PROCESS_SECONDS <= when:
            return None  # of a later process that has the number
        return launch

    def _of_output(self, name: str, origin: Origin, when: float, key: bytes) -> Launch | None:
        """The launch that a mark without a process number is of; None if libtpu's log shows it too."""
        launch = self._outputs.goes_on(origin.stream, name, when)
        if launch is not None or name not in _BEGINS or not origin.stream:
            return launch
        launch = self._outputs.begin(origin.stream, when, key)
        if any(is_alike(launch, known) for known in self._launches.values() if not known.output):
            self._outputs.forget(launch)
            return None
        launch.user, launch.host, launch.history = origin.user, origin.host, origin.history
        launch.boot_id = "" if launch.history else self._boot_of(when)
        self._launches[launch.pid] = launch
        self._trim(self._launches)
        return launch

    def _settle(self, now: float) -> None:
        """Conclude launches known from an output, once it is late for libtpu's log to show them."""
        for key, (due, launch) in list(self._settling.items()):
            if due <= now:
                del self._settling[key]
                self._concluded[key] = launch

    def _supersede(self, numbered: Launch) -> None:
        """Drop what outputs showed of the launch."""
        for launch in self._outputs.alike(numbered):
            self._outputs.forget(launch)
            self._settling.pop((launch.pid, launch.started), None)
            self._launches.pop(launch.pid, None)
            launch.superseded = True
            self._changed[(launch.pid, launch.started)] = launch

    def _launch(self, pid: int, origin: Origin, when: float) -> Launch:
        known = self._launches.get(pid)
        banner = self._banners.get(pid)
        if banner is not None and not 0 <= when - banner[0] < _DAY:  # of another process that had the number
            banner = None
        started, marks = banner or (when, {})
        # A known launch may lack its banner: that was read before a restart of ours.
        renewed = known is not None and banner is not None and known.started < started - SAME_PROCESS_SECONDS
        if known is not None and not renewed and when - known.started < _DAY:
            return known
        launch = Launch(
            pid,
            started,
            origin.user,
            origin.host,
            str(marks.get("build", "")),
            last_heard=when,
            history=origin.history,
        )
        if not launch.history:
            launch.boot_id = self._boot_of(started)
        self._launches[pid] = launch
        self._trim(self._launches)
        return launch

    def _learn(self, launch: Launch, name: str, details: Mapping[str, Any]) -> None:
        if name in ("premapped", "premapped_in_use"):
            launch.premapped_bytes = details.get("premapped_bytes", launch.premapped_bytes)
            launch.premapped_threshold_bytes = details.get(
                "premapped_threshold_bytes", launch.premapped_threshold_bytes
            )
            launch.premapped_partitions = details.get("premapped_partitions_count", launch.premapped_partitions)
            if lacked := self._lacked.get((launch.pid, launch.started)):
                facts.add_need(launch, lacked)
        elif name == "chips":
            launch.chips = details.get("chips_count", launch.chips)
            launch.chip_kind = str(details.get("chip_kind", launch.chip_kind))
        elif name == "init_done":
            launch.init_seconds = details.get("init_seconds", launch.init_seconds)

    def _conclude(self, launch: Launch, outcome: Outcome) -> None:
        if launch.outcome is outcome or (outcome is Outcome.OK and launch.outcome is Outcome.SLOW):
            return
        launch.outcome = outcome
        key = (launch.pid, launch.started)
        if launch.output and not launch.history:
            self._settling[key] = (launch.last_heard or launch.started) + SETTLE_SECONDS, launch
        elif not launch.history:
            self._concluded[key] = launch

    def _note(self, launch: Launch) -> None:
        self.version += 1
        if not launch.output:
            self._supersede(launch)
        self._changed[(launch.pid, launch.started)] = launch

    def _only_starting(self, when: float) -> Launch | None:
        """The launch that a fault without a process belongs to: the only one under way."""
        starting = [
            launch
            for launch in self._launches.values()
            if not launch.output
            and launch.outcome in (Outcome.STARTING, Outcome.KILLED)
            and 0 <= when - launch.started < self.silent_after
        ]
        return starting[0] if len(starting) == 1 else None

    def _only_running(self, when: float) -> Launch | None:
        """The only launch whose process was there then."""
        running = [
            launch
            for launch in self._launches.values()
            if launch.started <= when <= (when if launch.ended is None else launch.ended + _GONE_SECONDS)
            and self.process(launch) is not None
        ]
        return running[0] if len(running) == 1 else None

    def _look(self) -> None:
        """Find the processes of launches that have not been looked for."""
        for launch, environment in self._lives.look(self._launches.values()):
            facts.set_environment(launch, environment)
            self._note(launch)

    @staticmethod
    def _trim(known: dict[Any, Any], kept: int = _KEPT) -> None:
        while len(known) > kept:
            del known[next(iter(known))]


def shows_launch(match: Match) -> bool:
    """Whether only a process that wants the TPU prints or logs this."""
    cause = match.rule.cause
    return match.rule.mark in _BEGINS or (cause is not None and cause.row.wants_tpu and not cause.row.fatal)


def _is_same(known: Launch, theirs: Launch, record: ExecRecord) -> bool:
    """Whether both are of one process: no number is given twice while a command runs."""
    near = abs(known.started - theirs.started) <= SAME_PROCESS_SECONDS
    return near or record.started - SAME_PROCESS_SECONDS <= known.started <= record.ended
