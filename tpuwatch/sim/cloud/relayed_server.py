"""A gRPC server behind a relay, as the cloud and a worker's runtime have one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import grpc

from tpuwatch.sim.cloud.relay import Relay

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from tpuwatch.sim.cloud.interceptor import Interceptor

STOP_SECONDS: Final = 5.0


class RelayedServer:
    """A gRPC server that callers reach through a relay, which can fall silent."""

    def __init__(
        self,
        listening: socket.socket,
        handlers: Sequence[grpc.GenericRpcHandler],
        interceptor: Interceptor,
        *,
        name: str,
        threads: int,
        tls: grpc.ServerCredentials | None = None,
    ) -> None:
        """Starts at once; `listening` is closed with it."""
        self._interceptor = interceptor
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._server = grpc.server(self._pool, handlers=handlers, interceptors=[interceptor])
        inner = "127.0.0.1:0"  # a port that only the relay knows
        port = self._server.add_insecure_port(inner) if tls is None else self._server.add_secure_port(inner, tls)
        self._server.start()
        self._relay = Relay(listening, port, f"{name}-relay")

    def silence(self, wanted: bool) -> None:
        """Fall silent, or speak again."""
        self._relay.silence(wanted)

    def stop(self) -> None:
        """Cut all connections, refuse others, and wait until the threads are gone."""
        self._relay.close()
        self._interceptor.close()
        self._server.stop(0).wait(STOP_SECONDS)
        self._pool.shutdown(wait=True)
