"""The HTTP client, against servers on loopback that behave well or badly."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.standins.certificates import Authority, Certificates
from tests.standins.peer_server import http
from tests.standins.runtime_server import listening, refused
from tpuwatch import __version__
from tpuwatch.core import ConfigError, HttpClient, HttpError, HttpFault, HttpReply, SystemClock, Tls
from tpuwatch.core.clock import Clock, ManualClock

LIMIT = 1 << 20
OK = b"HTTP/1.1 200 OK\r\n"
WELL = http(b"{}")


class Server:
    """Answers each request with `parts`, then with `endless` for as long as the other side takes it."""

    def __init__(self, *parts: bytes, endless: bytes = b"", silent: bool = False) -> None:
        self.asked: list[bytes] = []
        self.arrived = threading.Event()
        self.sent = 0
        self._parts = parts
        self._endless = endless
        self._silent = silent

    def answer(self, connection: socket.socket) -> None:
        request = connection.recv(65536)
        if not request:
            return
        if b"Content-Length: 4" in request and not request.endswith(b"text"):  # what is sent in two parts
            request += connection.recv(65536)
        self.asked.append(request)
        self.arrived.set()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in self._parts:
            connection.sendall(part)
        if self._silent:
            connection.recv(1)  # until the other side leaves
        while self._endless:
            self.sent += connection.send(self._endless)

    @contextmanager
    def at(self, secure: ssl.SSLContext | None = None) -> Iterator[str]:
        """Its host:port."""

        def serve(connection: socket.socket) -> None:
            if secure is None:
                self.answer(connection)
            else:
                with secure.wrap_socket(connection, server_side=True) as secured:
                    self.answer(secured)

        with listening(serve) as port:
            yield f"127.0.0.1:{port}"


def ask(url: str, *, clock: Clock | None = None, client: HttpClient | None = None, **more: Any) -> HttpReply:
    given = {"seconds": 30.0, "max_bytes": LIMIT, **more}
    return (client or HttpClient(clock or SystemClock())).request(url, **given)


def failure(url: str, **more: Any) -> HttpError:
    with pytest.raises(HttpError) as caught:
        ask(url, **more)
    return caught.value


def answered(*parts: bytes, **more: Any) -> HttpReply:
    with Server(*parts).at() as address:
        return ask(f"http://{address}/", **more)


def failed(*parts: bytes, endless: bytes = b"", silent: bool = False, **more: Any) -> tuple[HttpFault, bool]:
    with Server(*parts, endless=endless, silent=silent).at() as address:
        error = failure(f"http://{address}/", **more)
    return error.fault, error.connected


# -- what is sent and read


def test_a_request_is_whole() -> None:
    server = Server(WELL)
    with server.at() as address:
        ask(f"http://{address}/a/b?c=d%20e#f", method="POST", headers={"X-One": "1"}, body=b"text")
    head, _, body = server.asked[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /a/b?c=d%20e HTTP/1.1"
    assert body == b"text"
    assert headers == {
        "Host": address,
        "Accept-Encoding": "identity",
        "Content-Length": "4",
        "User-Agent": f"tpuwatch/{__version__}",
        "Connection": "close",
        "X-One": "1",
    }


def test_a_reply_has_its_status_its_headers_and_its_body() -> None:
    reply = answered(b"HTTP/1.1 503 Busy\r\nETag: a\r\netag: b\r\nRetry-After: 17\r\nContent-Length: 3\r\n\r\n\xffab")
    assert (reply.status, reply.headers["etag"], reply.retry_after) == (503, "a", 17.0)
    assert (reply.body, reply.text) == (b"\xffab", "\N{REPLACEMENT CHARACTER}ab")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\nhello",  # it ends with the connection
        OK + b"Content-Length: 5\r\n\r\nhello and more",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
    ],
    ids=["until its end", "with a length", "in chunks", "after a wait"],
)
def test_a_body_is_read_however_it_is_sent(answer: bytes) -> None:
    assert answered(answer).body == b"hello"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_not_followed(status: int) -> None:
    other = Server(WELL)
    with other.at() as address:
        reply = answered(http(b"", f"{status} Elsewhere", Location=f"http://{address}/"))
    assert (reply.status, other.asked) == (status, [])


def test_of_an_answer_without_an_end_the_head_alone_is_read() -> None:
    with Server(OK + b"Date: then\r\n\r\n", endless=bytes(65536)).at() as address:
        reply = ask(f"http://{address}", head_only=True)
    assert (reply.status, reply.headers["date"], reply.body) == (200, "then", b"")


def test_json_is_a_document_or_an_error() -> None:
    assert HttpReply(200, {}, b'{"a": [1]}').json() == {"a": [1]}
    for body in (b"", b"<html>", b"\xff\xfe\x00", b"[" * 200_000):
        with pytest.raises(HttpError) as caught:
            HttpReply(200, {}, body).json()
        assert caught.value.fault is HttpFault.NOT_JSON


# -- time


class Ticking(ManualClock):
    """Each look at the clock takes a second."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


