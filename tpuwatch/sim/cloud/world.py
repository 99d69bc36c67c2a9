"""The state of the simulated cloud: nodes with their workers and workloads, operations, and faults.

One `World` is shared by all services of one simulator; everything is done under its lock. Time comes from its clock, so
that a scenario can run faster than real time: what is due happens at the next `advance`, with the time at which it
was due. Operations that clients request (stop, start, reset, …) are in `lifecycle`; faults of nodes are here.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tpuwatch.model import Maintenance
from tpuwatch.sim.cloud.faults import Faults
from tpuwatch.sim.cloud.nodes import QueuedRequest, SimNode, Workload
from tpuwatch.sim.cloud.operations import SimOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpuwatch.core import Clock

_T = TypeVar("_T", SimNode, SimOperation)

MAX_CALLS: Final = 20_000
MAX_HISTORY: Final = 20_000


@dataclass(slots=True)
class Timing:
    """How long things take, in seconds of the world's clock."""

    stop: float = 60.0
    start: float = 180.0
    reset: float = 240.0
    create: float = 180.0
    delete: float = 60.0
    timeout: float = 300.0  # until the API finds a dead guest unresponsive
    preemption: float = 30.0  # from the notice to the end


@dataclass(slots=True)
class LoggedCall:
    """A call that a service took. `code` is a gRPC code's name, or "" as long as it has not been answered."""

    time: float
    service: str  # "google.cloud.tpu.v2.Tpu"
    method: str  # "ListNodes"
    resource: str  # the name or parent that was asked for
    code: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that happened to a node: "stop", "stopped", "start", "boot", "stockout", "reset", "preempted", …"""

    time: float
    node: str  # the resource name
    what: str


class WorldSnapshot(NamedTuple):
    """Copies of the nodes and operations at a time; they do not change."""

    time: float
    nodes: dict[str, SimNode]
    operations: dict[str, SimOperation]


class StateHistory:
    """Snapshots, one for each change, the newest last. Used under the world's lock."""

    def __init__(self) -> None:
        self._snapshots: deque[WorldSnapshot] = deque()

    def record(
        self, now: float, nodes: Mapping[str, SimNode], operations: Mapping[str, SimOperation], seconds: float
    ) -> None:
        """Add a snapshot if anything has changed, and drop those older than `seconds`; all of them for 0."""
        if not seconds:
            self._snapshots.clear()
            return
        last = self._snapshots[-1] if self._snapshots else WorldSnapshot(now, {}, {})
        if not self._snapshots or (last.nodes, last.operations) != (nodes, operations):
            self._snapshots.append(
                WorldSnapshot(
                    now,
                    {name: _copy_of(node, last.nodes.get(name)) for name, node in nodes.items()},
                    {name: _copy_of(one, last.operations.get(name)) for name, one in operations.items()},
                )
            )
        while len(self._snapshots) > 1 and self._snapshots[1].time <= now - seconds:
            self._snapshots.popleft()

    def at(self, time: float) -> WorldSnapshot | None:
        """Return the state at `time`, else the oldest snapshot; None if there is none."""
        earlier = [snapshot for snapshot in self._snapshots if snapshot.time <= time]
        return earlier[-1] if earlier else self._snapshots[0] if self._snapshots else None


def _copy_of(one: _T, before: _T | None) -> _T:
    """Return a copy with lists of its own, or the copy `before` if it is equal."""
    if before is not None and before == one:
        return before
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    lists: dict[str, Any] = {name: value[:] for name, value in values.items() if isinstance(value, list)}
    return replace(one, **lists)


