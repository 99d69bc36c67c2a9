"""A process's runtime metrics, and other things that listen on a port, for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tpuwatch.libtpu.metrics_proto import (
    SERVICE,
    ListSupportedMetricsRequest,
    ListSupportedMetricsResponse,
    MetricRequest,
    MetricResponse,
)


class RuntimeProcess:
    """Serves `metrics`: by name a list of entries as dictionaries, raw bytes, a status code to end with, or a function
    that gives one of these when it is asked.

    Without `lists` it is a version that does not know ListSupportedMetrics. `asked` holds the requests for metrics.
    """

    def __init__(self, metrics: dict[str, Any], *, lists: bool = True, service: str = SERVICE, port: int = 0) -> None:
        self.metrics = metrics
        self.asked: list[Any] = []
        handlers = {
            "GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(
                self._get, request_deserializer=MetricRequest.FromString
            )
        }
        if lists:
            handlers["ListSupportedMetrics"] = grpc.unary_unary_rpc_method_handler(
                self._list,
                request_deserializer=ListSupportedMetricsRequest.FromString,
                response_serializer=ListSupportedMetricsResponse.SerializeToString,
            )
        self._server = grpc.server(
            ThreadPoolExecutor(2), handlers=[grpc.method_handlers_generic_handler(service, handlers)]
        )
        self.port: int = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    def _get(self, request: Any, context: grpc.ServicerContext) -> bytes:
        self.asked.append(request)
        value = self.metrics[request.metric_name]
        value = value() if callable(value) else value
        if isinstance(value, grpc.StatusCode):
            context.abort(value, "as the test wants it")
        if isinstance(value, bytes):
            return value
        metric = {"name": request.metric_name, "metrics": value}
        answer: bytes = MetricResponse(metric=metric).SerializeToString()
        return answer

    def _list(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        names = [{"metric_name": name} for name in self.metrics]
        return ListSupportedMetricsResponse(supported_metric=names)

    def stop(self) -> None:
        self._server.stop(grace=None).wait()


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket], None] | None = None) -> Iterator[int]:
    """A port on which `answer` is given each connection; without, connections are taken and nothing is ever said."""
    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve(answer: Callable[[socket.socket], None]) -> None:
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError, OSError), server.accept()[0] as connection:
                    connection.settimeout(60)
                    answer(connection)

        thread = threading.Thread(target=serve, args=(answer,)) if answer is not None else None
        if thread is not None:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopping.set()
            if thread is not None:
                thread.join()


def turn_away(connection: socket.socket) -> None:
    """Speak HTTP/2 and take no request: GOAWAY, ENHANCE_YOUR_CALM. It ends when the other side has left."""
    settings = b"\0\0\0\x04\0\0\0\0\0"
    goaway = b"\0\0\x08\x07\0\0\0\0\0" + (0).to_bytes(4, "big") + (11).to_bytes(4, "big")
    connection.sendall(settings + goaway)
    while connection.recv(65536):
        pass


@contextlib.contextmanager
def refused() -> Iterator[int]:
    """A port that nobody listens on and nobody else takes meanwhile."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield place.getsockname()[1]


def is_open(address: str) -> bool:
    """Whether somebody takes connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 60).close()
    except ConnectionRefusedError:
        return False
    return True
