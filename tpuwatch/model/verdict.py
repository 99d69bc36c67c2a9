"""A judgement: the verdict on a node, its confidence, its reasons, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.model.answers import FORGEABLE, Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model.answers import Problem, Signal
    from tpuwatch.model.events import Remedy
    from tpuwatch.model.workload import WorkloadKind


class Verdict(str, Enum):
    """What a node is. The value is the label of tpuwatch_verdict."""

    HEALTHY = "healthy"
    STARTING = "starting"
    COMPILING = "compiling"
    IDLE = "idle"
    JOB_STUCK = "job_stuck"
    RUNTIME_STUCK = "runtime_stuck"
    NODE_STUCK = "node_stuck"
    MAINTENANCE = "maintenance"
    PREEMPTED = "preempted"
    GONE = "gone"
    STOPPED = "stopped"
    MISCONFIGURED = "misconfigured"
    UNKNOWN = "unknown"


WELL = frozenset({Verdict.HEALTHY, Verdict.IDLE, Verdict.COMPILING, Verdict.STARTING})  # nothing is wrong
STUCK = frozenset({Verdict.JOB_STUCK, Verdict.RUNTIME_STUCK, Verdict.NODE_STUCK})  # what a restart may be for
BAD = STUCK | frozenset(
    {
        Verdict.MAINTENANCE,
        Verdict.PREEMPTED,
        Verdict.GONE,
        Verdict.STOPPED,
        Verdict.MISCONFIGURED,
    }
)  # what `tpuwatch status` and `nodes` call wrong; unknown is never among them


class Action(str, Enum):
    """What would help, from nothing to work for an operator."""

    NONE = "none"
    WAIT = "wait"
    CHECKPOINT = "checkpoint"
    FIX_PROGRAM = "fix_program"
    END_HOLDER = "end_holder"
    RESTART_RUNTIME = "restart_runtime"
    RESTART_NODE = "restart_node"
    RESET_QUEUED_RESOURCE = "reset_queued_resource"
    RECREATE = "recreate"
    MANUAL = "manual"


# These cost something that runs: what speaks for them must be `proven`.
DESTRUCTIVE = frozenset(
    {Action.END_HOLDER, Action.RESTART_RUNTIME, Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE, Action.RECREATE}
)


class Confidence(str, Enum):
    """How sure a verdict is."""

    HIGH = "high"  # independent sources agree, or the deciding signal itself says so
    MEDIUM = "medium"  # one source that nobody on the machine can forge, and none against it
    LOW = "low"  # only what can be forged, or others against it, or missing


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that speaks for the verdict: the signal, what, when, and what it rests on."""

    signal: Signal
    text: str  # a sentence
    at: float | None = None
    sources: frozenset[Source] = frozenset()  # several of a peer, whose own verdict rests on them; none: not known
    idle: bool = False  # it shows only that nothing runs, as while a program waits for its user: no fault


def fault_sources(reasons: Iterable[Reason]) -> frozenset[Source]:
    """The sources that report a fault. That nothing runs is none."""
    return frozenset(source for reason in reasons if not reason.idle for source in reason.sources)


def proven(sources: frozenset[Source]) -> bool:
    """Whether they are enough to end something that runs: two that cannot repeat each other, and that no user of the
    machine can forge. What can be forged counts as none, however much of it there is."""
    return len(sources - FORGEABLE) >= 2


def confidence_by(sources: frozenset[Source]) -> Confidence:
    """How sure a verdict may be that rests on them."""
    if proven(sources):
        return Confidence.HIGH
    return Confidence.MEDIUM if sources - FORGEABLE else Confidence.LOW


@dataclass(frozen=True, slots=True)
class Held:
    """A verdict that held until no source reported on the node any more."""

    verdict: Verdict
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Unseen:
    """Why no signal shows how a node is now: the first of those that would, and why it gives no answer."""

    signal: Signal
    problem: Problem
    detail: str  # a sentence, with what to do


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one node with all that an operator needs to check it."""

    node: str
    verdict: Verdict
    at: float  # when it was judged; of the last known verdict, when the signals last showed it
    confidence: Confidence
    action: Action
    summary: str  # one sentence: what is wrong
    reasons: tuple[Reason, ...] = ()  # the weightiest first
    contradictions: tuple[str, ...] = ()  # who says the opposite of whom, a sentence each
    missing: tuple[str, ...] = ()  # which signal is silent and why, a sentence each
    remedy: tuple[Remedy, ...] = ()
    pids: tuple[int, ...] = ()  # of the program that the remedy is about
    kind: WorkloadKind | None = None  # of the workload that the node has; None: none is known
    suspect_since: float | None = None  # while it is unknown: since when something is bad that does not count yet
    counts_from: float | None = None  # when that will count
    since: float | None = None  # since when the verdict holds, as far as tpuwatch has seen; `following` fills it in
    interrupted: Held | None = None  # while no source reports: what held before; `following` fills it in
    unseen: Unseen | None = None  # while nothing shows how the node is: the verdict is unknown, or the last known one

    @property
    def is_last_known(self) -> bool:
        """Whether this bad verdict is the last known one: nothing shows any more that it holds, or that it does not."""
        return self.unseen is not None and self.verdict is not Verdict.UNKNOWN

    @property
    def sources(self) -> frozenset[Source]:
        """What the verdict rests on: of one that is stuck the sources that report a fault."""
        if self.verdict in STUCK:
            return fault_sources(self.reasons)
        return frozenset().union(*(reason.sources for reason in self.reasons))
