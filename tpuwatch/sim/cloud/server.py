"""The gRPC server of the simulated cloud: the Cloud TPU API, its operations, and whatever else is to ride on it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import TpuwatchError
from tpuwatch.sim.cloud.interceptor import Interceptor
from tpuwatch.sim.cloud.relayed_server import RelayedServer
from tpuwatch.sim.cloud.tpu import OperationsService, TpuService
from tpuwatch.sim.cloud.wire import ApiVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc

    from tpuwatch.sim.cloud.world import World

THREADS: Final = 64  # calls in a black hole hold one each
_BACKLOG: Final = 128


class CloudServer:
    """Serves a world on 127.0.0.1, from threads of its own."""

    def __init__(
        self,
        world: World,
        *,
        port: int = 0,
        tls: grpc.ServerCredentials | None = None,
        services: Sequence[Any] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """Starts at once. Port 0 takes any free one; `services` are further grpc.GenericRpcHandlers.

        With `tls` it speaks TLS only. Raises TpuwatchError when the address cannot be used.
        """
        apis = {version: ApiVersion(version) for version in ("v2", "v2alpha1")}
        handlers = [TpuService(world, api).handler() for api in apis.values()]
        self._world = world
        handlers += [OperationsService(world, apis).handler(), *services]
        self._stopped = threading.Lock()
        self._looking = threading.Lock()
        self._host = host
        try:
            listening = _listening(host, port)
        except OSError as error:
            raise TpuwatchError(
                f"Cannot listen on {host}:{port}: another program has the port, or that is no address of this machine. "
                "Give another, or port 0 for any."
            ) from error
        self.port: int = listening.getsockname()[1]
        self._server = RelayedServer(
            listening, handlers, Interceptor(world), name="sim-cloud", threads=THREADS, tls=tls
        )

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self._host}:{self.port}"

    def advance(self) -> None:
        """Look whether a fault makes its connections half-open, and fall silent or speak again."""
        with self._looking:
            self._server.silence(self._world.faults.half_open)

    def stop(self) -> None:
        """Cut all calls and connections, and wait until the threads are gone. A second call does nothing."""
        if self._stopped.acquire(blocking=False):
            self._server.stop()


def _listening(host: str, port: int) -> socket.socket:
    """A second one on the same port fails. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
