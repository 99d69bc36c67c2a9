"""What the simulated cloud is made of: nodes with their workers and workloads, and the faults set on it.

One `World` is shared by all services of one simulator; everything is done under its lock. Time comes from its clock, so
that a scenario can run faster than life: what is due happens when somebody looks (`advance`), with the time at which it
was due. What people ask of a node (stop, start, reset, …) is in `lifecycle`; here is what befalls it.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Maintenance
from tpuwatch.sim.cloud.faults import Faults
from tpuwatch.sim.cloud.nodes import GIB, Phase, SimNode, Workload
from tpuwatch.sim.cloud.past import Past

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.clock import Clock
    from tpuwatch.sim.cloud.operations import SimOperation

__all__ = ["GIB", "Call", "Happening", "Phase", "SimNode", "Timing", "Workload", "World"]

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
    update: float = 2.0
    timeout: float = 300.0  # until the API finds a dead guest unresponsive
    preemption: float = 30.0  # from the notice to the end


@dataclass(slots=True)
class Call:
    """A call that a service took. `code` is a gRPC code's name, or "" as long as it has not been answered."""

    time: float
    service: str  # "google.cloud.tpu.v2.Tpu"
    method: str  # "ListNodes"
    resource: str  # the name or parent that was asked for
    code: str = ""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened to a node: "stop", "stopped", "start", "boot", "stockout", "reset", "preempted", …"""

    time: float
    node: str  # the resource name
    what: str


class World:
    """All nodes of the simulated cloud. Use it under its lock."""

    def __init__(self, clock: Clock, *, dice: random.Random | None = None) -> None:
        self.clock = clock
        self.dice = dice or random.Random(0)  # noqa: S311 (no secrets: the same seed tells the same story)
        self.lock = threading.RLock()
        self.faults = Faults(clock, random.Random(self.dice.random()))  # noqa: S311
        self.nodes: dict[str, SimNode] = {}  # by resource name
        self.operations: dict[str, SimOperation] = {}  # by resource name, the oldest first
        self.timing = Timing()
        # Places for further nodes in a zone; one that is not here has as many as are asked for. A node that stops gives
        # its place away, to somebody else: with 0 no node of the zone starts or is created.
        self.capacity: dict[str, int] = {}
        self.projects: set[str] = set()  # that there are; those of nodes are added
        self.zones: set[str] = set()  # that there are; those of nodes are added
        self.common_metadata = False  # operations carry google.cloud.common.OperationMetadata
        self.page_limit = 500  # nodes on a page, where the caller asks for more or does not say
        self.tokens: dict[str, float] | None = None  # access tokens and when they expire; None: nobody needs one
        self.calls: deque[Call] = deque(maxlen=MAX_CALLS)
        self.history: deque[Happening] = deque(maxlen=MAX_HISTORY)
        self._steps: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._past = Past()

    def add(self, node: SimNode) -> SimNode:
        """Put a node into the world; one of the same resource name is replaced."""
        with self.lock:
            node.workloads += [Workload() for _ in range(node.hosts - len(node.workloads))]
            node.created = node.created or self.clock.time()
            self.projects.add(node.project)
            self.zones.add(node.zone)
            self.nodes[node.path] = node
        return node

    def remove(self, path: str) -> None:
        """Let a node vanish, as if it had been deleted. Raises KeyError if it is not there."""
        with self.lock:
            del self.nodes[path]

    # Time

    def later(self, due: float, step: Callable[[float], None]) -> None:
        """Have `step(due)` called, under the lock, by the first `advance` from `due` on."""
        with self.lock:
            heapq.heappush(self._steps, (due, next(self._order), step))

    def advance(self) -> float:
        """Let everything happen that is due by now, in its order. Returns the world's time.

        Each service calls this before it looks at the world.
        """
        with self.lock:
            now = self.clock.time()
            while self._steps and self._steps[0][0] <= now:
                due, _, step = heapq.heappop(self._steps)
                self._remember(due)
                step(due)
                self._remember(due)
            self._remember(now)
            return now

    def _remember(self, at: float) -> None:
        self._past.keep(at, self.nodes, self.operations, self.faults.stalest)

    @contextmanager
    def as_it_was(self, seconds: float) -> Iterator[None]:
        """Meanwhile there are the nodes and operations of so many seconds ago, to be looked at only.

        At the earliest those of the moment at which the fault was set: nothing is remembered without one.
        """
        with self.lock:
            moment, present = self._past.at(self.advance() - seconds), (self.nodes, self.operations)
            if moment is not None:
                self.nodes, self.operations = moment.nodes, moment.operations
            try:
                yield
            finally:
                self.nodes, self.operations = present

    def happened(self, node: SimNode, what: str, at: float | None = None) -> None:
        """Write down what happened to a node."""
        self.history.append(Happening(self.clock.time() if at is None else at, node.path, what))

    def present(self, node: SimNode) -> bool:
        """Whether the node is still there, and has not been replaced by another of its name."""
        return self.nodes.get(node.path) is node

    # What befalls a node

    def boot(self, node: SimNode, at: float) -> None:
        """All hosts of the node boot: the guest is alive again, with nothing running in it."""
        with self.lock:
            node.state, node.health, node.health_description = "READY", "HEALTHY", ""
            node.hangs = node.lies = node.preempted = False
            node.symptoms = []
            node.boots += 1
            node.workloads = [Workload(since=at) for _ in range(node.hosts)]
            self.happened(node, "boot", at)

    def hang(self, node: SimNode, *, lies: bool = False) -> None:
        """The guest dies. Unless the API lies, its health becomes TIMEOUT after a while."""
        with self.lock:
            now = self.advance()
            node.hangs, node.lies = True, lies
            boots = node.boots
            self.happened(node, "hang", now)

            def found(at: float) -> None:
                if (
                    self.present(node)
                    and node.hangs
                    and not node.lies
                    and node.boots == boots
                    and node.state == "READY"
                ):
                    node.health, node.health_description = "TIMEOUT", "The node does not respond."
                    self.happened(node, "timeout", at)

            self.later(now + self.timing.timeout, found)

    def preempt(self, node: SimNode) -> None:
        """The capacity is taken back: the metadata server tells at once, the node is PREEMPTED a little later."""
        with self.lock:
            now = self.advance()
            node.preempted = True
            boots = node.boots
            self.happened(node, "preempt", now)

            def taken(at: float) -> None:
                if self.present(node) and node.preempted and node.boots == boots and node.state != "STOPPED":
                    node.state, node.health, node.health_description = "PREEMPTED", "", ""
                    node.operation = ""
                    self.happened(node, "preempted", at)

            self.later(now + self.timing.preemption, taken)

    def maintain(
        self, node: SimNode, *, in_seconds: float = 0.0, lasts_seconds: float = 3600.0, reboots: bool = True
    ) -> None:
        """A maintenance is announced, begins after `in_seconds`, and is over `lasts_seconds` later.

        Meanwhile the guest runs on, and the node's health is UNHEALTHY_MAINTENANCE. In the end its hosts boot, unless
        `reboots` is false.
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
            self.happened(node, "announcement", now)
            self.later(start, lambda at: self._begin_maintenance(node, window, at, reboots=reboots))
            self.advance()

    def _begin_maintenance(self, node: SimNode, window: Maintenance, at: float, *, reboots: bool) -> None:
        if not self.present(node) or node.maintenance is not window:
            return
        node.maintenance = ongoing = replace(window, status="ONGOING", can_reschedule=False)
        node.notice = "TERMINATE_ON_HOST_MAINTENANCE"
        if node.state == "READY":
            node.health, node.health_description = "UNHEALTHY_MAINTENANCE", "The node is under maintenance."
        self.happened(node, "maintenance", at)

        def over(at: float) -> None:
            if not self.present(node) or node.maintenance is not ongoing:
                return
            node.maintenance, node.notice = None, "NONE"
            if node.state == "READY":
                node.health, node.health_description = "HEALTHY", ""
                if reboots:
                    self.boot(node, at)
            self.happened(node, "maintained", at)

        self.later(window.end or at, over)

    def vanish(self, node: SimNode) -> None:
        """The node is gone, as if somebody had deleted it."""
        with self.lock:
            self.remove(node.path)
            self.happened(node, "vanish")
