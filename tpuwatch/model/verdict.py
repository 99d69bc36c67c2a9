"""A judgement: the verdict on a node, its confidence, its reasons, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.model.events import Remedy
    from tpuwatch.model.signals import CloudNode, Peer, Signal


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


# These cost something that runs: two independent signals must speak for them.
DESTRUCTIVE = frozenset(
    {Action.END_HOLDER, Action.RESTART_RUNTIME, Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE, Action.RECREATE}
)


class Confidence(str, Enum):
    """How sure a verdict is."""

    HIGH = "high"  # independent signals agree, or the deciding signal itself says so
    MEDIUM = "medium"  # one good signal, and none against it
    LOW = "low"  # a signal, with others against it or missing


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that speaks for the verdict: its source, what, and when."""

    signal: Signal
    text: str  # a sentence
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A verdict that held until no source reported on the node any more."""

    verdict: Verdict
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one node with all that an operator needs to check it."""

    node: str
    verdict: Verdict
    at: float  # when it was judged
    confidence: Confidence
    action: Action
    summary: str  # one sentence: what is wrong
    reasons: tuple[Reason, ...] = ()  # the weightiest first
    contradictions: tuple[str, ...] = ()  # who says the opposite of whom, a sentence each
    missing: tuple[str, ...] = ()  # which signal is silent and why, a sentence each
    remedy: tuple[Remedy, ...] = ()
    pids: tuple[int, ...] = ()  # of the program that the remedy is about
    since: float | None = None  # since when the verdict holds, as far as tpuwatch has seen; `following` fills it in
    interrupted: Held | None = None  # while no source reports: what held before; `following` fills it in


@dataclass(frozen=True, slots=True)
class JudgedNode:
    """One watched node as it was judged last: its judgement, and the answers of the cloud and of its own tpuwatch."""

    node: str  # its name; the label of its metrics
    project: str
    zone: str
    own: bool  # tpuwatch runs on a machine of it
    judgement: Judgement
    cloud: CloudNode | None
    peer: Peer | None = None  # its own tpuwatch, where the node is watched from elsewhere and that has answered
