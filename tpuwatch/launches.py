"""Launches: the processes that initialise the TPU, put together from what their logs and /proc say.

The tracker is fed facts in the order in which they are read, from several files of one process, some of them twice;
it answers with launches that changed. The same facts always give the same launch, so nothing is lost when some are
read again after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from tpuwatch.model import Cause, Launch, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpuwatch.processes import Process, Processes

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
# How long before the first line of its log a process may have started: it imports, and may prepare its data, before it
# first asks for the TPU. Of one that did so for longer, as a notebook does, nothing tells it from a stranger who has
# the number that a process in a container knows itself by.
_LOADING_SECONDS = 900.0
_DAY = 86_400.0
_KEPT = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact was read: whose log, and whether it stood there before tpuwatch first ran."""

    pid: int | None
    user: str = ""
    host: str = ""
    history: bool = False


class Life(str, Enum):
    """Whether a launch's process is there."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"  # it ran elsewhere, or cannot be told from others


class LaunchTracker:
    """Folds marks and events into launches. `version` grows whenever one of them changes."""

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
        self._found: dict[tuple[int, float], Process | Life] = {}  # each launch's process is looked for once
        self._gone: dict[tuple[int, float], float] = {}  # when a process that had been found was first missed
        self.version = 0
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
        """Time has passed: find launches that went silent or whose process is gone, and the processes of new ones."""
        self._look()
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

    def process(self, launch: Launch) -> Process | None:
        """The launch's process, which may have ended since it was found; None if it was not."""
        found = self._found.get((launch.pid, launch.started))
        return None if isinstance(found, Life) else found

    def life(self, launch: Launch) -> Life:
        """Whether the launch's process is there."""
        if self._processes is None:
            return Life.UNKNOWN
        key = (launch.pid, launch.started)
        if key not in self._found:
            self._look()
        found = self._found.get(key, Life.UNKNOWN)
        if isinstance(found, Life):
            return found
        return Life.ALIVE if key not in self._gone and self._processes.is_there(found) else Life.GONE

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
        self.version += 1
        self._changed[(launch.pid, launch.started)] = launch

    def _only_starting(self, when: float) -> Launch | None:
        """The launch that a fault without a process belongs to: the only one under way."""
        starting = [
            launch
            for launch in self._launches.values()
            if launch.outcome in (Outcome.STARTING, Outcome.KILLED) and 0 <= when - launch.started < self.silent_after
        ]
        return starting[0] if len(starting) == 1 else None

    def _look(self) -> None:
        """Find the processes of launches that have not been looked for. All processes there are have to be read."""
        new = [one for one in self._launches.values() if (one.pid, one.started) not in self._found]
        if self._processes is None or not new:
            return
        here = self._processes.host_name()
        ours = {one.pid for one in new if one.host in ("", here)}
        numbered, unseen = self._processes.numbered(ours), Life.GONE if self._processes.sees_all() else Life.UNKNOWN
        for launch in new:
            ran_here = launch.host in ("", here)
            found = _which(launch, numbered.get(launch.pid, ()), unseen) if ran_here else Life.UNKNOWN
            self._found[(launch.pid, launch.started)] = found
            if not isinstance(found, Life) and not launch.environment:
                launch.environment = self._processes.environment(found.pid)
                self._note(launch)
        self._trim(self._found, 2 * _KEPT)

    def _is_gone(self, launch: Launch, now: float) -> bool:
        """Whether the process has been found, and has ended. Of one that never was found, silence will tell."""
        process = self.process(launch)
        if process is None or self._processes is None or self._processes.is_there(process):
            return False
        self._trim(self._gone, 2 * _KEPT)
        return now - self._gone.setdefault((launch.pid, launch.started), now) >= _GONE_SECONDS

    @staticmethod
    def _trim(known: dict[Any, Any], kept: int = _KEPT) -> None:
        while len(known) > kept:
            del known[next(iter(known))]


def _which(launch: Launch, numbered: Sequence[Process], unseen: Life) -> Process | Life:
    """Which of the processes of its number the launch's is. A number alone proves nothing: containers have their own.

    It is the only one that started before the log spoke and not long before. Where one started long before, or several
    did not long before, it is not known which it is. `unseen` is what one is that is not there to be seen.
    """
    before = [one for one in numbered if one.started <= launch.started + _SAME_PROCESS_SECONDS]
    near = [one for one in before if one.started >= launch.started - _LOADING_SECONDS]
    if len(near) == 1:
        return near[0]
    return Life.UNKNOWN if before else unseen
