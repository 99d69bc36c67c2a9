"""The simulated cloud, the machine in it, and ways to take servers away. Time is the clock that is passed in."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.standins.machine import Machine as MadeUpMachine
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase
from tpuwatch.sim.cloud.runtime_service import RuntimeService
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpuwatch.core.clock import Clock

PROJECT, ZONE = "soak", "us-east5-a"
OWN, TAKEN = "train-1", "train-4"  # this machine's node, and one that is rightly called preempted
OTHERS = ("train-2", "train-3", TAKEN)
NODES = (OWN, *OTHERS)
PAGE = 3  # nodes, so that a list has two pages
_KEPT_CALLS = 1000  # the simulator's own notes are not to look like growth


class Stage:
    """Four nodes: this machine's trains, and so do two others; the fourth was preempted."""

    def __init__(self, clock: Clock, root: Path) -> None:
        """`root` is an empty directory for the machine's files."""
        self.clock = clock
        self.machine = Machine(root, clock)
        self.world = World(clock)
        self.world.page_limit = PAGE
        self.world.calls = deque(maxlen=_KEPT_CALLS)
        self.world.history = deque(maxlen=_KEPT_CALLS)
        for name in NODES:
            work = Workload(WorkloadPhase.TRAINING, clock.time() - 3600.0)
            self.world.add(SimNode(PROJECT, ZONE, name, workloads=[work]))
        taken = self._node(TAKEN)
        taken.state, taken.health, taken.workloads[0].phase = "PREEMPTED", "", WorkloadPhase.NONE
        with contextlib.ExitStack() as started:
            self.monitoring = MonitoringService(self.world)
            self.cloud = CloudServer(self.world, services=[self.monitoring.handler()])
            started.callback(lambda: self.cloud.stop())
            self.runtime = RuntimeService(self.world, self._node(OWN).path)
            started.callback(self.runtime.close)
            pages = Pages(self.world, self._node(OWN).path, 0, MetadataDialect.TPU, self.runtime.ports)
            self.metadata = MetadataServer(self.world, pages)
            started.callback(self.metadata.close)
            self.metadata.start()
            self.runtime.advance()
            self._cleanup = started.pop_all()

    def close(self) -> None:
        """End all servers."""
        self._cleanup.close()

    @contextlib.contextmanager
    def found(self) -> Iterator[None]:
        """While the environment leads clients to this metadata server, and to no proxy."""
        wanted = {"GCE_METADATA_HOST": self.metadata.address, "GCE_METADATA_IP": self.metadata.address}
        wanted["no_proxy"] = "127.0.0.1"
        with pytest.MonkeyPatch.context() as patch:
            for name, value in wanted.items():
                patch.setenv(name, value)
            yield

    def calls(self, method: str) -> int:
        """How many calls of this method the world remembers."""
        with self.world.lock:
            return sum(call.method == method for call in self.world.calls)

    # -- what can go wrong; each is undone when the context is left

    @contextlib.contextmanager
    def faulty(self, *faults: InjectedFault) -> Iterator[None]:
        """Calls are struck."""
        for fault in faults:
            self.world.faults.set(fault)
        try:
            yield
        finally:
            self.world.faults.clear()

    @contextlib.contextmanager
    def nobody_listens(self) -> Iterator[None]:
        """The API's server is gone: connections are refused."""
        address = self.cloud.port
        self.cloud.stop()
        try:
            yield
        finally:
            self.cloud = CloudServer(self.world, port=address, services=[self.monitoring.handler()])

    @contextlib.contextmanager
    def half_open(self) -> Iterator[None]:
        """The API's connections stay open, its port takes others, and no answer ever comes."""
        try:
            with self.faulty(InjectedFault(half_open=True)):
                self.cloud.advance()
                yield
        finally:
            self.cloud.advance()

    @contextlib.contextmanager
    def workload(self, phase: WorkloadPhase) -> Iterator[None]:
        """The own node's program does something else than to train."""
        self._work(phase)
        try:
            yield
        finally:
            self._work(WorkloadPhase.TRAINING)

    @contextlib.contextmanager
    def foreign(self) -> Iterator[None]:
        """The program has ended, and a web server has its port."""
        with self.workload(WorkloadPhase.NONE):
            server = _WebServer(self.runtime.ports[0])
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
                server.server_close()

    def _work(self, phase: WorkloadPhase) -> None:
        with self.world.lock:
            self._node(OWN).workloads[0] = Workload(phase, self.clock.time() - 3600.0)
        self.runtime.advance()
        self.machine.runs(phase)

    def _node(self, name: str) -> SimNode:
        return self.world.nodes[f"projects/{PROJECT}/locations/{ZONE}/nodes/{name}"]


class _WebServer(HTTPServer):
    """On a port that the simulated runtime keeps for itself while it is closed."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler, bind_and_activate=False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.server_bind()
        self.server_activate()

    def server_bind(self) -> None:
        """Without the look-up of the own name that the base class makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers every request with an error, and speaks of none."""

    def log_message(self, *_: object) -> None:
        """What speaks no HTTP is not logged."""


class Machine(MadeUpMachine):
    """It has been up for ten days. While a program runs, a process holds its TPU."""

    def __init__(self, root: Path, clock: Clock) -> None:
        super().__init__(root)
        self.write("proc/uptime", "864000.00 1.00\n")
        self.has_real_sockets()
        self._clock = clock
        self._phase = WorkloadPhase.TRAINING
        self._used = 100.0  # seconds of processors, by the holder until `_looked`
        self._looked = clock.monotonic()
        self.look()

    def runs(self, phase: WorkloadPhase) -> None:
        """From now on this is what a program does, if there is one."""
        self.look()
        self._phase = phase
        self.look()

    def look(self) -> None:
        """Bring the files up to date: a program that works keeps one processor busy."""
        now = self._clock.monotonic()
        if self._phase in (WorkloadPhase.TRAINING, WorkloadPhase.COMPILING):
            self._used += now - self._looked
        self._looked = now
        files = () if self._phase is WorkloadPhase.NONE else ("/dev/vfio/0",)
        self.process(4242, files=files, cpu=self._used, started=860_400.0)  # an hour before the ten days were over
