"""What may answer where access tokens are given out, and that asking there ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from google.auth.exceptions import TransportError

from tests.standins.runtime_server import listening, refused
from tpuwatch.core.clock import SystemClock
from tpuwatch.google.credentials import BoundedRequest
from tpuwatch.google.errors import TokenTimeout

OK = b"HTTP/1.1 200 OK\r\n"
SECONDS = 30.0


class Request(BoundedRequest):
    """Asks one server."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/token?scopes=a,b"
        super().__init__(SystemClock(), SECONDS)


@contextmanager
def answered(*parts: bytes, endless: bytes = b"") -> Iterator[tuple[Request, list[bytes]]]:
    """A request to a server that answers with `parts`, and then goes on with `endless` until the other side leaves."""
    asked: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(b"".join(parts))
        while endless:
            connection.sendall(endless)

    with listening(answer) as port:
        yield Request(port), asked


def test_a_reply_has_what_googles_library_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # it would be refused there
    with answered(OK, b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}") as (request, asked):
        reply = request(url=request.url, method="GET", headers={"Metadata-Flavor": "Google"}, timeout=3)
    assert (reply.status, reply.headers["content-type"], reply.data) == (200, "application/json", b"{}")
    assert asked[0].startswith(b"GET /token?scopes=a,b HTTP/1.1\r\n")
    assert b"\r\nMetadata-Flavor: Google\r\n" in asked[0]
    assert asked[0].count(b"\r\nHost: ") == 1


def test_a_reply_without_end_is_not_read_to_its_end() -> None:
    head = OK + b"Content-Length: 999999999999\r\n\r\n"
    with answered(head, endless=bytes(65536)) as (request, _), pytest.raises(TransportError, match="larger than 1 MiB"):
        request(request.url)


def test_a_reply_that_does_not_come_costs_the_deadline_and_no_more() -> None:
    with listening() as port:
        request = Request(port)
        with pytest.raises(TokenTimeout, match=rf"http://127.0.0.1:{port}/token did not answer in time"):
            request(request.url, timeout=0.1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"", "closed without an answer"),
        (OK + b"Content-Length: 9\r\n\r\nhalf", "cut off"),
    ],
    ids=["no HTTP", "nothing", "half"],
)
def test_what_is_no_reply_is_reported_as_google_auth_expects_it(text: bytes, told: str) -> None:
    with answered(text) as (request, _), pytest.raises(TransportError, match=told):
        request(request.url)


def test_where_nobody_listens_google_auth_finds_that_there_is_no_metadata_server() -> None:
    with refused() as port:
        request = Request(port)
        with pytest.raises(TransportError, match="Connection refused"):
            request(request.url)
