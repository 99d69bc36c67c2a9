"""The words of a judgement: what a node is, how sure that is, why, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Witness
    from tpuwatch.model import Remedy


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


class Rung(str, Enum):
    """What would help, from doing nothing to asking a person."""

    NOTHING = "nothing"
    WAIT = "wait"
    CHECKPOINT = "checkpoint"
    FIX_PROGRAM = "fix_program"
    END_HOLDER = "end_holder"
    RESTART_RUNTIME = "restart_runtime"
    RESTART_NODE = "restart_node"
    RESET_QUEUED_RESOURCE = "reset_queued_resource"
    RECREATE = "recreate"
    ASK = "ask"


# These cost something that runs: two independent witnesses must speak for them.
DESTRUCTIVE = frozenset(
    {Rung.END_HOLDER, Rung.RESTART_RUNTIME, Rung.RESTART_NODE, Rung.RESET_QUEUED_RESOURCE, Rung.RECREATE}
)


class Sureness(str, Enum):
    """How sure a verdict is."""

    CERTAIN = "certain"  # independent witnesses agree, or the one that decides it has said so
    LIKELY = "likely"  # one good witness, and nobody against it
    WEAK = "weak"  # a witness, with others against it or missing


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that speaks for the verdict: who said it, what, and when."""

    witness: Witness
    text: str  # a sentence
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A verdict that held until nobody could tell of the node any more."""

    verdict: Verdict
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on one node with all that a person needs to believe it or not."""

    node: str
    verdict: Verdict
    at: float  # when it was judged
    sureness: Sureness
    rung: Rung
    summary: str  # one sentence: what is wrong
    reasons: tuple[Reason, ...] = ()  # the weightiest first
    contradictions: tuple[str, ...] = ()  # who says the opposite of whom, a sentence each
    missing: tuple[str, ...] = ()  # which witness is silent and why, a sentence each
    remedy: tuple[Remedy, ...] = ()
    pids: tuple[int, ...] = ()  # of the program that the remedy is about
    since: float | None = None  # since when the verdict holds, as far as tpuwatch has seen; `following` fills it in
    interrupted: Held | None = None  # while nobody can tell: what held before; `following` fills it in
