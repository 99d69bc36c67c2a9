"""The daemon's status: the interface between the daemon and everything that displays it.

Plain data, without I/O. Times are seconds since the Unix epoch, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tpuwatch.core import ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.core import LoopStatus
    from tpuwatch.model.answers import Problem
    from tpuwatch.model.causes import Cause
    from tpuwatch.model.events import Event, Finding
    from tpuwatch.model.goodput import Goodput
    from tpuwatch.model.judged_node import JudgedNode
    from tpuwatch.model.judged_queued_resource import JudgedQueuedResource
    from tpuwatch.model.launches import Launch
    from tpuwatch.model.progress import TrainingLoop
    from tpuwatch.model.restart import Breaker, RestartDecision, RestartRecord
    from tpuwatch.model.signals import Host, Identity, Runtime
    from tpuwatch.model.tune import TunePlan

ADDRESS_FILE = "http.address"  # in the state directory: host:port where the daemon serves


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One followed file: `read_bytes` of its `size_bytes` have been read."""

    path: str
    size_bytes: int
    read_bytes: int
    last_written: float | None = None

    @property
    def lag_bytes(self) -> int:
        """Bytes of the file that are not read yet."""
        return max(0, self.size_bytes - self.read_bytes)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file or directory that cannot be followed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The durable store. While it is not durable, events are held in memory.

    `detail` is the reason, or why nothing can be stored, so that no log is read on.
    """

    path: str
    durable: bool
    events: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SignalStatus:
    """One signal: when it last answered, when it was last asked, and why it failed to answer then."""

    name: str  # the Signal's value
    at: float | None
    tried: float | None
    problem: Problem | None
    detail: str  # the problem in a sentence, with what to do


@dataclass(frozen=True, slots=True)
class RestartBudget:
    """What is used of the budget of all nodes, and what opens the breaker."""

    restarts: int  # within `window_seconds`
    max_restarts: int  # in that window, by tpuwatch itself
    window_seconds: float
    node_window_seconds: float  # of one node's budget; for so long a call for an operator counts
    breaker_opens: str = ""  # why a closed breaker opens at tpuwatch's next restart, a sentence; "" if it does not


@dataclass(frozen=True, slots=True)
class RestartsStatus:
    """Restarts and decisions on nodes, as far as this daemon knows them."""

    acts: bool  # False: it is only observed
    read: float | None = None  # when the ledger was read last; it is when there is a reason to
    problem: str = ""  # why it could not be, or could not be written, a sentence
    alarms: tuple[str, ...] = ()  # of restarts that go on unrecorded: how the node is, and what starts it
    breaker: Breaker | None = None  # None as long as the ledger was not read
    budget: RestartBudget | None = None  # the same
    records: Sequence[
        RestartRecord
    ] = ()  # of the ledger, as they were then; those that are driven from here as they are
    decisions: Sequence[tuple[str, RestartDecision]] = ()  # on nodes that need an action, by their labels

    @property
    def ledger_problem(self) -> str:
        """Why the ledger cannot be used, a sentence; "" if it can."""
        return ledger_down(self.problem) if self.problem else ""

    @property
    def failures(self) -> tuple[str, ...]:
        """What keeps restarts from being done or recorded, a few words each."""
        is_broken = self.breaker is not None and self.breaker.opened is not None
        found = (
            (bool(self.alarms), "a restart cannot be recorded"),
            (bool(self.problem), "the ledger of restarts is down"),
            (is_broken, "the breaker is open"),
        )
        return tuple(words for is_so, words in found if is_so)


def ledger_down(why: str) -> str:
    """What is said everywhere of a ledger that cannot be used, a sentence; `why` is the LedgerError's message."""
    return f"The ledger of restarts is DOWN: {ended(why)} Nothing new is restarted."


@dataclass(frozen=True, slots=True)
class TunedStatus:
    """A workload: what is decided for its next launch."""

    plan: TunePlan
    launches: int  # that it was decided by
    last_launch: float
    file: str = ""  # the environment file; empty: none is written
    problem: str = ""  # why the plan could not be written, a sentence


