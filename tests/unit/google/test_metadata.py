"""Tests of the metadata client, against servers on loopback that behave well or badly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.standins.runtime_server import listening
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.google.metadata import MAX_REPLY_BYTES, MetadataClient, MetadataError, metadata_host, metadata_url
from tpuwatch.model.answers import Problem

OK = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: e1\r\nContent-Length: 5\r\n\r\nvalue"
Serve = Callable[[socket.socket], None]


def reply(status: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status}", "Metadata-Flavor: Google", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Server:
    """Answers each request by `serve`, which gets the connection."""

    def __init__(self, serve: Serve, stack: contextlib.ExitStack) -> None:
        self.requests: list[bytes] = []
        self.got = threading.Event()
        self.done = threading.Event()
        self._serve = serve
        self.host = f"127.0.0.1:{stack.enter_context(listening(self._answer))}"
        stack.callback(self.done.set)

    def _answer(self, connection: socket.socket) -> None:
        if head := connection.recv(65536):
            self.requests.append(head)
            self.got.set()
            self._serve(connection)


@pytest.fixture
def serve() -> Iterator[Callable[[Serve], Server]]:
    with contextlib.ExitStack() as stack:
        yield lambda behaviour: Server(behaviour, stack)


def hang(server: Server) -> None:
    """Say nothing until the test ends."""
    server.done.wait(30)


def client(host: str, seconds: float = 60.0) -> MetadataClient:
    return MetadataClient(host, clock=SystemClock(), timeout_seconds=seconds)


def failure(asked: MetadataClient, path: str = "instance/zone") -> MetadataError:
    with pytest.raises(MetadataError) as caught:
        asked.get(path)
    return caught.value


def test_it_reads_a_value_and_asks_as_the_server_demands(serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda connection: connection.sendall(OK))
    assert client(server.host).get("instance/attributes/tpu-env") == "value"
    head = server.requests[0].decode()
    assert head.startswith("GET /computeMetadata/v1/instance/attributes/tpu-env HTTP/1.1\r\n")
    assert "\r\nMetadata-Flavor: Google\r\n" in head
    assert f"\r\nHost: {server.host}\r\n" in head


def test_what_is_not_there_is_none(serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda connection: connection.sendall(reply("404 Not Found", body=b"no")))
    assert client(server.host).get("instance/attributes/tpu-env") is None
    assert client(server.host).wait("instance/x", "", 1) == ("", "")


def test_wait_passes_the_etag_and_the_time_and_gives_the_new_ones(serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda connection: connection.sendall(OK))
    assert client(server.host).wait("instance/maintenance-event", "a/b&c", 60) == ("value", "e1")
    assert client(server.host).wait("instance/upcoming-maintenance?alt=json", "", 7.9) == ("value", "e1")
    first, second = (request.split(b" ")[1].decode() for request in server.requests)
    assert first.endswith("/maintenance-event?wait_for_change=true&last_etag=a%2Fb%26c&timeout_sec=60")
    assert second.endswith("?alt=json&wait_for_change=true&last_etag=0&timeout_sec=7")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Problem.FOREIGN),  # no Metadata-Flavor
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Problem.FOREIGN),
        (b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Other\r\nContent-Length: 0\r\n\r\n", Problem.FOREIGN),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", Problem.FOREIGN),
        (reply("200 OK", body=bytes(MAX_REPLY_BYTES)), Problem.FOREIGN),
        (reply("503 Service Unavailable"), Problem.SERVER),
        (reply("500 Internal Server Error"), Problem.SERVER),
        (reply("429 Too Many Requests"), Problem.THROTTLED),
        (reply("403 Forbidden"), Problem.DENIED),
        (reply("400 Bad Request"), Problem.INTERNAL),
        (reply("301 Moved Permanently", "Location: http://127.0.0.1:1/"), Problem.INTERNAL),  # never followed
        (OK[:-2], Problem.UNREACHABLE),  # cut off
        (b"", Problem.UNREACHABLE),
    ],
)
def test_bad_answers_are_told_apart(answer: bytes, problem: Problem, serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda connection: connection.sendall(answer))
    error = failure(client(server.host))
    assert error.problem is problem, str(error)
    assert server.host in str(error)
    assert str(error).endswith(".")


def test_the_date_of_an_answer_is_the_time_by_the_server(serve: Callable[[Serve], Server]) -> None:
    clock = ManualClock(1.0)  # this machine's own is wrong
    clock.mono = 50.0
    headers = ["Date: Fri, 20 Nov 2026 12:00:00 GMT"]
    asked = MetadataClient(serve(lambda one: one.sendall(reply("200 OK", *headers))).host, clock=clock)
    assert asked.server_epoch is None
    asked.get("instance/zone")
    assert asked.server_epoch == 1_795_176_000.0 - 50.0


def test_retry_after_is_handed_on(serve: Callable[[Serve], Server]) -> None:
    answers = iter([reply("429 Slow", "Retry-After: 17"), reply("503 No", "Retry-After: soon"), reply("503 No")])
    server = serve(lambda connection: connection.sendall(next(answers)))
    assert [failure(client(server.host)).retry_after for _ in range(3)] == [17.0, None, None]


def test_a_server_that_hangs_is_a_timeout(serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda _: hang(server))
    error = failure(client(server.host, 0.2))
    assert error.problem is Problem.TIMEOUT
    assert "within 0.2 s" in str(error)
    server.done.set()


def test_nobody_there_is_absence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    error = failure(client(host))
    assert error.problem is Problem.ABSENT
    assert "no Google Cloud VM" in str(error)


def test_names_that_cannot_be_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(code: int) -> None:
        def getaddrinfo(*_args: object, **_more: object) -> list[object]:
            raise socket.gaierror(code, "as the test says")

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    fails(socket.EAI_NONAME)
    assert failure(client("no-such-name.invalid")).problem is Problem.ABSENT
    fails(socket.EAI_AGAIN)
    assert failure(client("no-such-name.invalid")).problem is Problem.UNREACHABLE


@pytest.mark.parametrize("host", ["a" * 70 + ".invalid", "host:port", "[::1"])
def test_a_host_that_is_no_name_is_absent(host: str) -> None:
    assert failure(client(host)).problem is Problem.ABSENT


def test_close_ends_a_wait_and_refuses_others(serve: Callable[[Serve], Server]) -> None:
    server = serve(lambda _: hang(server))
    waiting = client(server.host, 600)
    caught: list[MetadataError] = []

    def wait() -> None:
        try:
            waiting.wait("instance/maintenance-event", "e", 600)
        except MetadataError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert server.got.wait(60)
    waiting.close()
    thread.join(60)  # a tenth of what it would wait for
    assert not thread.is_alive()
    assert [error.problem for error in caught] == [Problem.UNREACHABLE]
    assert failure(waiting).problem is Problem.UNREACHABLE
    server.done.set()


@pytest.mark.parametrize(
    ("host", "place"),
    [("metadata.google.internal",) * 2, ("127.0.0.1:8080",) * 2, ("[::1]:8080",) * 2, ("[::1]",) * 2, ("::1", "[::1]")],
)
def test_hosts_may_name_a_port(host: str, place: str) -> None:
    assert metadata_url(host) == f"http://{place}/computeMetadata/v1/"


def test_the_environment_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:99")
    assert metadata_host("") == "127.0.0.1:99"
    monkeypatch.setenv("GCE_METADATA_HOST", "")
    assert metadata_host("") == "metadata.google.internal"
