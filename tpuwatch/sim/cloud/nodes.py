"""Simulated nodes with their workers' workloads, and the requests for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from tpuwatch.libtpu import GENERATIONS, devices_per_chip, generation, hosts_of

if TYPE_CHECKING:
    from tpuwatch.model import Maintenance, Symptom

GIB: Final = 1 << 30
_MAX_HOSTS: Final = 1 << 14
# In these states the guest does not run.
_DOWN: Final = frozenset(
    {"CREATING", "RESTARTING", "REIMAGING", "STOPPED", "STARTING", "PREEMPTED", "TERMINATED", "HIDDEN"}
)


class WorkloadPhase(str, Enum):
    """What a worker's workload does."""

    NONE = "none"  # no process: no runtime metrics
    STARTING = "starting"  # a process holds the TPU; its metrics are not up yet
    COMPILING = "compiling"  # metrics are up, chips idle, the host's CPU works
    TRAINING = "training"
    STUCK = "stuck"  # a process lives, chips idle, no CPU used
    HUNG = "hung"  # the runtime accepts connections and never answers


class TpuwatchPlay(str, Enum):
    """What the tpuwatch of a worker does, where it is played."""

    ANSWERS = "answers"
    SLOW = "slow"  # it answers after most have given up
    SILENT = "silent"  # nothing comes back, as from a machine that is down or hangs
    REFUSES = "refuses"  # as a machine that is up and on which it does not run


# Phases in which the runtime reports metrics.
SERVING: Final = frozenset({WorkloadPhase.COMPILING, WorkloadPhase.TRAINING, WorkloadPhase.STUCK})


@dataclass(slots=True)
class Workload:
    """A worker's workload since a moment of the world's clock."""

    phase: WorkloadPhase = WorkloadPhase.NONE
    since: float = 0.0
    duty_cycle: float = 0.92  # while training
    hbm_used: float = 0.6  # share, while a program is loaded
    tpuwatch: TpuwatchPlay = TpuwatchPlay.ANSWERS
    cause: str = ""  # the first thing that went wrong there, by its own tpuwatch
    failed: float = 0.0  # when


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
    created: float = 0.0  # 0: when it is added to the world
    boots: int = 1
    hangs: bool = False  # the guest is dead whatever the API says
    lies: bool = False  # and the API goes on to say what it said before
    notice: str = "NONE"  # the metadata server's maintenance-event
    preempted: bool = False  # the metadata server's preempted
    workloads: list[Workload] = field(default_factory=list)  # one per host; filled up by World.add
    runtime_version: str = "tpu-ubuntu2204-base"
    played: bool = False  # the tpuwatch of its workers is played, at loopback addresses
    endpoints: int | None = None  # how many network endpoints the API lists, if not one for each host
    operation: str = ""  # the name of the operation that is under way on it

    @property
    def parent(self) -> str:
        """projects/P/locations/Z."""
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def path(self) -> str:
        """The resource name: projects/P/locations/Z/nodes/N."""
        return f"{self.parent}/nodes/{self.name}"

    @property
    def devices_per_chip(self) -> int:
        """How many a chip is in the runtime metrics."""
        return devices_per_chip(self.accelerator_type)

    @property
    def alive(self) -> bool:
        """Whether the guest runs and answers."""
        return not self.hangs and self.state not in _DOWN


@dataclass(slots=True)
class QueuedRequest:
    """A queued resource that a scenario describes. It exists without nodes too."""

    path: str  # projects/P/locations/Z/queuedResources/Q
    state: str  # the name of the API's enum
    created: float
    spot: bool = False
    initiator: str = ""  # USER or SERVICE
    error: str = ""  # why it FAILED
    valid_until: float | None = None
    awaited: list[SimNode] = field(default_factory=list)  # nodes that it makes when it becomes ACTIVE


def shape_of(accelerator_type: str) -> tuple[int, int, int]:
    """Hosts, chips on each, and HBM bytes of a chip. Raises ValueError for a type that there is not."""
    hosts = hosts_of(accelerator_type)
    if hosts is None or hosts[0] > _MAX_HOSTS:
        raise ValueError(accelerator_type)
    return *hosts, GENERATIONS[generation(accelerator_type)].hbm_gib * GIB
