from __future__ import annotations

import gzip
import http.client
import json
import logging
import os
import resource
import select
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import wait_for
from tests.unit.web.samples import SampleView, event, status
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import ConfigError
from tpuwatch.metrics.registry import Metrics
from tpuwatch.web import server as served
from tpuwatch.web.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.model.status import DaemonStatus

DEADLINE = 60.0  # of each socket operation: long, for none should need it


class Site:
    """A running server, its clock and its metrics."""

    def __init__(self, view: SampleView) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics(loops=(), refusals=())
        self.server = HttpServer("127.0.0.1", 0, view=view, metrics=self.metrics, clock=self.clock)
        self.server.start()

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(*self.server.address, timeout=DEADLINE)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.server.address, timeout=DEADLINE)

    def raw(self, request: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)

    def answered(self, code: int) -> str:
        text = self.metrics.exposition()[0].decode()
        return next(line for line in text.splitlines() if f'http_requests_total{{code="{code}"}}' in line).split()[1]


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def serving(view: SampleView | None = None) -> Iterator[Site]:
    site = Site(view or SampleView())
    try:
        yield site
    finally:
        site.server.close()


def bind(host: str, port: int = 0) -> HttpServer:
    """A server that is not started."""
    return HttpServer(host, port, view=SampleView(), metrics=Metrics(loops=(), refusals=()), clock=ManualClock())


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as running:
        yield running


