"""Launches: the processes that initialise the TPU, put together from what their logs and /proc say.

The tracker is fed facts in the order in which they are read, from several files of one process, some of them twice;
it answers with launches that changed. The same facts always give the same launch, so nothing is lost when some are
read again after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpuwatch.model import Cause, Launch, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.processes import Processes

# What ends a launch when it happens before the TPU is up.
FATAL = frozenset(
    {
        Cause.BAD_FLAG,
        Cause.TPU_IN_USE,
        Cause.METADATA_UNREACHABLE,
        Cause.VERSION_MISMATCH,
        Cause.PERMISSION_DENIED,
        Cause.DRIVER_ERROR,
        Cause.NODE_UNHEALTHY,
        Cause.COMPILER_CRASH,
        Cause.MESH_ERROR,
        Cause.NO_TPU_FOUND,
        Cause.INIT_FAILED,
    }
)
# Those of them that only a process which wants the TPU meets: they tell of a launch that came no further.
_EARLY = FATAL - {Cause.COMPILER_CRASH, Cause.VERSION_MISMATCH, Cause.PERMISSION_DENIED}
MARKS = frozenset({"banner", "premapped", "init_started", "init_done", "chips"})  # that the tracker understands
_BEGINS = frozenset({"init_started", "premapped", "init_done"})  # marks that only a process which wants the TPU leaves
_GONE_SECONDS = 5.0  # after a process went away its last lines are still being read
_SAME_PROCESS_SECONDS = 5.0  # a log begins when its process has run for a moment
_DAY = 86_400.0
_KEPT = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact was read: whose log, and whether it stood there before tpuwatch first ran."""

    pid: int | None
    user: str = ""
    host: str = ""
    history: bool = False


