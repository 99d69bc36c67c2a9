"""What the ledger holds of one node: the restart that is under way, or the last one, and what came before.

Plain data. Times are seconds since the Unix epoch by the writer's clock; they bound waits and windows of hours, and
never decide who may act: that is the lease's version alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from tpuwatch.model.verdict import Action

# The actions that [restart] switches on or off; the key is the action's value.
SWITCHED: Final = (
    Action.CHECKPOINT,
    Action.END_HOLDER,
    Action.RESTART_RUNTIME,
    Action.RESTART_NODE,
    Action.RESET_QUEUED_RESOURCE,
)


class Phase(str, Enum):
    """How far a restart has come. What is about to be done is written before it is done."""

    REQUESTED = "requested"  # wanted by a daemon or an operator, and nothing is done yet
    INTENT = "intent"  # about to stop, or to reset; perhaps it was called already
    STOPPING = "stopping"  # the stop, or the reset, was accepted
    STOPPED = "stopped"  # about to start; perhaps it was called already
    STARTING = "starting"  # the start was accepted
    VERIFYING = "verifying"  # it runs again: does it stay well?
    DONE = "done"
    NOT_VERIFIED = "not_verified"  # restarted, and well by the API's word alone: nothing within it has answered since
    FAILED = "failed"  # it was tried, nothing is left half done, and the node is as bad as before
    NEEDS_OPERATOR = "needs_operator"  # it cannot be continued: the note says what to do
    CANCELLED = "cancelled"  # before anything was done; or another client has created the node again


ENDED = frozenset({Phase.DONE, Phase.NOT_VERIFIED, Phase.FAILED, Phase.NEEDS_OPERATOR, Phase.CANCELLED})
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
    """Who drives the record. It has expired when the record's version has not changed for `seconds` by the reader's
    own monotonic clock; wall clocks do not count."""

    owner: str = ""  # host, process and a random part; "" without a driver
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One restart that has ended."""

    action: Action
    cause: str  # of the verdict: its value, or "operator"
    began: float
    ended: float
    phase: Phase  # one of ENDED
    stops: int  # how often a stop or a reset was called with success, as far as is known
    actor: str
    reason: str = ""  # why it was wanted, a sentence
    note: str = ""  # what came of it, a sentence

    @classmethod
    def of(cls, record: RestartRecord) -> Attempt:
        """That of a record which has ended."""
        same = {one.name: getattr(record, one.name) for one in fields(cls) if one.name != "ended"}
        return cls(**{**same, "began": record.began or record.requested, "ended": record.entered})


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a restart was decided on. It is judged again before each call that takes the node down."""

    verdict: str = ""  # the value of a Verdict; "" in records of former versions
    action: Action = Action.NONE  # what the judge advised; where the node's own daemon asked for more, not the record's
    at: float = 0.0  # when that was judged
    requester: str = ""  # the node's own daemon, where it asked for it
    requested: float = 0.0  # when it did, where it took its evidence too; else 0
    sources: tuple[str, ...] = ()  # of that evidence: values of Source


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process, and no later one of the same number in this boot."""

    pid: int
    ticks: int  # clock ticks from boot to its start

    def __str__(self) -> str:
        return f"{self.pid}/{self.ticks}"