def test_get_and_head(site: Site) -> None:
    response, body = site.get("/healthz")
    assert (response.status, body) == (200, b"ok\n")
    head, nothing = site.get("/healthz", "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (200, "3", b"")
    assert site.answered(200) == "2.0"


def test_every_answer_is_safe_and_gives_little_away(site: Site) -> None:
    for path in ("/", "/metrics", "/nothing"):
        headers = site.get(path)[0].headers
        assert headers["Server"] == "tpuwatch"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Connection"] == "close"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    response, body = site.get("/metrics", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert "GET or HEAD" in json.loads(body)["error"]
    assert site.answered(405) == "1.0"


def test_an_answer_survives_a_body_that_nobody_reads(site: Site) -> None:
    request = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    assert site.raw(request).startswith(b"HTTP/1.1 405 ")


def test_long_answers_are_compressed_for_who_asks(site: Site) -> None:
    plain_response, plain = site.get("/metrics")
    assert "Content-Encoding" not in plain_response.headers
    response, body = site.get("/metrics", Accept_Encoding="deflate, GZIP;q=0.5")
    assert response.headers["Content-Encoding"] == "gzip"
    assert len(body) < len(plain) / 3
    assert b"tpuwatch_events_total" in gzip.decompress(body)
    assert "Content-Encoding" not in site.get("/metrics", Accept_Encoding="gzip;q=0")[0].headers
    assert "Content-Encoding" not in site.get("/healthz", Accept_Encoding="gzip")[0].headers


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/x.y\r\n\r\n", b"GET\r\n\r\n", b"GET / / HTTP/1.1\r\n\r\n"],
)
def test_what_is_no_http_gets_400_as_json(site: Site, request_bytes: bytes) -> None:
    head, _, body = site.raw(request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Python" not in head
    assert json.loads(body) == {"error": "The request is not valid HTTP."}


@pytest.mark.parametrize("line", [b"GET /healthz", b"GET /healthz HTTP/0.9", b"GET /healthz HTTP/1.0"])
def test_an_old_request_gets_a_head_too(site: Site, line: bytes) -> None:
    answer = site.raw(line + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nok\n")


def test_a_foreign_name_in_the_host_header_is_refused_until_it_is_configured(site: Site) -> None:
    response, body = site.get("/api/v1/events", Host="rebound.example.org:9478")
    assert response.status == 421
    assert "`hosts` under [http]" in json.loads(body)["error"]
    assert site.answered(421) == "1.0"
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example.org\r\n\r\n"
    assert site.raw(request).startswith(b"HTTP/1.1 421 ")
    site.server.set_hosts(["rebound.example.org"])
    assert site.get("/api/v1/events", Host="rebound.example.org:9478")[0].status == 200
    assert site.get("/", Host=f"{socket.gethostname()}:9478")[0].status == 200


def test_hostile_headers_break_nothing(site: Site) -> None:
    request = (
        b"GET /metrics HTTP/1.1\r\nAccept: text/plain;version=\xff\xfe\r\nAccept-Encoding: \x00,;q=,\r\n: \r\n\r\n"
    )
    assert site.raw(request).startswith(b"HTTP/1.1 200 ")
    assert site.get("/healthz")[0].status == 200


@pytest.mark.parametrize(
    "request_bytes", [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000]
)
def test_a_request_has_a_size(site: Site, request_bytes: bytes) -> None:
    assert site.raw(request_bytes).startswith(b"HTTP/1.1 431 ")
    assert site.answered(431) == "1.0"


def test_a_request_may_come_byte_by_byte(site: Site) -> None:
    with site.connect() as connection:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert read_all(connection).endswith(b"\r\n\r\nok\n")


def test_one_request_per_connection(site: Site) -> None:
    answer = site.raw(b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 1


def test_a_client_that_leaves_does_no_harm(site: Site) -> None:
    for _ in range(3 * served.MAX_CONNECTIONS):
        with site.connect() as connection:
            connection.sendall(b"GET /metr")
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b""
    assert site.get("/healthz")[0].status == 200


def test_idle_connections_keep_no_scrape_out(site: Site) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        idle = [stack.enter_context(site.connect()) for _ in range(served.MAX_CONNECTIONS)]
        for connection in idle[::2]:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(3):
            assert site.get("/metrics")[0].status == 200
        assert read_all(idle[0]) == b""  # the oldest gave way
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert read_all(idle[-1]).endswith(b"ok\n")
        assert threading.active_count() <= before + 2 * served.MAX_CONNECTIONS
    assert site.answered(503) == "0.0"


def test_a_request_that_does_not_come_has_two_seconds(site: Site) -> None:
    with site.connect() as silent, site.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert site.get("/healthz")[0].status == 200  # both are admitted
        site.clock.advance(2.1)
        assert [read_all(silent), read_all(slow)] == [b"", b""]


def test_one_document_is_made_at_a_time_and_the_others_wait() -> None:
    view = StuckView()
    with serving(view) as site, ExitStack() as stack:
        asking = [stack.enter_context(site.connect()) for _ in range(served.DOCUMENTS)]
        for connection in asking:
            connection.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
        assert view.asked_for_status.acquire(timeout=DEADLINE)
        assert site.get("/healthz")[0].status == 200
        view.let_go.set()
        assert all(read_all(connection).startswith(b"HTTP/1.1 200 ") for connection in asking)
    assert view.most_at_once == 1


LARGE = b"GET /api/v1/events?limit=1000 HTTP/1.1\r\n\r\n"


@contextmanager
def serving_large() -> Iterator[Site]:
    """With a document that no socket takes as a whole."""
    with serving(SampleView(stored=[event(text="x" * 8000)] * 1000)) as site:
        yield site


def test_clients_that_do_not_read_keep_out_neither_probes_nor_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "STALL_SECONDS", DEADLINE)
    with serving_large() as site, ExitStack() as stack:
        heads = []
        for _ in range(20):
            connection = stack.enter_context(site.connect())
            connection.sendall(LARGE)
            heads.append(connection.recv(12))
        assert heads == [b"HTTP/1.1 200"] * served.DOCUMENTS + [b"HTTP/1.1 503"] * (20 - served.DOCUMENTS)
        assert [site.get(path)[0].status for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
        busy, body = site.get("/api/v1/status")
        assert (busy.status, busy.headers["Retry-After"], list(json.loads(body))) == (503, "1", ["error"])
        stack.close()
        wait_for(lambda: site.get("/api/v1/status")[0].status == 200, "a free place")


def test_a_client_that_stops_reading_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "STALL_SECONDS", 0.2)
    with serving_large() as site, site.connect() as stalled:
        assert len(site.raw(LARGE)) > 8_000_000
        stalled.sendall(LARGE)
        hung_up = select.poll()
        hung_up.register(stalled, 0)
        assert hung_up.poll(1000 * DEADLINE)
        with pytest.raises(ConnectionResetError):  # the kernel holds nothing for it either
            read_all(stalled)


def test_a_connection_that_is_turned_away_is_told_so_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MAX_CONNECTIONS", 1)
    view = StuckView()
    with serving(view) as site, site.connect() as stuck:
        stuck.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
        assert view.asked_for_status.acquire(timeout=DEADLINE)
        site.clock.advance(served.HEAD_SECONDS + 1)  # for the answer there is more time
        with site.connect() as one_more:
            head, _, body = read_all(one_more).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert list(json.loads(body)) == ["error"]
        view.let_go.set()
        assert read_all(stuck).startswith(b"HTTP/1.1 200 ")
        # An answered connection is read to its end a moment before its place is free again.
        wait_for(lambda: site.get("/healthz")[0].status == 200, "a free place")


def test_an_answer_that_takes_too_long_is_cut_and_what_waits_for_it_is_not() -> None:
    view = StuckView()
    with serving(view) as site, site.connect() as stuck, site.connect() as waiting, site.connect() as gone:
        stuck.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
        assert view.asked_for_status.acquire(timeout=DEADLINE)
        for connection in (waiting, gone):
            connection.sendall(b"GET /api/v1/launches HTTP/1.1\r\n\r\n")
        gone.shutdown(socket.SHUT_WR)
        site.clock.advance(served.HEAD_SECONDS / 2)
        assert site.get("/healthz")[0].status == 200
        site.clock.advance(served.CONNECTION_SECONDS)
        assert read_all(stuck) == b""
        view.let_go.set()
        assert read_all(waiting).startswith(b"HTTP/1.1 200 ")
        assert read_all(gone) == b""


def test_an_answered_connection_that_is_not_closed_gives_way(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "DRAIN_SECONDS", DEADLINE)
    with ExitStack() as stack:
        lingering = [stack.enter_context(site.connect()) for _ in range(served.MAX_CONNECTIONS)]
        for connection in lingering:
            connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 405"
        wait_for(lambda: site.get("/healthz")[0].status == 200, "a place")


def test_without_free_descriptors_it_waits_and_recovers(site: Site) -> None:
    complained = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda _: complained.set()  # type: ignore[method-assign] # the smallest of handlers
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    logging.getLogger(served.__name__).addHandler(handler)
    with socket.socket() as client:
        client.settimeout(DEADLINE)
        lowest_free = os.dup(client.fileno())
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
        try:
            client.connect(site.server.address)
            assert complained.wait(DEADLINE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            logging.getLogger(served.__name__).removeHandler(handler)
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert read_all(client).endswith(b"ok\n")


def test_a_port_in_use_is_named_with_what_to_do(site: Site) -> None:
    port = site.server.address[1]
    with pytest.raises(ConfigError) as caught:
        bind("127.0.0.1", port)
    message = str(caught.value)
    assert message.startswith(f"Cannot listen on 127.0.0.1:{port}: another program has the port.")
    assert "`listen` under [http]" in message


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Cannot listen on 192\.0\.2\.1:0: this machine has no address 192\.0\.2\.1\."
    ):
        bind("192.0.2.1")


def test_the_port_is_free_again_after_closing() -> None:
    with serving() as first:
        host, port = first.server.address
        assert first.get("/healthz")[0].status == 200
    bind(host, port).close()


def test_it_listens_on_the_configured_address_only() -> None:
    with serving() as site:
        assert site.server.address[0] == "127.0.0.1"
        assert site.server.url == f"http://127.0.0.1:{site.server.address[1]}/"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", site.server.address[1]), timeout=DEADLINE)


@pytest.mark.skipif(not socket.has_ipv6, reason="Python here has no IPv6")
def test_ipv6() -> None:
    try:
        server = bind("::1")
    except ConfigError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    assert server.url.startswith("http://[::1]:")
    server.close()


class StuckView(SampleView):
    """A view that does not answer until it is let go."""

    def __init__(self) -> None:
        super().__init__(status())
        self.asked_for_status = threading.Semaphore(0)
        self.let_go = threading.Event()
        self.most_at_once = 0
        self._asking: list[None] = []

    def status(self) -> DaemonStatus:
        self._asking.append(None)
        self.most_at_once = max(self.most_at_once, len(self._asking))
        self.asked_for_status.release()
        assert self.let_go.wait(DEADLINE)
        self._asking.pop()
        return self.shown


def test_closing_waits_for_no_idle_client_and_no_stuck_answer() -> None:
    view = StuckView()
    with serving(view) as site, site.connect() as idle, site.connect() as stuck:
        idle.sendall(b"GET /")
        stuck.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
        assert view.asked_for_status.acquire(timeout=DEADLINE)
        begun = time.monotonic()
        site.server.close()
        assert time.monotonic() - begun < DEADLINE / 2  # the answer would come at DEADLINE, the client never
        assert read_all(idle) == b""
        view.let_go.set()


def test_one_slow_answer_holds_up_no_other() -> None:
    view = StuckView()
    with serving(view) as site, site.connect() as slow:
        slow.sendall(b"GET /api/v1/status HTTP/1.1\r\n\r\n")
        assert view.asked_for_status.acquire(timeout=DEADLINE)
        assert site.get("/healthz")[0].status == 200
        view.let_go.set()
        assert read_all(slow).startswith(b"HTTP/1.1 200 ")


def test_many_at_once() -> None:
    with serving(SampleView(stored=[event()] * 50)) as site:
        codes: list[int] = []

        def fetch() -> None:
            codes.extend(site.get(path)[0].status for path in ("/metrics", "/", "/api/v1/events") * 5)

        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert codes == [200] * (4 * 15)
