"""The gRPC server of the simulated cloud: the Cloud TPU API, its operations, and whatever else is to ride on it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc

from tpuwatch.errors import TpuwatchError
from tpuwatch.sim.cloud.interceptor import Interceptor
from tpuwatch.sim.cloud.tpu import OperationsService, TpuService
from tpuwatch.sim.cloud.wire import Api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.sim.cloud.certificates import Certificates
    from tpuwatch.sim.cloud.world import World

THREADS: Final = 64  # calls in a black hole hold one each
STOP_SECONDS: Final = 5.0


class CloudServer:
    """Serves a world on 127.0.0.1, from threads of its own."""

    def __init__(
        self,
        world: World,
        *,
        port: int = 0,
        tls: Certificates | None = None,
        services: Sequence[Any] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """Starts at once. Port 0 takes any free one; `services` are further grpc.GenericRpcHandlers.

        With `tls` it speaks TLS only. Raises TpuwatchError when the address cannot be used.
        """
        apis = {version: Api(version) for version in ("v2", "v2alpha1")}
        handlers = [TpuService(world, api).handler() for api in apis.values()]
        self._interceptor = Interceptor(world)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sim-cloud")
        self._server = grpc.server(
            self._pool,
            handlers=[*handlers, OperationsService(world, apis).handler(), *services],
            interceptors=[self._interceptor],
            options=[("grpc.so_reuseport", 0)],  # a second server on the same port must fail, not share it
        )
        self._stopped = threading.Lock()
        self._host = host
        self.port = self._bind(host, port, tls)
        self._server.start()

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self._host}:{self.port}"

    def stop(self) -> None:
        """Cut all calls and connections, and wait until the threads are gone. A second call does nothing."""
        if not self._stopped.acquire(blocking=False):
            return
        self._interceptor.close()
        self._server.stop(0).wait(STOP_SECONDS)
        self._pool.shutdown(wait=True)

    def _bind(self, host: str, port: int, tls: Certificates | None) -> int:
        wanted = f"{host}:{port}"
        try:
            if tls is None:
                bound = self._server.add_insecure_port(wanted)
            else:
                keys = [(tls.key.read_bytes(), tls.certificate.read_bytes())]
                bound = self._server.add_secure_port(wanted, grpc.ssl_server_credentials(keys))
        except RuntimeError:
            bound = 0
        if not bound:
            self._server.stop(0)
            self._pool.shutdown(wait=False)
            raise TpuwatchError(
                f"Cannot listen on {wanted}: another program has the port, or that is no address of this machine. Give "
                "another, or port 0 for any."
            )
        return int(bound)
