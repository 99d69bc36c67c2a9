"""What the state machine of a restart is fed, and what it gives back: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.model import BAD_HEALTH, WELL_HEALTH

if TYPE_CHECKING:
    from tpuwatch.model import CloudNode, RestartRecord


class ApiCall(str, Enum):
    """A call of the Cloud TPU API that changes something."""

    STOP = "stop"
    START = "start"
    RESET = "reset"  # of the queued resource


@dataclass(frozen=True, slots=True)
class Operation:
    """A long-running operation of the API."""

    name: str
    verb: str  # "stop", "start", "reset", or as the service names it; "" if it names none
    created: float | None
    done: bool = False
    code: int = 0  # google.rpc.Code of its error; 0 is success
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """What the API shows of a node now. A call that failed shows nothing: then nothing is decided."""

    at: float
    state: str  # the enum's name; "" where it could not be asked, and of a node that is gone
    health: str = ""
    gone: bool = False  # asked with success: there is no such node
    spot: bool = False
    hosts: int = 1
    queued_resource: str = ""
    # On this node or its queued resource, the newest first; None where they were not asked for.
    operations: tuple[Operation, ...] | None = ()
    listed: bool = False  # whether `operations` is known to be all there are since the time asked for
    created: float | None = None  # when the node was created, if known
    # The other nodes of the queued resource of a node of several hosts, listed with the operations; None: not known.
    beside: tuple[CloudNode, ...] | None = ()
    beside_fault: str = ""  # a sentence: why not
    fault: str = ""  # a sentence: why the node, or its operations, could not be asked for

    @property
    def shown(self) -> str:
        """The state, "GONE", or "" where nothing is known."""
        return "GONE" if self.gone else self.state

    @property
    def well(self) -> bool:
        """Whether the API has nothing to say against it."""
        return self.state == "READY" and self.health in WELL_HEALTH

    @property
    def ill(self) -> bool:
        """Whether the API calls it ill."""
        return self.state == "READY" and self.health in BAD_HEALTH


class Standing(Enum):
    """How it stands with what a restart was decided on."""

    HOLDS = "holds"
    RECOVERED = "recovered"  # nothing is wrong with the node any more
    LAPSED = "lapsed"  # something else is wrong, it is proven no more, or it is not allowed any more
    UNKNOWN = "unknown"  # it cannot be judged now


class Within(Enum):
    """What is heard from within the node since it was started. The API calls many a dead node healthy."""

    UNASKED = "unasked"  # nothing in it can be asked from here
    SILENT = "silent"  # it is asked, and has not answered yet
    ANSWERS = "answers"
    STUCK = "stuck"  # it answers that it is stuck


@dataclass(frozen=True, slots=True)
class PresentEvidence:
    """What is known of the node now beside what the API shows of it, by the machine that drives its restart."""

    standing: Standing = Standing.UNKNOWN
    sentence: str = ""  # what is known, or why nothing is
    within: Within = Within.UNASKED
    heard: str = ""  # from within, as part of a sentence: "its own tpuwatch answers"
    ill: bool = False  # what was judged has the API's word that it is ill
    stuck_beside: frozenset[str] = frozenset()  # nodes of its queued resource that are stuck, whatever the API says


@dataclass(frozen=True, slots=True)
class PhaseLimits:
    """How long what may take. All in seconds."""

    stop_seconds: float = 900.0
    start_seconds: float = 1800.0
    settle_seconds: float = 60.0  # a node must be well for so long before the restart is done
    verify_seconds: float = 900.0
    wait_seconds: float = 600.0  # for a state in which it may be stopped
    poll_seconds: float = 5.0
    retry_seconds: float = 10.0  # after the first refusal; doubles
    max_retry_seconds: float = 600.0
    stockout_alert_after: int = 12  # refused starts after which an operator is called; they go on all the same
    call_seconds: float = 30.0  # a call's deadline, at least: later than that it is not carried out any more
    stale_seconds: float = 30.0  # for so long the API may go on showing what was

    @property
    def well_seconds(self) -> float:
        """For so long a node is watched to be well: what is shown in less time may be what was."""
        return max(self.settle_seconds, self.stale_seconds)

    @property
    def doubt_seconds(self) -> float:
        """A call that was carried out shows by then, though its answer was lost."""
        return self.call_seconds + self.stale_seconds


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next. The record is written first if it differs from the one that was read."""

    record: RestartRecord
    call: ApiCall | None = None
    needs_operations: bool = False  # nothing is decided yet: it depends on operations, which were not asked for
    again_in: float = 0.0  # seconds until the next look, where there is nothing to call
    sentence: str = ""  # what is going on, for people


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What came of a call. With neither an operation nor a code it is not known whether it was carried out."""

    operation: str = ""
    code: str = ""  # the gRPC code's name, where it was refused
    message: str = ""
    retry_after: float | None = None
