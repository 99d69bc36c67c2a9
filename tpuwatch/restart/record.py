"""What the ledger holds of one node: the restart that is under way, or the last one, and what came before.

Plain data. Times are seconds since the Unix epoch by the writer's clock; they bound waits and windows of hours, and
never decide who may act: that is the lease's version alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.health.verdict import Rung


class Phase(str, Enum):
    """How far a restart has come. What is about to be done is written before it is done."""

    REQUESTED = "requested"  # somebody wants it, who may not do it himself
    INTENT = "intent"  # about to stop, or to reset; perhaps it was called already
    STOPPING = "stopping"  # the stop, or the reset, was accepted
    STOPPED = "stopped"  # about to start; perhaps it was called already
    STARTING = "starting"  # the start was accepted
    VERIFYING = "verifying"  # it runs again: does it stay well?
    DONE = "done"
    FAILED = "failed"  # it was tried, nothing is left half done, and the node is as bad as before
    NEEDS_PERSON = "needs_person"  # it cannot be carried on: the record says what to do
    CANCELLED = "cancelled"  # before anything was done


ENDED = frozenset({Phase.DONE, Phase.FAILED, Phase.NEEDS_PERSON, Phase.CANCELLED})
TOUCHED = frozenset({Phase.INTENT, Phase.STOPPING, Phase.STOPPED, Phase.STARTING, Phase.VERIFYING})  # to be finished


@dataclass(frozen=True, slots=True)
class Target:
    """The node that a record is about."""

    project: str
    zone: str
    node: str

    @property
    def path(self) -> str:
        """The resource name: projects/P/locations/Z/nodes/N."""
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.node}"


@dataclass(frozen=True, slots=True)
class Lease:
    """Who drives the record. It has expired when its version has not changed for `seconds` on the looker's own
    monotonic clock, whatever any wall clock says."""

    owner: str = ""  # host, process and a random part; "" is nobody
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One restart that has ended."""

    rung: Rung
    cause: str  # of the verdict: its value, or "operator"
    began: float
    ended: float
    phase: Phase  # one of ENDED
    stops: int  # how often a stop or a reset was called with success, as far as is known
    actor: str


@dataclass(frozen=True, slots=True)
class Record:
    """All that the ledger holds of one node."""

    target: Target
    rung: Rung
    phase: Phase
    cause: str
    reason: str  # a sentence: the operator's, or the verdict's summary
    evidence: tuple[str, ...]  # the verdict's reasons, a sentence each
    actor: str  # who wanted it
    requested: float
    lease: Lease = Lease()
    entered: float = 0.0  # when the phase began
    operation: str = ""  # of the last call, once its answer came
    operations: tuple[str, ...] = ()  # all of them
    foreign: tuple[str, ...] = ()  # operations on the node that are known to be none of these; bounded
    queued_resource: str = ""
    tries: int = 0  # failed calls in this phase
    not_before: float = 0.0  # the next call waits for this time: a stockout, a quota
    stops: int = 0  # stops or resets of this restart that were accepted, as far as is known
    began: float = 0.0  # when a driver first saw the node; 0: nobody has yet
    down: float = 0.0  # when the node was first known to have gone down for this restart; 0: that is not proven
    shown: str = ""  # the state that the API showed last, or "GONE"
    shown_since: float = 0.0  # since when it has shown nothing else
    unseen_since: float = 0.0  # since when it could not be found out how the node is; 0: it was told by the last look
    well_since: float = 0.0  # since when the node has been well while it is verified; 0: it is not
    boot_id: str = ""  # of the node's first worker before the restart, where it was known: proof of a new boot
    witnesses: tuple[str, ...] = ()  # who spoke for it: values of Witness; empty where an operator wanted it
    note: str = ""  # what a person should know now, a sentence
    history: tuple[Attempt, ...] = ()  # the newest first; bounded

    @property
    def open(self) -> bool:
        """Whether there is still something to be done."""
        return self.phase not in ENDED


@dataclass(frozen=True, slots=True)
class Breaker:
    """While it is open, tpuwatch restarts nothing of its own accord. Only a person closes it."""

    opened: float | None = None  # None: it is closed
    reason: str = ""  # a sentence: which failures opened it
    reset_at: float = 0.0  # when a person closed it last; failures that ended by then count no more
    reset_by: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A restart that is about to be recorded. It takes its share of the budgets before anything is done."""

    target: Target
    began: float  # `requested` of the record, and `began` of the attempt, that it becomes


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the ledger holds of all nodes together: written under its version, so that two who decide at once
    cannot both take the last of a budget."""

    breaker: Breaker = Breaker()
    claims: tuple[Claim, ...] = ()  # the newest first; those older than the fleet's window are dropped
