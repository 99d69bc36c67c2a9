"""Training loops by what is heard of them: steps, their times, and what those show to be wrong. Pure.

A step's time is compared with the loop's own past (`pace.py`), so that no configuration has to name what is normal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.core import median
from tpuwatch.model import LOOP_FAULTS, Cause, ProgressSource, StepReport, TrainingLoop
from tpuwatch.progress.blocks import StepSample
from tpuwatch.progress.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator

INPUT_SHARE: Final = 0.2  # of the time that a loop waits for its input, from which it is bound by that,
INPUT_SHARE_UNTIL: Final = 0.15  # and below which it is not any more
STALLED_STEPS: Final = 20.0  # times the usual step time without a step, and at least the configured time,
STALLED_PAUSES: Final = 2.0  # or times the longest pause that it has made and gone on after, as for an evaluation,
LONGEST_SECONDS: Final = 3600.0  # but no longer than this, which is also the limit before its second step
RECENT_SECONDS: Final = 60.0  # the latest steps are those of this time,
RECENT_STEPS: Final = 5  # or of so many usual step times, and not fewer than so many messages
MAX_LOOPS: Final = 256
MAX_OF_USER: Final = 64
FORGET_SECONDS: Final = 3600.0  # after its last word, after which a loop that does not run is forgotten
RESUMED_STEPS: Final = 10  # a step that is further back than this is one of another run in the same output
_MAX_RECENT: Final = 600


class TpuProcess(NamedTuple):
    """A process that holds the TPU to train."""

    pid: int
    process: Hashable  # distinguishes it from a later one of the same pid
    started: float


class LoopPace(NamedTuple):
    """The pace of a loop, and its latest step."""

    pace: Pace
    step: int
    at: float


class Beginning(NamedTuple):
    """A loop whose first word was heard: by it the pace of the same loop, or of earlier launches, is found again."""

    source: ProgressSource
    name: str  # the path of the output, or the name that the job gave its loop
    pid: int | None
    process: Hashable
    user: str
    step: int
    at: float


@dataclass(slots=True)
class _Loop:
    source: ProgressSource
    name: str
    pid: int | None
    user: str
    began: float
    latest: StepReport
    stepped: float
    heard: float
    pace: Pace
    process: Hashable = None  # distinguishes it from a later one of the same pid
    recent: deque[tuple[float, float, float | None]] = field(default_factory=lambda: deque(maxlen=_MAX_RECENT))
    program: frozenset[TpuProcess] = frozenset()  # where no process is known: those that may have made its last step
    alive: bool | None = None
    silent: bool = False
    longest: float = 0.0  # seconds without a step, after which it went on
    step_seconds: float | None = None
    input_share: float | None = None
    since: dict[Cause, float] = field(default_factory=dict)  # of the faults that hold: since when

    @property
    def pids(self) -> set[int]:
        """Processes of which one makes its steps."""
        return {one.pid for one in self.program} if self.pid is None else {self.pid}


@dataclass(frozen=True, slots=True)
class LoopFault:
    """A fault that a loop has from now on."""

    cause: Cause
    loop: TrainingLoop
    at: float


class ProgressTracker:
    """Folds what is heard into loops. All times are given, in seconds since the epoch. Not thread-safe."""

    def __init__(
        self, *, stall_seconds: float, slower: float = 0.05, recall: Callable[[Beginning, float], Pace] | None = None
    ) -> None:
        """`stall_seconds`: a loop of a living process that makes no step for so long, and longer than it used to,
        stands still. `slower`: the least slow-down that is told, 0 for none. `recall` returns the pace that a loop
        begins with, given that too."""
        self.stall_seconds = stall_seconds
        self.hbm_used_bytes: float | None = None  # of all chips, as it is now; None: not known
        self._slower = slower
        self._recall = recall or (lambda _, slower: Pace(slower))
        self._loops: dict[Hashable, _Loop] = {}

    def heartbeat(
        self, name: str, progress: StepReport, *, pid: int, process: Hashable, user: str, steps: int, at: float
    ) -> bool:
        """A process said so; whether it was taken: there is no room for any number of loops."""
        key = (pid, process, name)
        if key not in self._loops and not self._make_room(user):
            return False
        loop = self._loops.get(key)
        if loop is None:
            begun = Beginning(ProgressSource.HEARTBEAT, name, pid or None, process, user, progress.step, at)
            loop = self._begin(key, begun, name, progress)
            loop.alive = True if pid else None
        if steps and progress.step_seconds is not None:
            self._sample(loop, at, progress, steps, progress.step_seconds)
        _hear(loop, progress, at)
        return True

    def output(
        self,
        path: str,
        progress: StepReport,
        *,
        pid: int | None,
        process: Hashable,
        at: float,
        holders: Collection[TpuProcess] = (),
    ) -> bool:
        """A job's output showed so when it was written last; whether it was taken. `holders`: those that held the TPU
        then."""
        key = (path,)
        loop = self._loops.get(key)
        if loop is not None and (_is_another_run(loop.latest, progress) or (process and loop.process != process)):
            del self._loops[key]
            loop = None
        if loop is None:
            if not self._make_room(""):
                return False
            begun = Beginning(ProgressSource.OUTPUT, path, pid, process, "", progress.step, at)
            loop = self._begin(key, begun, path.rpartition("/")[2], progress)
        seconds = progress.step_seconds
        ahead, passed = progress.step - loop.latest.step, at - loop.stepped
        if seconds is None and ahead > 0 and passed > 0:
            seconds = passed / ahead
        if seconds is not None and ahead:
            self._sample(loop, at, progress, max(1, ahead), seconds)
        _hear(loop, progress, at)
        loop.program = frozenset(one for one in holders if one.started <= loop.began)
        return True

    def tick(self, now: float, is_there: Callable[[int, Hashable], bool]) -> list[LoopFault]:
        """Judge all loops by the time; returns the faults that are new. `is_there`: whether a process has not ended."""
        begun: list[LoopFault] = []
        latest = self._latest_steps()
        for key, loop in list(self._loops.items()):
            if loop.pid is not None and loop.alive is not False:
                loop.alive = is_there(loop.pid, loop.process)
            elif loop.pid is None:
                loop.alive = True if _is_program_alive(loop, is_there, latest) else None
            loop.silent = loop.alive is None and now - loop.heard >= _still_seconds(loop, self.stall_seconds)
            if now - loop.heard > FORGET_SECONDS and not _shown(loop).is_running:
                del self._loops[key]
                continue
            slow = loop.pace.slowdown
            held = set(_faults(loop, now, self.stall_seconds))
            if slow is not None and loop.since.get(Cause.SLOW_STEPS, slow.told) != slow.told:
                del loop.since[Cause.SLOW_STEPS]  # it has become slower still
            for cause in loop.since.keys() - held:
                del loop.since[cause]
            new = [cause for cause in LOOP_FAULTS if cause in held and cause not in loop.since]
            for cause in new:
                loop.since[cause] = slow.told if slow is not None and cause is Cause.SLOW_STEPS else now
            begun += [LoopFault(cause, _shown(loop), loop.since[cause]) for cause in new]
        return begun

    def set_slower(self, slower: float) -> None:
        """Tell slow-downs from so much on, 0 for none."""
        self._slower = slower
        for loop in self._loops.values():
            loop.pace.set_slower(slower)

    @property
    def loops(self) -> tuple[TrainingLoop, ...]:
        """All loops: those that run before those that have ended, and of these the one that stepped last first."""
        shown = map(_shown, self._loops.values())
        return tuple(sorted(shown, key=lambda one: (not one.is_running, one.source.value, -one.stepped)))

    @property
    def paces(self) -> list[LoopPace]:
        """The pace of all loops."""
        return [LoopPace(one.pace, one.latest.step, one.stepped) for one in self._loops.values()]

    def _latest_steps(self) -> dict[int, float]:
        """When each process may have made its last step, in any of its loops."""
        latest: dict[int, float] = {}
        for loop in self._loops.values():
            for pid in loop.pids:
                latest[pid] = max(latest.get(pid, loop.stepped), loop.stepped)
        return latest

    def _begin(self, key: Hashable, begun: Beginning, name: str, progress: StepReport) -> _Loop:
        at = begun.at
        pace = self._recall(begun, self._slower)
        loop = _Loop(begun.source, name, begun.pid, begun.user, at, progress, at, at, pace, begun.process)
        slow = pace.slowdown
        if slow is not None and not slow.gradual:  # it was told before the daemon was started again
            loop.since[Cause.SLOW_STEPS] = slow.told
        self._loops[key] = loop
        return loop

    def _sample(self, loop: _Loop, at: float, progress: StepReport, steps: int, seconds: float) -> None:
        loop.recent.append((at, seconds, progress.input_seconds))
        rate = progress.tokens_per_second
        tokens = rate * seconds if rate is not None and seconds > 0 else None
        loop.pace.add(StepSample(at, progress.step, steps, seconds, tokens, self.hbm_used_bytes))
        usual = loop.pace.usual_seconds or 0.0
        since = at - max(RECENT_SECONDS, RECENT_STEPS * usual)
        while len(loop.recent) > RECENT_STEPS and loop.recent[0][0] < since:
            loop.recent.popleft()
        loop.step_seconds = median(one for _, one, _ in loop.recent)
        waits = [(one, wait) for _, one, wait in loop.recent if wait is not None]
        total = sum(one for one, _ in waits)
        loop.input_share = min(1.0, sum(wait for _, wait in waits) / total) if total > 0 else None

    def _make_room(self, user: str) -> bool:
        if sum(one.user == user for one in self._loops.values()) >= MAX_OF_USER:
            return self._drop(user)
        return len(self._loops) < MAX_LOOPS or self._drop(None)

    def _drop(self, user: str | None) -> bool:
        """Forget the loop of that user, or of anybody, that has ended longest ago; whether there was one."""
        ended = [key for key, one in self._loops.items() if user in (None, one.user) and not _shown(one).is_running]
        if ended:
            del self._loops[min(ended, key=lambda key: self._loops[key].heard)]
        return bool(ended)


def _hear(loop: _Loop, progress: StepReport, at: float) -> None:
    if progress.step != loop.latest.step:
        loop.longest = max(loop.longest, at - loop.stepped)
        loop.stepped = max(at, loop.stepped)
    loop.heard = max(at, loop.heard)
    loop.latest = progress


def _is_program_alive(loop: _Loop, is_there: Callable[[int, Hashable], bool], latest: dict[int, float]) -> bool:
    """Whether the process of a loop without a pid is known to live, and to have more steps to make.

    It is one of those that held the TPU at its last step; which one is not known, so that it may be the one that has
    ended. If one of them has made a step since, in another loop, this loop may be over.
    """
    if not loop.program or (loop.latest.total is not None and loop.latest.step >= loop.latest.total):
        return False
    return all(is_there(one.pid, one.process) and latest[one.pid] <= loop.stepped for one in loop.program)


def _is_another_run(before: StepReport, now: StepReport) -> bool:
    """Whether a step so far back begins another run. A bar begins again with each epoch."""
    return now.total is None and now.step < before.step - RESUMED_STEPS


def _still_seconds(loop: _Loop, stall_seconds: float) -> float:
    """For how long a loop makes no step that stands still. Evaluations, checkpoints and the first step take longer than
    others: what it has done before is no fault, and of one step alone it is not known what is usual."""
    usual = loop.pace.usual_seconds
    pauses = min(STALLED_PAUSES * loop.longest, LONGEST_SECONDS)
    longest = LONGEST_SECONDS if usual is None and loop.alive else pauses
    return max(stall_seconds, longest, STALLED_STEPS * (usual or 0.0))


def _faults(loop: _Loop, now: float, stall_seconds: float) -> Iterator[Cause]:
    shown = _shown(loop)
    if loop.latest.nan:
        yield Cause.NUMERIC_FAULT
    if not shown.is_running:
        return
    if loop.alive and now - loop.stepped >= _still_seconds(loop, stall_seconds):
        yield Cause.STEPS_STALLED
        return
    enough = len(loop.recent) >= RECENT_STEPS
    slow = loop.pace.slowdown
    if slow is not None and not slow.gradual:
        yield Cause.SLOW_STEPS
    if enough and loop.input_share is not None and loop.recent[-1][0] - loop.recent[0][0] >= RECENT_SECONDS / 2:
        limit = INPUT_SHARE_UNTIL if Cause.INPUT_BOUND in loop.since else INPUT_SHARE
        if loop.input_share >= limit:
            yield Cause.INPUT_BOUND


def _shown(loop: _Loop) -> TrainingLoop:
    latest = loop.latest
    return TrainingLoop(
        source=loop.source,
        name=loop.name,
        pid=loop.pid,
        user=loop.user,
        began=loop.began,
        step=latest.step,
        stepped=loop.stepped,
        heard=loop.heard,
        total=latest.total,
        loss=latest.loss,
        tokens_per_second=latest.tokens_per_second,
        step_seconds=loop.step_seconds,
        usual_step_seconds=loop.pace.baseline_seconds,
        input_share=loop.input_share,
        done=latest.done,
        alive=loop.alive,
        silent=loop.silent,
        faults=tuple(cause for cause in LOOP_FAULTS if cause in loop.since),
        slowdown=loop.pace.slowdown,
    )
