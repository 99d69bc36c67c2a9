"""The ports of libtpu's runtime metrics on a simulated worker: they open and close as its workload comes and goes."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import grpc

from tpuwatch.sim.cloud.interceptor import Interceptor
from tpuwatch.sim.cloud.nodes import WorkloadPhase
from tpuwatch.sim.cloud.runtime_metrics import Version, handler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World

_SERVING: Final = frozenset({WorkloadPhase.COMPILING, WorkloadPhase.TRAINING, WorkloadPhase.STUCK})
_HOST: Final = "127.0.0.1"
_THREADS: Final = 4  # of a port: calls that take longer than others wait here
_STOP_SECONDS: Final = 5.0
_BACKLOG: Final = 128  # connections that a hung process lets the kernel take


class RuntimeService:
    """The runtime metrics of one worker, one port per process, with the worker's chips shared out among them.

    The port is open only while a workload runs. A hung process accepts connections and never answers.
    """

    def __init__(
        self,
        world: World,
        node: str,
        worker: int = 0,
        *,
        ports: Sequence[int] = (0,),
        version: Version | None = None,
    ) -> None:
        """`node` is a resource name. Port 0 takes any free one and keeps it, open or not.

        Raises KeyError where the world has no such node, OSError where a port is taken.
        """
        self._world = world
        self._node = node
        self._worker = worker
        self._lock = threading.Lock()
        self._closed = False
        with world.lock:
            chips = world.nodes[node].chips_per_host
        share = -(-chips // len(ports))  # the last may get fewer
        self._processes: list[_Process] = []
        try:
            for at, port in enumerate(ports):
                held = range(min(chips, at * share), min(chips, (at + 1) * share))
                serve = handler(world, node, worker, held, version or Version())
                self._processes.append(_Process(port, serve, world))
        except OSError:
            self.close()
            raise

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports, in the order of the processes."""
        return tuple(process.port for process in self._processes)

    def advance(self) -> None:
        """Look at the workload, and open or close the ports; nothing changes after `close`."""
        with self._lock:
            if not self._closed:
                phase = self._phase()
                for process in self._processes:
                    process.become(phase)

    def close(self) -> None:
        """Close the ports and give them back."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.close()

    def _phase(self) -> WorkloadPhase:
        with self._world.lock:
            self._world.advance()
            node = self._world.nodes.get(self._node)
            if node is None or not _has_metrics(node) or not (node.alive or node.hangs):
                return WorkloadPhase.NONE
            phase = node.workloads[self._worker].phase
            return WorkloadPhase.HUNG if node.hangs and phase in _SERVING else phase


class _Process:
    """One process's port: closed, served by gRPC, or taken and silent."""

    def __init__(self, port: int, serve: grpc.GenericRpcHandler, world: World) -> None:
        self._serve = serve
        self._world = world
        # Bound and never listening: it keeps the number while the port is closed, and connections are refused.
        self._place = _place(port)
        self.port: int = self._place.getsockname()[1]
        self._served: tuple[grpc.Server, ThreadPoolExecutor, Interceptor] | None = None
        self._mute: socket.socket | None = None

    def become(self, phase: WorkloadPhase) -> None:
        if phase in _SERVING:
            self._silence(False)
            self._open()
        elif phase is WorkloadPhase.HUNG:
            self._shut()
            self._silence(True)
        else:
            self._shut()
            self._silence(False)

    def close(self) -> None:
        self._shut()
        self._silence(False)
        self._place.close()

    def _open(self) -> None:
        if self._served is None:
            interceptor = _Interceptor(self._world)
            pool = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"sim-runtime-{self.port}")
            options = [("grpc.so_reuseport", 1)]
            server = grpc.server(pool, handlers=[self._serve], interceptors=[interceptor], options=options)
            server.add_insecure_port(f"{_HOST}:{self.port}")
            server.start()
            self._served = server, pool, interceptor

    def _shut(self) -> None:
        if self._served is not None:
            server, pool, interceptor = self._served
            interceptor.close()
            server.stop(0).wait(_STOP_SECONDS)
            pool.shutdown(wait=True)
            self._served = None

    def _silence(self, wanted: bool) -> None:
        if wanted and self._mute is None:
            self._mute = _shared(self.port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
            self._mute.listen(_BACKLOG)
        elif not wanted and self._mute is not None:
            self._mute.close()
            self._mute = None


class _Interceptor(Interceptor):
    """Faults and the log of calls as for the cloud, but no access tokens: every local process has access."""

    def _check_token(self, authorization: str, now: float) -> None:
        """Everybody may."""


def _has_metrics(node: SimNode) -> bool:
    """libtpu serves no runtime metrics on v2 and v3."""
    return node.accelerator_type.split("-")[0] not in ("v2", "v3")


def _place(port: int) -> socket.socket:
    """Take a port for good. Raises OSError where another program has it, though it would share it."""
    if port:
        with socket.socket() as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not count
            alone.bind((_HOST, port))
    return _shared(port, socket.SO_REUSEPORT)  # without SO_REUSEADDR: else the next one's check would succeed


def _shared(port: int, *options: int) -> socket.socket:
    shared = socket.socket()
    try:
        for option in options:
            shared.setsockopt(socket.SOL_SOCKET, option, 1)
        shared.bind((_HOST, port))
    except OSError:
        shared.close()
        raise
    return shared
