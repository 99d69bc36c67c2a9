"""What the simulated cloud is made of: nodes with their workers and workloads, and the faults set on it.

One `World` is shared by all services of one simulator; everything is done under its lock. Time comes from its clock, so
that a scenario can run faster than life.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.sim.cloud.faults import Faults

if TYPE_CHECKING:
    from tpuwatch.clock import Clock
    from tpuwatch.health.evidence import Maintenance, Symptom

GIB = 1 << 30


class Phase(str, Enum):
    """What a worker's workload does."""

    NONE = "none"  # no process: no runtime metrics
    STARTING = "starting"  # a process holds the TPU; its metrics are not up yet
    COMPILING = "compiling"  # metrics are up, chips idle, the host's CPU works
    TRAINING = "training"
    STUCK = "stuck"  # a process lives, chips idle, no CPU used
    HUNG = "hung"  # the runtime accepts connections and never answers


@dataclass(slots=True)
class Workload:
    """A worker's workload since a moment of the world's clock."""

    phase: Phase = Phase.NONE
    since: float = 0.0
    duty_cycle: float = 0.92  # while training
    hbm_used: float = 0.6  # share, while a program is loaded


@dataclass(slots=True)
class SimNode:
    """A node as the simulator holds it. `state`, `health` are names of the API's enums, or a number for a new one."""

    project: str
    zone: str
    name: str
    accelerator_type: str = "v5litepod-4"
    hosts: int = 1
    chips_per_host: int = 4
    hbm_bytes: int = 16 * GIB  # per chip
    state: str | int = "READY"
    health: str | int = "HEALTHY"  # "" for none
    health_description: str = ""
    symptoms: list[Symptom] = field(default_factory=list)
    spot: bool = False
    queued_resource: str = ""  # short name
    maintenance: Maintenance | None = None
    labels: dict[str, str] = field(default_factory=dict)
    created: float = 0.0
    boots: int = 1
    hangs: bool = False  # the guest is dead whatever the API says
    lies: bool = False  # and the API goes on to say what it said before
    notice: str = "NONE"  # the metadata server's maintenance-event
    preempted: bool = False  # the metadata server's preempted
    workloads: list[Workload] = field(default_factory=list)  # one per host; filled up by World.add

    @property
    def parent(self) -> str:
        """projects/P/locations/Z."""
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def path(self) -> str:
        """The resource name: projects/P/locations/Z/nodes/N."""
        return f"{self.parent}/nodes/{self.name}"


class World:
    """All nodes of the simulated cloud. Use it under its lock."""

    def __init__(self, clock: Clock, *, dice: random.Random | None = None) -> None:
        self.clock = clock
        self.dice = dice or random.Random(0)  # noqa: S311 (no secrets: the same seed tells the same story)
        self.lock = threading.RLock()
        self.faults = Faults(clock)
        self.nodes: dict[str, SimNode] = {}  # by resource name

    def add(self, node: SimNode) -> SimNode:
        """Put a node into the world; one of the same resource name is replaced."""
        with self.lock:
            node.workloads += [Workload() for _ in range(node.hosts - len(node.workloads))]
            self.nodes[node.path] = node
        return node

    def remove(self, path: str) -> None:
        """Let a node vanish, as if it had been deleted. Raises KeyError if it is not there."""
        with self.lock:
            del self.nodes[path]
