"""What the daemon shows of itself: the interface between it and everything that displays it.

Plain data, without I/O. Times are seconds since the Unix epoch, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.health import evidence
    from tpuwatch.health.evidence import Agent, CloudNode, Host, Identity, Runtime
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.model import Cause, Event, Finding, Launch
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.record import Breaker, Record
    from tpuwatch.tune.model import Plan

ADDRESS_FILE = "http.address"  # in the state directory: host:port where the daemon serves


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """One loop of the daemon. It is fresh when its last success is no older than it may be."""

    name: str
    last_success: float | None
    fresh: bool


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One followed file: `read_bytes` of its `size_bytes` have been read."""

    path: str
    size_bytes: int
    read_bytes: int
    last_written: float | None = None

    @property
    def lag_bytes(self) -> int:
        """Bytes that stand in the file and are not read yet."""
        return max(0, self.size_bytes - self.read_bytes)


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or directory that cannot be followed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """The durable store. While it is not durable, events are held in memory and `detail` says why."""

    path: str
    durable: bool
    events: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WitnessStatus:
    """One witness: when it last answered, when it was last asked, and what kept it from answering then."""

    name: str  # the Witness's value
    at: float | None
    tried: float | None
    problem: evidence.Problem | None
    detail: str  # the problem in a sentence, with what to do


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One watched node: what the cloud says of it, and what it was judged to be."""

    node: str  # its name; the label of its metrics
    project: str
    zone: str
    own: bool  # tpuwatch runs on a machine of it
    judgement: Judgement
    cloud: CloudNode | None
    agent: Agent | None = None  # its own tpuwatch, where the node is watched from elsewhere and that has answered


@dataclass(frozen=True, slots=True)
class RestartsStatus:
    """What is done about nodes and what is not, as far as it is known here."""

    acts: bool  # False: it is only observed
    read: float | None = None  # when the ledger was read last; it is when there is a reason to
    problem: str = ""  # why it could not be, a sentence
    breaker: Breaker | None = None  # None as long as the ledger was not read
    records: Sequence[Record] = ()  # of the ledger, as they were then; those that are driven from here as they are
    decisions: Sequence[tuple[str, Decision]] = ()  # on nodes for which something is called for, by their labels


@dataclass(frozen=True, slots=True)
class TunedStatus:
    """A workload: what is decided for its next launch."""

    plan: Plan
    launches: int  # that it was decided by
    last_launch: float
    file: str = ""  # the environment file; empty: none is written
    problem: str = ""  # why the plan could not be written, a sentence


@dataclass(frozen=True, slots=True)
class TuneStatus:
    """What is decided about next launches."""

    applies: bool  # False: it is only advised
    directory: str
    workloads: Sequence[TunedStatus] = ()  # the one that was launched last comes first
    problems: Sequence[str] = ()  # sentences


@dataclass(frozen=True, slots=True)
class Status:
    """The daemon at one moment. `state` is a sentence; `reading` says whether logs can be read at all."""

    version: str
    started: float
    now: float
    state: str
    reading: bool
    loops: Sequence[LoopStatus]
    files: Sequence[FileStatus]
    problems: Sequence[Problem]
    notices: Sequence[str]
    config_source: str
    journal: JournalStatus
    last_launch: Launch | None = None
    identity: Identity | None = None
    node: NodeStatus | None = None  # the own one
    runtime: Runtime | None = None
    host: Host | None = None
    witnesses: Sequence[WitnessStatus] = ()
    restarts: RestartsStatus | None = None
    tune: TuneStatus | None = None

    @property
    def uptime_seconds(self) -> float:
        """How long the daemon has run; never negative, wherever the clock jumped."""
        return max(0.0, self.now - self.started)

    def not_ready(self) -> list[str]:
        """Why the daemon does not do its work now, a sentence each; empty when it does."""
        reasons = [] if self.reading else ["No log can be read."]
        return reasons + [_staleness(loop) for loop in self.loops if not loop.fresh]


class View(Protocol):
    """What the HTTP server asks the daemon. Every method is called from other threads than the daemon's own, and must
    answer from memory or the journal, soon; a TpuwatchError is shown to the caller as it is, with status 503."""

    def status(self) -> Status:
        """The daemon as it is now."""

    def events(
        self, *, since: float | None = None, cause: Cause | None = None, after_id: int | None = None, limit: int = 100
    ) -> Sequence[Event]:
        """At most `limit` stored events, oldest first.

        With `after_id` the first ones whose id is greater; without it the newest ones. `since` goes by `Event.when`.
        """

    def findings(self) -> Sequence[Finding]:
        """What is wrong now, in the order in which to act; without history."""

    def launches(self, limit: int = 100) -> Sequence[Launch]:
        """At most `limit` launches, the newest first."""

    def nodes(self) -> Sequence[NodeStatus]:
        """All watched nodes, the own one first."""


def _staleness(loop: LoopStatus) -> str:
    if loop.last_success is None:
        return f"The loop {loop.name} has not finished a turn yet."
    return f"The loop {loop.name} has not finished a turn for too long."