@pytest.mark.parametrize(
    ("parts", "endless"),
    [
        ((), b"H"),
        ((OK + b"X: ",), b"x"),
        ((OK + b"Content-Length: 99999\r\n\r\n",), b"x"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n",), b"1\r\nx\r\n"),
        ((), b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["status line", "header", "body", "chunks", "waits"],
)
def test_an_answer_that_drips_has_one_deadline(parts: tuple[bytes, ...], endless: bytes) -> None:
    # Each single read succeeds; only their sum, by the clock, is late.
    assert failed(*parts, endless=endless, clock=Ticking(), seconds=12.0) == (HttpFault.TIMEOUT, True)


def test_a_byte_now_and_then_does_not_outlast_the_deadline() -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        while not select.select([connection], [], [], 0.02)[0]:  # until the other side leaves
            connection.sendall(b"x")

    clock = SystemClock()
    began = clock.monotonic()
    with listening(drip) as port:
        assert failure(f"http://127.0.0.1:{port}", seconds=0.3).fault is HttpFault.TIMEOUT
    assert 0.3 <= clock.monotonic() - began < 20


def test_a_server_that_takes_a_request_and_says_nothing_is_given_up() -> None:
    assert failed(silent=True, seconds=0.1) == (HttpFault.TIMEOUT, True)


def test_a_request_that_is_not_taken_is_given_up() -> None:
    with listening() as port:  # nobody reads it
        error = failure(f"http://127.0.0.1:{port}", seconds=0.3, body=bytes(64 << 20), method="POST")
    assert (error.fault, error.connected) == (HttpFault.TIMEOUT, True)


def test_a_server_that_takes_no_connection_is_told_from_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(socket.socket):
        def connect(self, _address: object) -> None:
            raise TimeoutError

    monkeypatch.setattr(socket, "socket", Far)
    error = failure("http://127.0.0.1:1")
    assert (error.fault, error.connected) == (HttpFault.TIMEOUT, False)


# -- size


@pytest.mark.parametrize(
    ("parts", "endless"),
    [
        ((OK + b"\r\n",), bytes(65536)),
        ((OK + b"Content-Length: 999999999999\r\n\r\n",), bytes(65536)),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n",), b"1000\r\n" + bytes(4096) + b"\r\n"),
        ((), b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        ((http(bytes(LIMIT)),), b""),
    ],
    ids=["no length", "a long one", "chunks", "no status", "a little too much"],
)
def test_an_answer_without_an_end_is_cut_by_its_size(parts: tuple[bytes, ...], endless: bytes) -> None:
    server = Server(*parts, endless=endless)
    with server.at() as address:
        error = failure(f"http://{address}")
    assert (error.fault, error.detail) == (HttpFault.TOO_LARGE, "larger than 1 MiB")
    assert server.sent < 1 << 26


def test_an_answer_may_be_as_large_as_the_limit() -> None:
    answer = http(bytes(1000))
    assert len(answered(answer, max_bytes=len(answer)).body) == 1000
    assert failed(answer, max_bytes=len(answer) - 1) == (HttpFault.TOO_LARGE, True)


def test_a_length_that_lies_reserves_no_memory() -> None:
    assert failed(OK + b"Content-Length: 100000000000000\r\n\r\nabc") == (HttpFault.BROKEN, True)


# -- what is no answer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", HttpFault.NOT_HTTP),
        (b"\0\xff\0\xff\n" * 10, HttpFault.NOT_HTTP),
        (b"HTTP/1.1 abc\r\n\r\n", HttpFault.NOT_HTTP),
        (OK + b"A: b\r\n" * 500 + b"\r\n", HttpFault.NOT_HTTP),
        (OK + b"A: " + b"b" * 100_000 + b"\r\n\r\n", HttpFault.NOT_HTTP),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + bytes(99), HttpFault.NOT_HTTP),
        (b"", HttpFault.BROKEN),
        (OK + b"Content-Le", HttpFault.BROKEN),
        (OK + b"Content-Length: 0\r\n", HttpFault.BROKEN),
        (OK + b"Content-Length: 9\r\n\r\nhalf", HttpFault.BROKEN),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf", HttpFault.BROKEN),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", HttpFault.BROKEN),
    ],
)
def test_garbage_is_told_from_half_an_answer(answer: bytes, fault: HttpFault) -> None:
    assert failed(answer) == (fault, True)


