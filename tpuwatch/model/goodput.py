"""Where the time of trainings goes: steps as they were seen, states, interruptions and the figures from them.

Durations are seconds, times seconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.core import length
from tpuwatch.model.progress import ProgressSource

if TYPE_CHECKING:
    from collections.abc import Mapping

GOODPUT_SECONDS: Final = 7 * 86_400.0  # the period of the status, the page and the command, if no other is asked for


class TrainingState(str, Enum):
    """The state of a training: every second of it has exactly one. The value is what users see."""

    PRODUCTIVE = "productive"  # ordinary steps, at the best pace of the training
    SLOW = "slow"  # the rest of ordinary steps
    PAUSE = "pause"  # beyond one step, in steps that are far longer than others: evaluation, checkpoint, compilation
    STUCK = "stuck"  # no step, while the verdict or the loop is stuck
    REPEATED = "repeated"  # steps that a later launch did again
    INITIALISATION = "initialisation"  # from the start of the process until the TPU is up
    STARTUP = "startup"  # from then until the first step: compilation, restore, data
    ENDING = "ending"  # from the last step until the process is gone
    CAPACITY = "capacity"  # no process, and the machine is not there
    MAINTENANCE = "maintenance"  # no process, and the node is under maintenance
    DOWN = "down"  # no process, and nothing explains it
    UNKNOWN = "unknown"  # nothing shows it


# What Google's library for goodput calls productive.
STEPPING: Final = (TrainingState.PRODUCTIVE, TrainingState.SLOW, TrainingState.PAUSE, TrainingState.STUCK)
LOST: Final = tuple(state for state in TrainingState if state not in (TrainingState.PRODUCTIVE, TrainingState.UNKNOWN))
_NAMED: Final = 3  # states in a sentence
NO_PROCESS: Final = (TrainingState.CAPACITY, TrainingState.MAINTENANCE, TrainingState.DOWN)


class InterruptionReason(str, Enum):
    """The kind of an interruption. The value is a label of a metric."""

    PROGRAM = "program"  # a fault of the program
    SETUP = "setup"  # of its software, settings, access, or of another process on the host
    NODE = "node"  # the node may be at fault
    WORKER = "worker"  # another worker of the slice failed
    MACHINE = "machine"  # the machine was stopped, preempted or restarted
    MAINTENANCE = "maintenance"  # the node went into maintenance
    KILLED = "killed"  # a signal that is no request to end
    FAILED = "failed"  # an exit status without a known cause
    UNKNOWN = "unknown"  # neither an exit status nor a cause is known


class StepSpan(NamedTuple):
    """Steps in a row. It begins where the span before it ends."""

    until: float
    step: int  # the last one
    steps: int
    ordinary_seconds: float
    pause_seconds: float  # besides those of the run's `pauses`


class StepPause(NamedTuple):
    """A step that took far longer than others."""

    until: float
    step: int
    seconds: float  # beyond an ordinary step
    stalled: bool = False  # the loop counted as one that stands still


@dataclass(frozen=True, slots=True)
class StepRun:
    """Steps of one training loop while they grow, as tpuwatch saw them."""

    source: ProgressSource
    name: str  # of the loop
    pid: int | None
    user: str
    watched_since: float  # when tpuwatch began to look; earlier steps may be missing
    began: float  # when the first step was seen
    first_step: int
    stride: int  # steps between two looks
    step_seconds: float | None  # the median time of ordinary steps; None: there are not two looks
    looks: int
    spans: tuple[StepSpan, ...] = ()
    pauses: tuple[StepPause, ...] = ()
    continues: bool = False  # the loop's steps began again, as those of the next epoch
    done: bool = False  # by the job's word
    stalled: bool = False  # the loop stands still since its last step

    @property
    def first_steps(self) -> int:
        """The number of steps that were made until the first look, which shows the last of them.

        A loop that sends heartbeats does so with its first step. One that prints every tenth step has made ten.
        """
        return 1 if self.source is ProgressSource.HEARTBEAT else min(self.stride, self.first_step + 1)

    @property
    def until(self) -> float:
        """When the last step was seen."""
        return self.spans[-1].until if self.spans else self.began

    @property
    def step(self) -> int:
        """The last step."""
        return self.spans[-1].step if self.spans else self.first_step


class NodeSpanKind(str, Enum):
    """What a span says."""

    WATCHED = "watched"  # tpuwatch ran, in one boot of the machine
    STUCK = "stuck"
    MAINTENANCE = "maintenance"


class NodeSpan(NamedTuple):
    """How the node was, or that it was watched."""

    kind: NodeSpanKind
    since: float
    until: float
    boot_id: str = ""


class Interruption(NamedTuple):
    """The end of a launch that nobody wanted."""

    at: float  # when its process was gone
    reason: InterruptionReason
    cause: str  # a cause, or the exit status; empty: not known
    recovery_seconds: float | None = None  # from its last step to the next new one; None: there is none yet


class Estimate(NamedTuple):
    """A figure, and the interval that has it with 95 %; None where there are too few interruptions for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingAccount:
    """Where the time of one training went, within a period."""

    workload: str
    user: str
    began: float
    ended: float | None  # None: it runs, or waits to be started again
    launches: int
    step: int | None  # the last one; None: no step was seen
    step_seconds: float | None  # the best median of its launches
    seconds: Mapping[TrainingState, float]
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True, slots=True)
class Goodput:
    """Where the time of all trainings of a period went."""

    since: float
    until: float
    trainings: tuple[TrainingAccount, ...] = ()
    seconds: Mapping[TrainingState, float] = field(default_factory=dict)  # of all of them
    interruptions: tuple[Interruption, ...] = ()
    time_between_interruptions: Estimate | None = None  # None: there was none
    time_to_recover: Estimate | None = None  # the same
    availability: Estimate | None = None  # None: there was no training

    @property
    def total_seconds(self) -> float:
        """All time of all trainings."""
        return sum(self.seconds.values())

    @property
    def lost_seconds(self) -> float:
        """The time in states that are known and not productive."""
        return sum(self.seconds.get(state, 0.0) for state in LOST)

    @property
    def goodput(self) -> float | None:
        """The productive share of all time, from 0 to 1; None if no step was seen."""
        if not any(self.seconds.get(state) for state in STEPPING):
            return None
        return self.seconds[TrainingState.PRODUCTIVE] / self.total_seconds

    @property
    def google_goodput(self) -> float | None:
        """The share that Google's library calls productive: all time from the first step of a launch to its last one,
        without what was repeated. None if no step was seen."""
        if self.goodput is None:
            return None
        return sum(self.seconds[state] for state in STEPPING) / self.total_seconds

    def lost_sentence(self) -> str:
        """The lost time in one line: "Lost so far: 12 min of 3 h (6.67 %): startup 8 min, stuck 4 min"."""
        whole = self.total_seconds
        if self.goodput is None:
            return f"Lost so far: not known; no step was seen in {length(whole)}"
        states = sorted((state for state in LOST if self.seconds.get(state)), key=lambda one: -self.seconds[one])
        parts = ", ".join(f"{state.value} {length(self.seconds[state])}" for state in states[:_NAMED])
        share = f"{100 * self.lost_seconds / whole:.2f} %"
        return f"Lost so far: {length(self.lost_seconds)} of {length(whole)} ({share}){f': {parts}' if parts else ''}"


def shares(seconds: Mapping[TrainingState, float], digits: int = 4) -> dict[TrainingState, float]:
    """The share of each state of all time, rounded so that they add up to exactly 1; all are 0 if there is no time."""
    whole, unit = sum(seconds.values()), 10**digits
    if whole <= 0:
        return dict.fromkeys(seconds, 0.0)
    exact = {state: unit * amount / whole for state, amount in seconds.items()}
    units = {state: int(amount) for state, amount in exact.items()}
    largest = sorted(exact, key=lambda state: units[state] - exact[state])
    for state in largest[: unit - sum(units.values())]:
        units[state] += 1
    return {state: amount / unit for state, amount in units.items()}
