"""A simulated cloud, a ledger and drivers of restarts, with one clock that only the drivers' waiting moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import TARGET, record, written
from tests.unit.sim.cloud.servers import Cloud, cloud_running
from tpuwatch.config import schema
from tpuwatch.model.restart import RestartRecord
from tpuwatch.restart.cloud_api import CloudNodeApi
from tpuwatch.restart.driver import Driver, Progress
from tpuwatch.restart.ledger.base import Ledger
from tpuwatch.restart.ledger.owner import Owner, ThisMachine
from tpuwatch.restart.workflow.types import PhaseLimits, PresentEvidence, Within
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing

LIMITS = PhaseLimits(
    stop_seconds=120,
    start_seconds=240,
    settle_seconds=10,
    verify_seconds=300,
    wait_seconds=300,
    poll_seconds=5,
    retry_seconds=10,
    max_retry_seconds=60,
    call_seconds=20,
    stale_seconds=10,
)
ANSWERS = PresentEvidence(within=Within.ANSWERS, heard="its own tpuwatch answers")


class Machine(ThisMachine):
    """A machine whose processes are alive, but for those that are marked as gone."""

    def __init__(self, name: str = "vm-1") -> None:
        super().__init__()
        self.name = name
        self.gone: set[str] = set()
        self._made = 0

    def new_owner(self) -> Owner:
        self._made += 1
        return Owner(self.name, "boot", 100 + self._made, 7, "x")

    def is_gone(self, text: str) -> bool:
        return text in self.gone


class Site:
    """One node of a simulated cloud, READY with a dead guest, for which a restart is recorded."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.clock = cloud.clock
        self.machine = Machine()
        self.reported: list[Progress] = []
        self.ending: Callable[[float], bool] = lambda _: False  # what every wait asks, once its time has passed
        config = schema.CloudConfig(endpoint=cloud.server.address, insecure=True, timeout_seconds=60)
        self.api = CloudNodeApi(config, clock=self.clock)

    def begin(self, **fields: Any) -> SimNode:
        """A new world with the node, and a new ledger with a request for its restart."""
        world = self.cloud.world
        world.nodes.clear()
        world.operations.clear()
        world.history.clear()
        world.calls.clear()
        world.capacity.clear()
        world.faults.clear()
        world.timing = Timing(stop=6, start=12, reset=20)
        self.reported.clear()
        self.ledger = MemoryLedger()
        self.node = self.cloud.add(**fields)
        world.hang(self.node)
        now = self.clock.time()
        self.ledger.write(record(requested=now, entered=now), 0)
        return self.node

    def driver(self, ledger: Ledger | None = None, api: CloudNodeApi | None = None, **more: Any) -> Driver:
        """One more driver of the record, in a process of its own."""
        given = {
            "clock": self.clock,
            "wait": self.wait,
            "limits": LIMITS,
            "on_progress": self.reported.append,
            "judge_again": lambda _: ANSWERS,
        }
        return Driver(ledger or self.ledger, TARGET, api=api or self.api, **{**given, "here": self.machine, **more})

    def wait(self, seconds: float) -> bool:
        """Time passes while a driver waits."""
        self.cloud.pass_time(seconds)
        return self.ending(seconds)

    @property
    def record(self) -> RestartRecord:
        """As the ledger holds it."""
        return written(self.ledger).record

    def count(self, what: str) -> int:
        """How often that happened to the node."""
        return self.cloud.happened().count(what)

    def calls(self, method: str) -> list[str]:
        """The codes of the calls of a method."""
        return [call.code for call in self.cloud.world.calls if call.method == method]


@contextmanager
def site_running() -> Iterator[Site]:
    with cloud_running() as cloud:
        site = Site(cloud)
        try:
            yield site
        finally:
            site.api.close()
