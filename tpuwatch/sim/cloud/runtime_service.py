"""The port of libtpu's runtime metrics on a simulated worker: it opens and closes as its workload comes and goes."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

from tpuwatch.sim.cloud.interceptor import Interceptor
from tpuwatch.sim.cloud.nodes import SERVING, WorkloadPhase
from tpuwatch.sim.cloud.relayed_server import RelayedServer
from tpuwatch.sim.cloud.runtime_metrics import RuntimeMetrics

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World

_HOST: Final = "127.0.0.1"
_THREADS: Final = 4  # calls that take longer than others wait here
_BACKLOG: Final = 128


class RuntimeService:
    """The runtime metrics of one worker, on a port that is open only while a workload runs.

    A hung process keeps its connections, accepts others and never answers; what it owes an answer for stays owed.
    """

    def __init__(self, world: World, node: str, worker: int = 0) -> None:
        """`node` is a resource name. Takes any free port and keeps it, open or not."""
        self._world = world
        self._node = node
        self._worker = worker
        self._lock = threading.Lock()
        self._closed = False
        self._handler = RuntimeMetrics(world, node, worker).handler()
        # Bound and never listening: it keeps the number while the port is closed, and connections are refused.
        self._place = _bound(0, socket.SO_REUSEPORT)
        self._port: int = self._place.getsockname()[1]
        self._served: RelayedServer | None = None

    @property
    def ports(self) -> tuple[int]:
        """The port, as tpuwatch knows it."""
        return (self._port,)

    @property
    def listening(self) -> tuple[int, ...]:
        """The ports that are open now."""
        with self._lock:
            return () if self._served is None else self.ports

    def advance(self) -> None:
        """Look at the workload, and open or close the port; nothing changes after `close`."""
        with self._lock:
            if not self._closed:
                self._become(self._phase())

    def close(self) -> None:
        """Close the port and give it back."""
        with self._lock:
            self._closed = True
            self._become(WorkloadPhase.NONE)
            self._place.close()

    def _phase(self) -> WorkloadPhase:
        with self._world.lock:
            self._world.advance()
            node = self._world.nodes.get(self._node)
            if node is None or not _has_metrics(node) or not (node.alive or node.hangs):
                return WorkloadPhase.NONE
            phase = node.workloads[self._worker].phase
            return WorkloadPhase.HUNG if node.hangs and phase in SERVING else phase

    def _become(self, phase: WorkloadPhase) -> None:
        hung = phase is WorkloadPhase.HUNG
        if hung or phase in SERVING:
            self._served = self._served or self._process()
            self._served.silence(hung)
        elif self._served is not None:
            self._served.stop()
            self._served = None

    def _process(self) -> RelayedServer:
        """The process that serves the metrics, as its callers see it: it can hang."""
        listening = _bound(self._port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        listening.listen(_BACKLOG)
        name = f"sim-runtime-{self._port}"
        return RelayedServer(listening, [self._handler], _Interceptor(self._world), name=name, threads=_THREADS)


class _Interceptor(Interceptor):
    """Faults and the log of calls as for the cloud, but no access tokens: every local process has access."""

    def _check_token(self, authorization: str, now: float) -> None:
        """Everybody may."""


def _has_metrics(node: SimNode) -> bool:
    """libtpu serves no runtime metrics on v2 and v3."""
    return node.accelerator_type.split("-")[0] not in ("v2", "v3")


def _bound(port: int, *options: int) -> socket.socket:
    bound = socket.socket()
    for option in options:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind((_HOST, port))
    return bound
