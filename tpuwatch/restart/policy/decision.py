"""What the policy decides on one node, and why nothing is done where nothing is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tpuwatch.health.verdict import Rung


class Blocked(str, Enum):
    """Why what is called for is not done. The value is the label of tpuwatch_restarts_blocked_total."""

    # It would be wrong, whatever is allowed.
    RECREATE = "recreate"  # only to create the node anew would help, which tpuwatch does not do
    NOT_STUCK = "not_stuck"  # a verdict on which nothing is interrupted
    STALE = "stale"  # the judgement is old
    ELSEWHERE = "elsewhere"  # it can be done on the machine itself alone
    CLOUD_SILENT = "cloud_silent"  # what the cloud says of the node now is not known
    TAKEN = "taken"  # PREEMPTED, TERMINATED
    CHANGING = "changing"  # in a state that ends in …ING
    MAINTENANCE = "maintenance"  # under way or near, or under repair
    STATE = "state"  # in another state than READY
    SPOT = "spot"  # cannot be started again
    HOSTS = "hosts"  # the service does not allow it for so many hosts
    BOOT_GRACE = "boot_grace"  # it came up not long ago, or nobody knows when
    # It is not proven.
    BEFORE_BOOT = "before_boot"  # part of the proof is from before this boot
    LOGS_ALONE = "logs_alone"  # nobody but the logs says so
    ONE_WITNESS = "one_witness"  # … or not two, of whom one is the cloud or the runtime
    UNSURE = "unsure"
    UNCONFIRMED = "unconfirmed"  # it has not held for long enough
    STARTUP = "startup"  # tpuwatch itself began not long ago
    OWN_NODE = "own_node"  # tpuwatch runs on it: somebody else has to do it
    # It is not the time for it.
    NO_LEDGER = "no_ledger"
    UNDER_WAY = "under_way"  # something is being done about the node already
    NEEDS_PERSON = "needs_person"  # the last restart ended with a call for a person
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


# With these nothing gets better by itself, or by what tpuwatch may do: a person has to know.
FOR_A_PERSON: Final = frozenset(
    {
        Blocked.RECREATE,
        Blocked.TAKEN,
        Blocked.STATE,
        Blocked.SPOT,
        Blocked.HOSTS,
        Blocked.NO_LEDGER,
        Blocked.NEEDS_PERSON,
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
class Decision:
    """What is to be done about one node now. All of it is plain data: an audit line carries it as it is."""

    node: str
    at: float
    verdict: str  # its value: the cause under which an act is recorded
    wanted: Rung  # what the evidence calls for
    act: Rung | None  # what is to be done now; None is nothing
    blocked: Blocked | None  # why it is not done; None where it is done, and where nothing can be done
    sentence: str  # what is decided, and why
    ask: bool = False  # a person has to know
    request: bool = False  # whoever watches the node from elsewhere is to be asked, by a record in the ledger
    opens_breaker: str = ""  # why the breaker has to be opened, as a sentence; "" where it has not
    retry_at: float | None = None  # when what blocks it will be over, where that is known
    witnesses: tuple[str, ...] = ()  # whose word counted
    evidence: tuple[str, ...] = ()  # who says what, a sentence each
    against: tuple[str, ...] = ()  # what speaks against it
    held_seconds: float = 0.0  # for how long it has been seen without a break
    use: Use | None = None  # of the budgets, where it came to them

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it another decision: it is counted and told once, until this changes."""
        asks = self.ask and self.blocked is None  # what blocks an act says itself whether a person is asked
        return (self.verdict, self.wanted, self.act, self.blocked, self.request, asks)