class LaunchTracker:
    """Folds marks and events into launches."""

    def __init__(
        self, launches: Iterable[Launch] = (), *, processes: Processes | None = None, silent_after: float = 300.0
    ) -> None:
        """`launches`: the latest ones known. `silent_after`: seconds without a word until a launch is silent."""
        self._launches: dict[int, Launch] = {}
        for launch in sorted(launches, key=lambda launch: launch.started):
            self._launches[launch.pid] = launch
        self._banners: dict[int, tuple[float, Mapping[str, Any]]] = {}
        self._processes = processes
        self.silent_after = silent_after
        self._seen: set[int] = set()  # processes of ours that were seen alive
        self._gone: dict[int, float] = {}  # when they were first missed
        self._changed: dict[tuple[int, float], Launch] = {}
        self._concluded: dict[tuple[int, float], Launch] = {}

    def mark(self, name: str, details: Mapping[str, Any], origin: Origin, when: float) -> None:
        """A fact of a launch was read; `when` in seconds since the epoch."""
        pid = origin.pid
        if pid is None:
            return
        if name == "banner":
            known, facts = self._banners.get(pid, (when, {}))
            if when - known > _SAME_PROCESS_SECONDS:  # the number was given to another process
                known, facts = when, {}
            self._banners[pid] = (known, {**facts, **details})
            self._trim(self._banners)
            return
        launch = self._launch(pid, origin, when) if name in _BEGINS else self._launches.get(pid)
        if launch is None:
            return
        self._learn(launch, name, details)
        launch.last_heard = max(when, launch.last_heard or when)
        if name == "init_done":
            self._conclude(launch, Outcome.OK)
        self._note(launch)

    def event(self, cause: Cause, details: Mapping[str, Any], origin: Origin, when: float) -> None:
        """A fault was recognised."""
        launch = self._of(cause, origin, when)
        if launch is None or when < launch.started:
            return
        if cause is Cause.SLOW_INIT and "init_seconds" in details:
            launch.init_seconds = details["init_seconds"]
            self._conclude(launch, Outcome.SLOW)
        elif cause in FATAL and launch.outcome in (Outcome.STARTING, Outcome.SILENT, Outcome.KILLED):
            launch.cause = cause
            self._conclude(launch, Outcome.FAILED)
        else:
            return
        launch.last_heard = max(when, launch.last_heard or when)
        self._note(launch)

    def tick(self, now: float) -> None:
        """Time has passed: find launches that went silent or whose process is gone."""
        for launch in [launch for launch in self._launches.values() if launch.outcome is Outcome.STARTING]:
            if self._is_gone(launch, now):
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

    def latest(self) -> list[Launch]:
        """The last launch of each process number, oldest first."""
        return sorted(self._launches.values(), key=lambda launch: launch.started)

    def lives(self, launch: Launch) -> bool:
        """Whether the process of that number is the launch's: it started before the log spoke, and not long before."""
        started = self._processes.started(launch.pid) if self._processes is not None else None
        return started is not None and started <= launch.started + _SAME_PROCESS_SECONDS

    def _of(self, cause: Cause, origin: Origin, when: float) -> Launch | None:
        """The launch that a fault belongs to."""
        if origin.pid is None:
            return self._only_starting(when)
        if cause in _EARLY and origin.pid in self._banners:
            return self._launch(origin.pid, origin, when)
        return self._launches.get(origin.pid)

    def _launch(self, pid: int, origin: Origin, when: float) -> Launch:
        known = self._launches.get(pid)
        banner = self._banners.get(pid)
        if banner is not None and not 0 <= when - banner[0] < _DAY:  # of another process that had the number
            banner = None
        started, facts = banner or (when, {})
        # A known launch may lack its banner: that was read before a restart of ours.
        renewed = known is not None and banner is not None and known.started < started - _SAME_PROCESS_SECONDS
        if known is not None and not renewed and when - known.started < _DAY:
            return known
        launch = Launch(
            pid, started, origin.user, origin.host, str(facts.get("build", "")), last_heard=when, history=origin.history
        )
        if self._processes is not None and self.lives(launch):
            self._seen.add(pid)
            launch.environment = self._processes.environment(pid)
        self._launches[pid] = launch
        self._trim(self._launches)
        return launch

    def _learn(self, launch: Launch, name: str, details: Mapping[str, Any]) -> None:
        if name == "premapped":
            launch.premapped_bytes = details.get("premapped_bytes", launch.premapped_bytes)
            launch.premapped_threshold_bytes = details.get(
                "premapped_threshold_bytes", launch.premapped_threshold_bytes
            )
            launch.premapped_partitions = details.get("premapped_partitions_count", launch.premapped_partitions)
        elif name == "chips":
            launch.chips = details.get("chips_count", launch.chips)
            launch.chip_kind = str(details.get("chip_kind", launch.chip_kind))
        elif name == "init_done":
            launch.init_seconds = details.get("init_seconds", launch.init_seconds)

    def _conclude(self, launch: Launch, outcome: Outcome) -> None:
        if launch.outcome is outcome or (outcome is Outcome.OK and launch.outcome is Outcome.SLOW):
            return
        launch.outcome = outcome
        if not launch.history:
            self._concluded[(launch.pid, launch.started)] = launch

    def _note(self, launch: Launch) -> None:
        self._changed[(launch.pid, launch.started)] = launch

    def _only_starting(self, when: float) -> Launch | None:
        """The launch that a fault without a process belongs to: the only one under way."""
        starting = [
            launch
            for launch in self._launches.values()
            if launch.outcome in (Outcome.STARTING, Outcome.KILLED) and 0 <= when - launch.started < self.silent_after
        ]
        return starting[0] if len(starting) == 1 else None

    def _is_gone(self, launch: Launch, now: float) -> bool:
        if self._processes is None:
            return False
        if self.lives(launch):
            self._seen.add(launch.pid)
            self._gone.pop(launch.pid, None)
            return False
        if launch.pid not in self._seen:  # of another pid namespace, or gone before we looked: silence will tell
            return False
        return now - self._gone.setdefault(launch.pid, now) >= _GONE_SECONDS

    @staticmethod
    def _trim(known: dict[int, Any]) -> None:
        while len(known) > _KEPT:
            del known[next(iter(known))]
