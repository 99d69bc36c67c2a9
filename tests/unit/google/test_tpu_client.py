"""The client of the Cloud TPU API, against a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.cloud import tpu_v2

from tpuwatch.config.schema import CloudConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.google.errors import ApiError
from tpuwatch.google.tpu_client import CloudClient

NOON = "Fri, 20 Nov 2026 12:00:00 GMT"
NOON_EPOCH = 1_795_176_000.0


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Knows no node, and answers with these headers; or refuses."""

    def __init__(self) -> None:
        self.headers: tuple[tuple[str, str], ...] = ()
        self.refuses = False

    def service(self, _details: Any) -> Any:
        def serve(_request: bytes, context: Any) -> bytes:
            context.send_initial_metadata(self.headers)
            if self.refuses:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "No.")
            return b""

        return grpc.unary_unary_rpc_method_handler(serve)


@contextmanager
def running(service: Service) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_the_date_of_an_answer_is_the_time_by_the_service() -> None:
    clock, service = ManualClock(NOON_EPOCH + 90 * 86_400.0), Service()  # this machine's own clock is wrong
    clock.mono = 500.0
    with running(service) as address:
        cloud = CloudConfig(endpoint=address, insecure=True)
        client = CloudClient(cloud, clock=clock, on_call=lambda *_: None)
        assert [type(page) for page in client.list_nodes("lab", "us-east5-a")] == [tpu_v2.ListNodesResponse.pb()]
        assert client.server_epoch is None
        for date in (NOON, "soon", NOON):
            service.headers = (("date", date),)
            list(client.list_nodes("lab", "us-east5-a"))
            assert client.server_epoch == NOON_EPOCH - 500.0
            client.close()  # it keeps the time, and connects again
        service.refuses = True
        with pytest.raises(ApiError, match="No\\."):
            list(client.list_nodes("lab", "us-east5-a"))
        assert client.server_epoch == NOON_EPOCH - 500.0
        client.close()