@dataclass(frozen=True, slots=True)
class OnMachine:
    """What was begun on the node's own machine, so that who finds it later knows what became of it."""

    act: str = ""  # the name of the signal that is sent, or what is run
    processes: tuple[ProcessId, ...] = ()  # who is asked for a checkpoint, or is to let go of the TPU; sorted
    invocation: str | None = None  # systemd's id of the unit's start before; None where that does not matter


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """All that the ledger holds of one node."""

    target: Target
    action: Action
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
    failure: str = ""  # why the latest of them failed, a sentence
    not_before: float = 0.0  # the next call waits for this time: a stockout, a quota
    stops: int = 0  # stops or resets of this restart that were accepted, as far as is known
    began: float = 0.0  # when a driver was made for it, or first observed the node; 0: it is asked for only
    down: float = 0.0  # when the node was first known to have gone down for this restart; 0: that is not proven
    shown: str = ""  # the state that the API showed last, or "GONE"
    shown_since: float = 0.0  # since when it has shown nothing else
    unseen_since: float = 0.0  # since when the node could not be observed; 0: the last observation succeeded
    well_since: float = 0.0  # since when the node has been well while it is verified; 0: it is not
    boot_id: str = ""  # of the node's first worker before the restart, where it was known: proof of a new boot
    signals: tuple[str, ...] = ()  # who spoke for it: values of Signal; empty where an operator wanted it
    sources: tuple[str, ...] = ()  # what they rest on: values of Source
    grounds: Grounds = Grounds()
    machine: OnMachine = OnMachine()
    note: str = ""  # for operators, a sentence
    history: tuple[Attempt, ...] = ()  # the newest first; bounded

    @property
    def open(self) -> bool:
        """Whether there is still something to be done."""
        return self.phase not in ENDED

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever called for it, with success or in vain."""
        return not (self.tries or self.stops or self.operations)

    @property
    def waits_for_capacity(self) -> bool:
        """Whether the node is down, and a start of it has failed; also while it is tried again."""
        return self.phase in (Phase.STOPPED, Phase.STARTING) and self.tries > 0


@dataclass(frozen=True, slots=True)
class Breaker:
    """While it is open, tpuwatch begins no restart. Only an operator closes it."""

    opened: float | None = None  # None: it is closed
    reason: str = ""  # a sentence: which failures opened it
    reset_at: float = 0.0  # when an operator closed it last; failures that ended by then count no more
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


class Blocked(str, Enum):
    """Why what is called for is not done. The value is the label of tpuwatch_restarts_blocked_total."""

    # It would be wrong, whatever is allowed.
    RECREATE = "recreate"  # only to recreate the node would help, which tpuwatch does not do
    NOT_STUCK = "not_stuck"  # a verdict on which nothing is interrupted
    STALE = "stale"  # the judgement is old
    ELSEWHERE = "elsewhere"  # it can be done on the machine itself alone
    CLOUD_SILENT = "cloud_silent"  # the cloud's current answer on the node is not known
    TAKEN = "taken"  # PREEMPTED, TERMINATED
    CHANGING = "changing"  # in a state that ends in …ING
    MAINTENANCE = "maintenance"  # under way or near, or under repair
    STATE = "state"  # in another state than READY
    SPOT = "spot"  # cannot be started again
    HOSTS = "hosts"  # the service does not allow it for so many hosts
    BOOT_GRACE = "boot_grace"  # it booted not long ago, or it is not known when
    # It is not proven.
    BEFORE_BOOT = "before_boot"  # part of the proof is from before this boot
    FORGEABLE = "forgeable"  # only what any user of the machine can make up reports it
    ONE_SOURCE = "one_source"  # … or one source besides that
    UNSURE = "unsure"
    UNCONFIRMED = "unconfirmed"  # it has not held for long enough
    STARTUP = "startup"  # tpuwatch itself began not long ago
    OWN_NODE = "own_node"  # tpuwatch runs on it: another machine has to do it
    # It is not the time for it.
    NO_LEDGER = "no_ledger"
    UNDER_WAY = "under_way"  # something is being done about the node already
    CLOCK = "clock"  # this machine's clock is wrong, by which budgets are reckoned
    NEEDS_OPERATOR = "needs_operator"  # the last restart ended with a call for an operator
    STORM = "storm"
    BREAKER = "breaker"
    SAME_CAUSE = "same_cause"
    NO_CAPACITY = "no_capacity"  # a start in this zone is being refused
    BACKOFF = "backoff"
    COOLDOWN = "cooldown"
    NODE_BUDGET = "node_budget"
    FLEET_BUDGET = "fleet_budget"
    # All else allows it.
    OBSERVE = "observe"
    SWITCHED_OFF = "switched_off"


# With these nothing improves by itself, nor by what tpuwatch may do: an operator has to know.
FOR_OPERATOR: Final = frozenset(
    {
        Blocked.RECREATE,
        Blocked.TAKEN,
        Blocked.STATE,
        Blocked.SPOT,
        Blocked.HOSTS,
        Blocked.NO_LEDGER,
        Blocked.CLOCK,
        Blocked.NEEDS_OPERATOR,
        Blocked.STORM,
        Blocked.BREAKER,
        Blocked.SAME_CAUSE,
        Blocked.NO_CAPACITY,
        Blocked.NODE_BUDGET,
        Blocked.FLEET_BUDGET,
        Blocked.OBSERVE,
        Blocked.SWITCHED_OFF,
    }
)


@dataclass(frozen=True, slots=True)
class Use:
    """How much of the budgets is used, before what is decided now."""

    node: int = 0
    node_max: int = 0
    fleet: int = 0
    fleet_max: int = 0


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What is to be done about one node now. All of it is plain data: an audit line carries it as it is."""

    node: str
    at: float
    verdict: str  # its value: the cause under which an act is recorded
    wanted: Action  # what the evidence calls for
    act: Action | None  # what is to be done now; None is nothing
    blocked: Blocked | None  # why it is not done; None where it is done, and where nothing can be done
    sentence: str  # what is decided, and why
    needs_operator: bool = False
    request: bool = False  # the watchers of the node are asked by a record in the ledger
    opens_breaker: str = ""  # why the breaker has to be opened, as a sentence; "" where it has not
    retry_at: float | None = None  # when what blocks it will be over, where that is known
    signals: tuple[str, ...] = ()  # that counted
    sources: tuple[str, ...] = ()  # what they rest on
    evidence: tuple[str, ...] = ()  # the reasons and their signals, a sentence each
    against: tuple[str, ...] = ()  # what speaks against it
    held_seconds: float = 0.0  # for how long it has been seen without a break
    grounds: Grounds = Grounds()  # what the record of an act keeps of it
    use: Use | None = None  # of the budgets, where it came to them

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies the decision: it is counted and reported once, until this changes."""
        asks = self.needs_operator and self.blocked is None  # otherwise `blocked` shows it already
        return (self.verdict, self.wanted, self.act, self.blocked, self.request, asks)