@dataclass(frozen=True, slots=True)
class TuneStatus:
    """What is decided about next launches."""

    acts: bool  # False: it is only advised
    directory: str
    workloads: Sequence[TunedStatus] = ()  # the one that was launched last comes first
    problems: Sequence[str] = ()  # sentences


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The daemon at one moment. `state` is a sentence; `reading` is whether logs can be read at all."""

    version: str
    started: float
    now: float
    state: str
    reading: bool
    loops: Sequence[LoopStatus]
    files: Sequence[FileStatus]
    problems: Sequence[FileProblem]
    notices: Sequence[str]
    config_source: str
    store: StoreStatus
    last_launch: Launch | None = None
    identity: Identity | None = None
    node: JudgedNode | None = None  # the own one
    queued_resources: Sequence[JudgedQueuedResource] = ()  # of watched nodes, those with a problem first
    runtime: Runtime | None = None
    host: Host | None = None
    signals: Sequence[SignalStatus] = ()
    restarts: RestartsStatus | None = None
    tune: TuneStatus | None = None
    training: Sequence[TrainingLoop] = ()  # those that run come first
    goodput: Goodput | None = None  # of the last GOODPUT_SECONDS; None: there was no training
    host_name: str = ""  # of this machine
    watches_others: bool = False  # [cloud] names nodes to watch
    finding_seconds: float = 86_400.0  # a finding that was last seen longer ago is a past one

    @property
    def uptime_seconds(self) -> float:
        """How long the daemon has run; never negative, even if the clock was set back."""
        return max(0.0, self.now - self.started)

    def not_ready(self) -> list[str]:
        """Why the daemon is not ready, a sentence each; empty if it is."""
        reasons = [] if self.reading else ["No log can be read."]
        if not self.store.durable:
            reasons.append(f"Events are held in memory only. {self.store.detail}".rstrip())
        elif self.store.detail:
            reasons.append(self.store.detail)
        return reasons + [_staleness(loop) for loop in self.loops if not loop.fresh]


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """The tpuwatch of one machine of a watched node, for Prometheus."""

    url: str  # without a path, unless it is behind one
    zone: str
    node: str
    worker: int  # the machine's number in the node


class View(Protocol):
    """What the HTTP server reads from the daemon. Methods are called from other threads than the daemon's own.

    They answer from memory or the store, without waiting. The message of a TpuwatchError is served with status 503.
    """

    def status(self) -> DaemonStatus:
        """The daemon as it is now."""

    def events(
        self,
        *,
        since: float | None = None,
        cause: Cause | None = None,
        history: bool | None = None,
        after_id: int | None = None,
        limit: int = 100,
    ) -> Sequence[Event]:
        """At most `limit` stored events, oldest first.

        With `after_id` the first ones whose id is greater; without it the newest ones. `since` applies to `Event.when`.
        """

    def last_event_id(self) -> int:
        """The id of the event that was stored last; 0 if there is none."""

    def findings(self) -> Sequence[Finding]:
        """What went wrong lately, in the order in which to act; without history. `present_problems`: what is over."""

    def launches(self, limit: int = 100) -> Sequence[Launch]:
        """At most `limit` launches, the newest first."""

    def goodput(self, *, since: float | None = None, workload: str = "") -> Goodput:
        """Where the time of trainings went since then, or in the last GOODPUT_SECONDS; of one workload, or of all."""

    def nodes(self) -> Sequence[JudgedNode]:
        """All watched nodes, the own one first."""

    def targets(self) -> Sequence[ScrapeTarget]:
        """Where the tpuwatch of each machine of the watched nodes can be scraped."""


def _staleness(loop: LoopStatus) -> str:
    if loop.last_success is None:
        return f"The loop {loop.name} has not finished a turn yet."
    return f"The loop {loop.name} has not finished a turn for too long."