class World:
    """All nodes of the simulated cloud. Use it under its lock."""

    def __init__(self, clock: Clock, *, rng: random.Random | None = None) -> None:
        self.clock = clock
        self.rng = rng or random.Random(0)  # noqa: S311 (not for secrets; a fixed seed makes runs reproducible)
        self.lock = threading.RLock()
        self.faults = Faults(clock, random.Random(self.rng.random()))  # noqa: S311
        self.nodes: dict[str, SimNode] = {}  # by resource name
        self.operations: dict[str, SimOperation] = {}  # by resource name, the oldest first
        self.requests: dict[str, QueuedRequest] = {}  # queued resources that are described, by resource name
        self.timing = Timing()
        # Places for further nodes in a zone; one that is not here has as many as are asked for. A node that stops gives
        # its place away: with 0 no node of the zone starts or is created.
        self.capacity: dict[str, int] = {}
        self.projects: set[str] = set()  # that there are; those of nodes are added
        self.zones: set[str] = set()  # that there are; those of nodes are added
        self.common_metadata = False  # operations carry google.cloud.common.OperationMetadata
        self.page_limit = 500  # nodes on a page, where the caller asks for more or does not say
        self.tokens: dict[str, float] | None = None  # access tokens and when they expire; None: not required
        self.calls: deque[LoggedCall] = deque(maxlen=MAX_CALLS)
        self.history: deque[NodeEvent] = deque(maxlen=MAX_HISTORY)
        self._steps: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._state_history = StateHistory()

    def add(self, node: SimNode) -> SimNode:
        """Add a node; one of the same resource name is replaced."""
        with self.lock:
            node.workloads += [Workload() for _ in range(node.hosts - len(node.workloads))]
            node.created = node.created or self.clock.time()
            self.projects.add(node.project)
            self.zones.add(node.zone)
            self.nodes[node.path] = node
        return node

    def remove(self, path: str) -> None:
        """Remove a node. Raises KeyError if it does not exist."""
        with self.lock:
            del self.nodes[path]

    # Time

    def schedule(self, due: float, step: Callable[[float], None]) -> None:
        """Have `step(due)` called, under the lock, by the first `advance` from `due` on."""
        with self.lock:
            heapq.heappush(self._steps, (due, next(self._order), step))

    def advance(self) -> float:
        """Execute all steps that are due, in order. Returns the world's time.

        Each service calls this before it reads the world.
        """
        with self.lock:
            now = self.clock.time()
            while self._steps and self._steps[0][0] <= now:
                due, _, step = heapq.heappop(self._steps)
                self._record_state(due)
                step(due)
                self._record_state(due)
            self._record_state(now)
            return now

    def _record_state(self, at: float) -> None:
        self._state_history.record(at, self.nodes, self.operations, self.faults.max_stale_seconds)

    @contextmanager
    def rewound(self, seconds: float) -> Iterator[None]:
        """Meanwhile there are the nodes and operations of so many seconds ago, to be looked at only.

        At the earliest those of the time at which the fault was set: without one no history is kept.
        """
        with self.lock:
            snapshot, present = self._state_history.at(self.advance() - seconds), (self.nodes, self.operations)
            if snapshot is not None:
                self.nodes, self.operations = snapshot.nodes, snapshot.operations
            try:
                yield
            finally:
                self.nodes, self.operations = present

    def record_event(self, node: SimNode, what: str, at: float | None = None) -> None:
        """Add an event of a node to the history."""
        self.history.append(NodeEvent(self.clock.time() if at is None else at, node.path, what))

    def contains(self, node: SimNode) -> bool:
        """Whether the node is still there, and has not been replaced by another of its name."""
        return self.nodes.get(node.path) is node

    # Faults of nodes

    def boot(self, node: SimNode, at: float) -> None:
        """All hosts of the node boot: the guest is alive again, with nothing running in it."""
        with self.lock:
            node.state, node.health, node.health_description = "READY", "HEALTHY", ""
            node.hangs = node.lies = node.preempted = False
            node.symptoms = []
            node.boots += 1
            node.workloads = [Workload(since=at) for _ in range(node.hosts)]
            self.record_event(node, "boot", at)

    def hang(self, node: SimNode, *, lies: bool = False) -> None:
        """The guest dies. Unless the API lies, its health becomes TIMEOUT after a while."""
        with self.lock:
            now = self.advance()
            node.hangs, node.lies = True, lies
            boots = node.boots
            self.record_event(node, "hang", now)

            def found(at: float) -> None:
                if (
                    self.contains(node)
                    and node.hangs
                    and not node.lies
                    and node.boots == boots
                    and node.state == "READY"
                ):
                    node.health, node.health_description = "TIMEOUT", "The node does not respond."
                    self.record_event(node, "timeout", at)

            self.schedule(now + self.timing.timeout, found)

    def preempt(self, node: SimNode) -> None:
        """The capacity is taken back: the metadata server reports it at once, the node is PREEMPTED a little later."""
        with self.lock:
            now = self.advance()
            node.preempted = True
            boots = node.boots
            self.record_event(node, "preempt", now)

            def taken(at: float) -> None:
                if self.contains(node) and node.preempted and node.boots == boots and node.state != "STOPPED":
                    node.state, node.health, node.health_description = "PREEMPTED", "", ""
                    node.operation = ""
                    self.record_event(node, "preempted", at)

            self.schedule(now + self.timing.preemption, taken)

    def maintain(self, node: SimNode, *, in_seconds: float = 0.0, lasts_seconds: float = 3600.0) -> None:
        """A maintenance is announced, begins after `in_seconds`, and is over `lasts_seconds` later.

        Meanwhile the guest runs on, and the node's health is UNHEALTHY_MAINTENANCE. In the end its hosts boot.
        """
        with self.lock:
            now = self.advance()
            start = now + in_seconds
            node.maintenance = window = Maintenance(
                kind="SCHEDULED" if in_seconds else "UNSCHEDULED",
                status="PENDING",
                start=start,
                end=start + lasts_seconds,
                latest_start=start,
                can_reschedule=in_seconds > 0,
            )
            self.record_event(node, "announcement", now)
            self.schedule(start, lambda at: self._begin_maintenance(node, window, at))
            self.advance()

    def _begin_maintenance(self, node: SimNode, window: Maintenance, at: float) -> None:
        if not self.contains(node) or node.maintenance is not window:
            return
        node.maintenance = ongoing = replace(window, status="ONGOING", can_reschedule=False)
        node.notice = "TERMINATE_ON_HOST_MAINTENANCE"
        if node.state == "READY":
            node.health, node.health_description = "UNHEALTHY_MAINTENANCE", "The node is under maintenance."
        self.record_event(node, "maintenance", at)

        def over(at: float) -> None:
            if not self.contains(node) or node.maintenance is not ongoing:
                return
            node.maintenance, node.notice = None, "NONE"
            if node.state == "READY":
                self.boot(node, at)
            self.record_event(node, "maintained", at)

        self.schedule(window.end or at, over)

    def vanish(self, node: SimNode) -> None:
        """Remove the node, and record it."""
        with self.lock:
            self.remove(node.path)
            self.record_event(node, "vanish")
