from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tpuwatch.sim.serving import LocalServer

SECONDS = 60.0
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


class Handler(BaseHTTPRequestHandler):
    server: LocalServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/bad":
            raise LookupError("nobody foresaw it")
        if self.path == "/slow":
            self.server.stopping.wait(SECONDS)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[LocalServer]:
    server = LocalServer(Handler, "test-server", max_connections=2, busy=BUSY)
    server.start()
    yield server
    server.close()


def connected(server: LocalServer, path: str = "/") -> http.client.HTTPConnection:
    """A connection that stays open, after one request that was answered, or was sent if it is a slow one."""
    connection = http.client.HTTPConnection(server.address, timeout=SECONDS)
    connection.request("GET", path)
    if path != "/slow":
        connection.getresponse().read()
    return connection


def test_connections_are_bounded_and_one_too_many_is_reported(server: LocalServer) -> None:
    held = [connected(server), connected(server)]
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as third:
        assert third.recv(4096) == BUSY
        assert third.recv(4096) == b""
    for connection in held:
        connection.request("GET", "/")
        assert connection.getresponse().status == 204
        connection.close()


def test_an_error_in_one_request_is_reported_and_stays_its_own(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(http.client.RemoteDisconnected):
        connected(server, "/bad")
    assert "test-server failed to answer a request" in caplog.text
    assert "nobody foresaw it" in caplog.text
    connected(server).close()


def test_its_end_cuts_what_rests_and_what_waits_and_leaves_no_thread(server: LocalServer) -> None:
    resting, waiting = connected(server), connected(server, "/slow")
    server.close()
    assert resting.sock.recv(1) == b""
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-server")]
    resting.close()
    waiting.close()