def test_a_connection_that_is_reset_is_broken() -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with listening(reset) as port:
        error = failure(f"http://127.0.0.1:{port}")
    assert (error.fault, error.detail) == (HttpFault.BROKEN, "Connection reset by peer")


def test_where_nobody_listens_the_connection_is_refused() -> None:
    with refused() as port:
        error = failure(f"http://127.0.0.1:{port}/secret?token=word")
    assert (error.fault, error.connected) == (HttpFault.REFUSED, False)
    assert "secret" not in str(error)
    assert "word" not in str(error)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (OSError(113, "No route to host"), HttpFault.NO_ROUTE),
        (OSError(101, "Network is unreachable"), HttpFault.NETWORK),
        (OSError(99, "Cannot assign requested address"), HttpFault.NETWORK),
        (OSError(24, "Too many open files"), HttpFault.LOCAL),
    ],
)
def test_what_the_system_reports_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, error: OSError, fault: HttpFault
) -> None:
    class Failing(socket.socket):
        def connect(self, _address: object) -> None:
            raise error

    monkeypatch.setattr(socket, "socket", Failing)
    got = failure("http://10.0.0.2:9478")
    assert (got.fault, got.detail, got.connected) == (fault, error.strerror, False)


# -- names


def looking_up(monkeypatch: pytest.MonkeyPatch, found: Callable[[str, int], list[tuple[str, int]]]) -> list[str]:
    """Look names up with `found`; those that are looked up."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        host.encode("idna")  # as the real one does first
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in found(host, port)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def raising(error: OSError) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("code", "fault"), [(socket.EAI_NONAME, HttpFault.NO_NAME), (socket.EAI_AGAIN, HttpFault.LOOKUP)]
)
def test_names_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch, code: int, fault: HttpFault) -> None:
    looking_up(monkeypatch, raising(socket.gaierror(code, "as the test says")))
    error = failure("http://no-such-name.invalid")
    assert (error.fault, error.detail, error.connected) == (fault, "as the test says", False)
    assert failure(f"http://{'a' * 70}.invalid").fault is HttpFault.NO_NAME


def test_a_lookup_that_hangs_costs_the_deadline_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(host: str, port: int) -> list[tuple[str, int]]:
        if host == "hangs.invalid":
            release.wait(60)
        return [("127.0.0.1", port)]

    asked = looking_up(monkeypatch, hang)
    client = HttpClient(SystemClock())
    for _ in range(3):
        error = failure("http://hangs.invalid", client=client, seconds=0.05)
        assert (error.fault, error.detail) == (HttpFault.LOOKUP, "no answer in time")
    with Server(WELL).at() as address:  # another name is not kept waiting
        assert ask(f"http://other.invalid:{address.rpartition(':')[2]}", client=client).status == 200
    assert asked == ["hangs.invalid", "other.invalid"]
    release.set()


def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(WELL).at() as address, refused() as nobody:
        good = int(address.rpartition(":")[2])
        looking_up(monkeypatch, lambda *_: [("127.0.0.1", nobody), ("127.0.0.1", good)])
        assert ask("http://two.invalid").status == 200
        looking_up(monkeypatch, lambda *_: [("127.0.0.1", nobody)] * 2)
        assert failure("http://two.invalid").fault is HttpFault.REFUSED


def test_an_address_that_hangs_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []

    class Far(socket.socket):
        def connect(self, _address: object) -> None:
            given.append(self.gettimeout())
            raise TimeoutError

    monkeypatch.setattr(socket, "socket", Far)
    looking_up(monkeypatch, lambda *_: [("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)])
    assert failure("http://three.invalid", clock=ManualClock(), seconds=6.0).fault is HttpFault.TIMEOUT
    assert given == [2.0, 3.0, 6.0]


# -- secrets


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://127.0.0.1/secret", {}),
        ("127.0.0.1/secret", {}),
        ("http:///secret", {}),
        ("http://127.0.0.1:port/secret", {}),
        ("http://[::1/secret", {}),
        ("http://127.0.0.1:{port}/a secret", {}),
        ("http://127.0.0.1:{port}/sécret", {}),
        ("http://127.0.0.1:{port}/", {"Authorization": "Bearer secret\r\nX: y"}),
        ("http://127.0.0.1:{port}/", {"Authorization": "Bearer secret \N{SNOWMAN}"}),
    ],
)
def test_what_cannot_be_asked_is_not_repeated(url: str, headers: dict[str, str]) -> None:
    server = Server(WELL)
    with server.at() as address:
        error = failure(url.format(port=address.rpartition(":")[2]), headers=headers)
    assert (error.fault, server.asked) == (HttpFault.ADDRESS, [])
    assert "cret" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


# -- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def secure(server: Server, files: Certificates) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with server.at(context) as address:
        yield f"https://{address}/"


def test_a_server_of_the_authority_is_believed(authority: Authority) -> None:
    files = authority.issue("127.0.0.1", "tpu.example.org", to="good")
    server = Server(WELL)
    with secure(server, files) as url:
        assert ask(url, tls=Tls.trusting(str(authority.file))).json() == {}
        assert ask(url, tls=Tls.trusting(str(authority.file), "tpu.example.org")).status == 200
    assert f"\r\nHost: {url.removeprefix('https://').rstrip('/')}\r\n".encode() in server.asked[0]


def test_nothing_is_sent_to_a_server_that_is_not_verified(authority: Authority, tmp_path: Path) -> None:
    good = authority.issue("127.0.0.1", to="ours")
    late = authority.issue("127.0.0.1", to="late", valid=dt.timedelta(days=-1))
    other = Authority(tmp_path).issue("127.0.0.1")
    trusted = Tls.trusting(str(authority.file))
    cases = [
        (other, trusted),
        (late, trusted),
        (good, Tls.trusting(str(authority.file), "tpu.example.org")),  # the name of another
        (good, None),  # the authorities of this machine
        (good, Tls.pinned(str(other.certificate))),
    ]
    for files, tls in cases:
        server = Server(WELL)
        with secure(server, files) as url:
            error = failure(url, tls=tls, headers={"Authorization": "Bearer secret"})
        assert (error.fault, bool(error.detail), server.asked) == (HttpFault.CERTIFICATE, True, [])


def test_a_pinned_certificate_counts_whatever_it_says(authority: Authority) -> None:
    late = authority.issue("elsewhere.example.org", to="pinned", valid=dt.timedelta(days=-1))
    with secure(Server(WELL), late) as url:
        assert ask(url, tls=Tls.pinned(str(late.certificate))).status == 200


def test_files_without_certificates_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    for make in (Tls.trusting, Tls.pinned):
        with pytest.raises(ConfigError, match=r"empty\.pem .*no certificate"):
            make(str(empty))
        with pytest.raises(ConfigError, match="nowhere cannot be read: No such file"):
            make(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("text", "fault"), [(http(b"plain"), HttpFault.TLS), (b"", HttpFault.BROKEN), (None, HttpFault.TIMEOUT)]
)
def test_what_does_not_speak_tls(text: bytes | None, fault: HttpFault) -> None:
    with Server(text or b"", silent=text is None).at() as address:
        assert failure(f"https://{address}", seconds=30.0 if text is not None else 0.1).fault is fault


def test_an_answer_over_tls_has_the_same_limits(authority: Authority) -> None:
    files = authority.issue("127.0.0.1", to="limits")
    trusted = Tls.trusting(str(authority.file))
    with secure(Server(OK + b"\r\n", endless=bytes(65536)), files) as url:
        assert failure(url, tls=trusted).fault is HttpFault.TOO_LARGE
    with secure(Server(OK + b"\r\n", endless=b"x"), files) as url:
        assert failure(url, tls=trusted, clock=Ticking(), seconds=12.0).fault is HttpFault.TIMEOUT
    with secure(Server(OK + b"Content-Length: 9\r\n\r\nhalf"), files) as url:
        assert failure(url, tls=trusted).fault is HttpFault.BROKEN


# -- proxies


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def test_a_proxy_is_used_where_that_is_wanted(environ: pytest.MonkeyPatch) -> None:
    proxy, server = Server(http(b"the proxy's")), Server(http(b"the server's"))
    with proxy.at() as between, server.at() as address:
        environ.setenv("http_proxy", f"http://user:pass%20word@{between}")
        assert ask(f"http://{address}/x").text == "the server's"
        assert ask("http://10.0.0.1:8080/x?y", proxies=True).text == "the proxy's"
        environ.setenv("no_proxy", "127.0.0.1")
        assert ask(f"http://{address}/x", proxies=True).text == "the server's"
    (asked,) = proxy.asked
    assert asked.startswith(b"GET http://10.0.0.1:8080/x?y HTTP/1.1\r\nHost: 10.0.0.1:8080\r\n")
    password = base64.b64encode(b"user:pass word")
    assert b"\r\nProxy-Authorization: Basic " + password + b"\r\n" in asked
    assert b"Proxy-Authorization" not in b"".join(server.asked)


def test_through_a_proxy_tls_goes_to_the_server_alone(environ: pytest.MonkeyPatch, authority: Authority) -> None:
    files = authority.issue("127.0.0.1", to="tunnel")
    server = Server(http(b"the server's"))
    asked: list[bytes] = []

    def tunnel(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port), 30) as onward:
            ends = {connection: onward, onward: connection}
            while ready := select.select(list(ends), [], [], 30)[0]:
                for end in ready:
                    if not (data := end.recv(65536)):
                        return
                    ends[end].sendall(data)

    with secure(server, files) as url, listening(tunnel) as between:
        port = int(url.rstrip("/").rpartition(":")[2])
        environ.setenv("https_proxy", f"127.0.0.1:{between}")
        trusted = Tls.trusting(str(authority.file))
        headers = {"Authorization": "Bearer secret"}
        assert ask(f"{url}path", tls=trusted, proxies=True, headers=headers).text == "the server's"
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert b"secret" not in b"".join(asked)


def test_a_proxy_that_refuses_is_named(environ: pytest.MonkeyPatch) -> None:
    with Server(http(b"", "407 No")).at() as between:
        environ.setenv("https_proxy", f"http://{between}")
        error = failure("https://10.0.0.1/", proxies=True)
    assert (error.fault, error.detail) == (HttpFault.LOCAL, "the proxy answers with status 407")


@pytest.mark.parametrize("scheme", ["https", "socks5"])
def test_a_proxy_that_is_not_spoken_to_in_http_is_named_and_gets_no_password(
    environ: pytest.MonkeyPatch, scheme: str
) -> None:
    proxy = Server(http(b"", "200 OK"))
    with proxy.at() as between:
        for asked in ("http", "https"):
            environ.setenv(f"{asked}_proxy", f"{scheme}://user:password@{between}")
            error = failure(f"{asked}://10.0.0.1/", proxies=True)
            named = f"{asked}_proxy has {scheme}://, and tpuwatch uses proxies of http:// alone"
            assert (error.fault, error.detail) == (HttpFault.LOCAL, named)
    assert proxy.asked == []


# -- close


@pytest.mark.parametrize("tls", [False, True])
def test_close_ends_a_request_that_waits_and_refuses_others(authority: Authority, *, tls: bool) -> None:
    files = authority.issue("127.0.0.1", to="closing")
    server, client = Server(silent=True), HttpClient(SystemClock())
    more = {"client": client, "seconds": 600.0, "tls": Tls.trusting(str(authority.file))}
    caught: list[HttpError] = []
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(secure(server, files)) if tls else f"http://{stack.enter_context(server.at())}"
        thread = threading.Thread(target=lambda: caught.append(failure(url, **more)))
        thread.start()
        assert server.arrived.wait(60)
        client.close()
        thread.join(60)  # a tenth of what it would wait for
        assert not thread.is_alive()
        assert [error.fault for error in caught] == [HttpFault.BROKEN]
        error = failure(url, **more)
    assert (error.fault, error.detail, len(server.asked)) == (HttpFault.LOCAL, "tpuwatch is closing", 1)


def test_close_ends_a_handshake(authority: Authority) -> None:
    server, client = Server(silent=True), HttpClient(SystemClock())
    caught: list[HttpError] = []
    with server.at() as address:
        url, tls = f"https://{address}", Tls.trusting(str(authority.file))
        thread = threading.Thread(target=lambda: caught.append(failure(url, client=client, seconds=600.0, tls=tls)))
        thread.start()
        assert server.arrived.wait(60)
        client.close()
        thread.join(60)
        assert not thread.is_alive()
    assert [error.fault for error in caught] == [HttpFault.BROKEN]


def test_close_before_an_answer_is_read_leaves_nothing_to_take_for_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = authority.issue("127.0.0.1", to="late-close")
    server, client = Server(silent=True), HttpClient(SystemClock())
    read = ssl.SSLSocket.recv_into

    def close_and_read(connection: ssl.SSLSocket, *args: Any) -> int:
        assert server.arrived.wait(60)  # TLS has sent what it sends after the handshake
        client.close()
        return read(connection, *args)

    with secure(server, files) as url:
        monkeypatch.setattr(ssl.SSLSocket, "recv_into", close_and_read)
        error = failure(url, client=client, tls=Tls.trusting(str(authority.file)), seconds=60.0)
        monkeypatch.undo()
    assert error.fault is HttpFault.BROKEN


def test_close_while_it_connects_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = Server(WELL), HttpClient(SystemClock())

    class Closing(socket.socket):
        def connect(self, address: Any) -> None:
            client.close()
            super().connect(address)

    with server.at() as address:
        monkeypatch.setattr(socket, "socket", Closing)
        assert failure(f"http://{address}", client=client).detail == "tpuwatch is closing"
        monkeypatch.undo()
    assert server.asked == []
