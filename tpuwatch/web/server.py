"""The read-only HTTP server: metrics, health, the JSON documents, the status page.

It answers GET and HEAD, one request per connection. The number of connections, the size of a request and the time that
a connection may take, its TLS handshake included, are bounded, and connections without a request give way, so that no
client can occupy the server. Documents have fewer places than there are connections, and are made one at a time:
however many clients ask for them and do not read, probes and scrapes are answered, and memory is bounded.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import logging
import socket
import socketserver
import ssl
import struct
import threading
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigError, host_port
from tpuwatch.web.access import Access
from tpuwatch.web.known_hosts import KnownHosts
from tpuwatch.web.routes import Response, Routes, error_response

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import View

MAX_CONNECTIONS: Final = 16
MAX_HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 2.0  # from accept to the end of the request's head, with the TLS handshake
CONNECTION_SECONDS: Final = 15.0  # from accept to close, without the time in which a document waits for its turn
STALL_SECONDS: Final = 2.0  # for the client to take the next CHUNK_BYTES of its response
CHUNK_BYTES: Final = 64 * 1024
SEND_BUFFER_BYTES: Final = 128 * 1024  # of a connection: what is in it the kernel holds after the connection is closed
DOCUMENTS: Final = 8  # requests for documents, waiting or under way,
SCRAPES: Final = 4  # and those for /metrics; what is left of the connections is for probes, and for requests to come
POLL_SECONDS: Final = 0.5  # how soon an expired connection or a close is noticed
DRAIN_SECONDS: Final = 0.5  # how long a close waits for responses, and an unread request body may take
DRAIN_BYTES: Final = 256 * 1024
GZIP_FROM_BYTES: Final = 1024
# Pages hold text from logs, which others write: they may not load, run, frame or store anything.
SAFETY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_HANDSHAKE: Final = b"\x16"  # the first byte of TLS

_log = logging.getLogger(__name__)


class HttpServer:
    """Serves a view and the metrics on one address, from threads of its own."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        view: View,
        metrics: Metrics,
        clock: Clock,
        hosts: Collection[str] = (),
        access: Access | None = None,
    ) -> None:
        """Binds the address at once; requests are answered after `start`. Port 0 takes any free one.

        `hosts`: names under which it is asked for besides those that it knows itself. Without `access` everybody may
        ask, without TLS.
        Raises ConfigError, with what to do, when the address cannot be used.
        """
        self._host = host
        self._server = _bind(host, port, Routes(view, metrics), metrics, clock)
        self._server.access = access or Access()
        self._thread: threading.Thread | None = None
        self.set_hosts(hosts)

    @property
    def address(self) -> tuple[str, int]:
        """The numeric host and the port that are listened on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @property
    def url(self) -> str:
        host, port = self.address
        scheme = self._server.access.scheme
        return f"{scheme}://{host_port(host, port)}/"

    def set_hosts(self, hosts: Collection[str]) -> None:
        """From now on answer to these names, besides those that the server knows itself."""
        machine = socket.gethostname()
        own = (self._host, machine, machine.partition(".")[0])
        self._server.hosts = KnownHosts(self.address[0], (*own, *hosts))

    @property
    def access(self) -> Access:
        """Who may ask. Another one holds for connections from then on."""
        return self._server.access

    @access.setter
    def access(self, access: Access) -> None:
        self._server.access = access

    def start(self) -> None:
        """Start to answer requests."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, wait briefly for responses under way, then close all connections; returns within a second."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join(POLL_SECONDS)
            self._thread = None
        self._server.server_close()
        self._server.connections.close(DRAIN_SECONDS)


def _bind(host: str, port: int, routes: Routes, metrics: Metrics, clock: Clock) -> _Server:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Server(family, address, routes, metrics, clock)
    except OSError as error:
        raise ConfigError(f"Cannot listen on {host}:{port}: {_advice(error, host, port)}") from error


def _advice(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"another program has the port. `ss -ltnp sport = :{port}` names it; stop it, or give tpuwatch another port"
            " by `listen` under [http]."
        )
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privilege. Set `listen` under [http] to a higher port, such as 127.0.0.1:9478."
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return (
            f"this machine has no address {host}. Set `listen` under [http] to one that it has, such as 127.0.0.1:9478."
        )
    return f"{error.strerror}. Set `listen` under [http] to another address."


class _Connections:
    """The open connections: bounded in number, each with the time at which it must be over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[socket.socket, float] = {}
        self._idle: dict[socket.socket, None] = {}  # those of them without a request, the oldest first
        self._cut: set[socket.socket] = set()  # those that gave way and whose threads have not noticed yet
        self._changed = threading.Condition()

    def add(self, connection: socket.socket) -> bool:
        """Admit a connection, if need be in place of the oldest without a request; false when all have one."""
        with self._changed:
            if len(self._deadlines) >= MAX_CONNECTIONS and not self._give_way():
                return False
            self._deadlines[connection] = self._clock.monotonic() + HEAD_SECONDS
            self._idle[connection] = None
            return True

    def begin(self, connection: socket.socket) -> bool:
        """The request of a connection is there: it keeps its place until it is answered. False if it is cut already."""
        with self._changed:
            if connection not in self._idle:
                return False
            del self._idle[connection]
            self._deadlines[connection] += CONNECTION_SECONDS - HEAD_SECONDS
            return True

    def give(self, connection: socket.socket, seconds: float) -> None:
        """From now on a connection has this time."""
        with self._changed:
            if connection in self._deadlines:
                self._deadlines[connection] = self._clock.monotonic() + seconds

    def end(self, connection: socket.socket) -> None:
        """The request of a connection is answered, and the connection gives way until it is closed."""
        with self._changed:
            if connection in self._deadlines:
                self._idle[connection] = None

    def remove(self, connection: socket.socket) -> None:
        """A connection is about to be closed; from here on nobody else touches it."""
        with self._changed:
            self._deadlines.pop(connection, None)
            self._idle.pop(connection, None)
            self._cut.discard(connection)
            self._changed.notify_all()

    def expire(self) -> None:
        """Cut the connections that are over their time; the thread that serves one reads an end of file."""
        self._cut_until(self._clock.monotonic())

    def close(self, seconds: float) -> None:
        """Wait until all connections are over, for at most `seconds`, then cut the rest."""
        with self._changed:
            self._changed.wait_for(lambda: not self._deadlines, seconds)
        self._cut_until(float("inf"))

    def _give_way(self) -> bool:
        """Cut the oldest connection without a request, if there is one and the threads of others are not too many."""
        if not self._idle or len(self._cut) >= MAX_CONNECTIONS:
            return False
        oldest = next(iter(self._idle))
        del self._idle[oldest], self._deadlines[oldest]
        self._cut.add(oldest)
        _shut(oldest, socket.SHUT_RDWR)
        return True

    def _cut_until(self, now: float) -> None:
        with self._changed:
            for connection, deadline in self._deadlines.items():
                if deadline <= now:
                    _shut(connection, socket.SHUT_RDWR)


class _Places:
    """Requests of a kind: so many are admitted, one response is made at a time, and each keeps its place until sent."""

    def __init__(self, requests: int) -> None:
        self._requests = threading.Semaphore(requests)
        self.making = threading.Lock()

    @contextlib.contextmanager
    def admit(self) -> Iterator[bool]:
        """A place until the response is sent; false where none is free."""
        admitted = self._requests.acquire(blocking=False)
        try:
            yield admitted
        finally:
            if admitted:
                self._requests.release()


class _Server(socketserver.TCPServer):
    """One thread per admitted connection. Not `HTTPServer`: that one asks the resolver for its own name at first."""

    allow_reuse_address = True
    allow_reuse_port = False  # a second tpuwatch on the same port must fail, not share it
    request_queue_size = 64
    hosts: KnownHosts
    access: Access

    def __init__(self, family: int, address: Any, routes: Routes, metrics: Metrics, clock: Clock) -> None:
        self.address_family = family
        self.routes = routes
        self.metrics = metrics
        self.connections = _Connections(clock)
        self.documents, self.scrapes = _Places(DOCUMENTS), _Places(SCRAPES)
        self._pause = threading.Event()
        super().__init__(address, _Handler)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # its connections inherit it

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection in a thread, or turn it away."""
        if self.connections.add(request):
            threading.Thread(
                target=self._serve, args=(request, client_address), name="http-request", daemon=True
            ).start()
            return
        self.metrics.daemon.count_http_request(503)
        try:
            request.settimeout(0)
            if not isinstance(request, ssl.SSLSocket):  # there is no time for a handshake
                request.send(_plainly(error_response(503)))
        except OSError as error:  # the client went away
            _log.debug("HTTP connection ended early: %s", error)
        self.shutdown_request(request)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; without a free file descriptor wait a little, for the poll would come back at once."""
        try:
            connection, address = super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                _log.warning("Cannot accept an HTTP connection: %s", error.strerror)
                self._pause.wait(POLL_SECONDS)
            raise
        try:
            return self.access.wrap(connection), address
        except OSError:  # the client went away
            connection.close()
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 # the base class calls it so
        """A connection could not be served at all; the caller closes it."""
        self.connections.remove(request)
        _log.exception("Failed to serve an HTTP connection")

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:  # the client went away, or was too slow
            _log.debug("HTTP connection ended early: %s", error)
            _discard_unsent(request)
        except Exception:  # noqa: BLE001 # one connection's failure is logged and stays its own
            _log.exception("HTTP connection failed")
        finally:
            _say_goodbye(request)
            self.connections.remove(request)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Called between polls by serve_forever."""
        self.connections.expire()


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = CONNECTION_SECONDS  # of each read; the connection as a whole has the same
    disable_nagle_algorithm = True  # the body must not wait until the head is acknowledged
    requestline = command = ""  # until the request is parsed

    def handle(self) -> None:
        """Read the request's head and respond; the connection is closed afterwards."""
        if isinstance(self.connection, ssl.SSLSocket) and not self._shake_hands(self.connection):
            return
        try:
            self.rfile = io.BytesIO(_read_head(self.connection))
        except _TooLargeError:
            self.send_error(431)
            return
        if not self.server.connections.begin(self.connection):
            return
        self.raw_requestline = self.rfile.readline()
        if not self.parse_request():  # it has called send_error
            return
        if self.command not in ("GET", "HEAD"):
            self.send_error(405)
            return
        certificate = self.server.access.certificate
        names = certificate.names if certificate is not None else ()
        if not self.server.hosts.allow(self.headers.get_all("Host", ()), self.path.partition("?")[0], names):
            self._send(error_response(421))
            return
        if not self.server.access.allows(self.headers.get_all("Authorization", ())):
            self._send(self.server.routes.probe(self.path) or error_response(401))
        elif self.server.routes.is_probe(self.path):
            self._send(self._make())
        else:
            self._send_in_turn()

    def _send_in_turn(self) -> None:
        is_scrape = self.path.partition("?")[0] == "/metrics"
        places = self.server.scrapes if is_scrape else self.server.documents
        with places.admit() as admitted:
            if not admitted:
                self._send(error_response(503))
                return
            self.server.connections.give(self.connection, float("inf"))  # others' responses take none of its time
            with places.making:
                self.server.connections.give(self.connection, CONNECTION_SECONDS)
                if _has_left(self.connection):
                    return
                response = self._make()
            self._send(response)

    def _make(self) -> Response:
        """The response as it is sent: what is compressed is not kept besides."""
        response = self.server.routes.respond(self.path, accept=self.headers.get("Accept", ""))
        if len(response.body) < GZIP_FROM_BYTES or not self._accepts_gzip():
            return response
        headers = {**response.headers, "Content-Encoding": "gzip"}
        return replace(response, body=gzip.compress(response.body, compresslevel=1, mtime=0), headers=headers)

    def _shake_hands(self, connection: ssl.SSLSocket) -> bool:
        """Whether the client speaks TLS. One that speaks HTTP gets a reply in HTTP. Raises OSError."""
        first = socket.socket.recv(connection, 1, socket.MSG_PEEK)  # of the connection below
        if first and first != _HANDSHAKE:
            self._tell_plainly(connection)
            return False
        connection.do_handshake()
        return True

    def _tell_plainly(self, connection: ssl.SSLSocket) -> None:
        """Nothing else is ever sent without TLS where there is a certificate."""
        response = error_response(400, "Here TLS is spoken: ask by https://.")
        self.server.metrics.daemon.count_http_request(response.code)
        socket.socket.sendall(connection, _plainly(response))
        self.server.connections.end(self.connection)
        _drain(connection, socket.socket.recv)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 # the base class calls it so
        """Respond with an error as JSON, then read on: closing with unread bytes would discard the response."""
        self._send(error_response(code))
        self.server.connections.end(self.connection)
        _drain(self.connection)

    def _send(self, response: Response) -> None:
        self.server.metrics.daemon.count_http_request(response.code)
        self.request_version = "HTTP/1.0"  # for 0.9 the base class would leave out the response headers
        self.connection.settimeout(STALL_SECONDS)
        self.send_response(response.code)
        for name, value in {**SAFETY_HEADERS, **response.headers, "Content-Type": response.content_type}.items():
            self.send_header(name, value)
        self.send_header("Vary", "Accept, Accept-Encoding")
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            body = memoryview(response.body)
            for start in range(0, len(body), CHUNK_BYTES):
                self.wfile.write(body[start : start + CHUNK_BYTES])

    def _accepts_gzip(self) -> bool:
        offers = self.headers.get("Accept-Encoding", "").lower().split(",")
        return any(_is_wanted(offer, "gzip") for offer in offers)

    def version_string(self) -> str:
        return "tpuwatch"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base class names it so
        """Requests are counted in the metrics; each one is logged at debug level only."""
        _log.debug("HTTP: %r", format % args)


class _TooLargeError(Exception):
    """A request's head goes on beyond the limit."""


def _read_head(connection: socket.socket) -> bytes:
    """The request up to its empty line; empty when the client ends before that. Raises _TooLargeError."""
    head = bytearray()
    while len(head) <= MAX_HEAD_BYTES:
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        start = max(0, len(head) - 3)  # the empty line may straddle two chunks
        head += chunk
        for end in (b"\r\n\r\n", b"\n\n"):
            found = head.find(end, start)
            if found >= 0:
                return bytes(head[: found + len(end)])
    raise _TooLargeError


def _plainly(response: Response) -> bytes:
    """A response as it is sent without a request that could be read."""
    head = (
        f"HTTP/1.1 {response.code} {HTTPStatus(response.code).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        *(f"{name}: {value}" for name, value in response.headers.items()),
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + response.body


def _is_wanted(offer: str, coding: str) -> bool:
    """Whether one part of an Accept-Encoding header names the coding, and not with the weight 0."""
    name, _, weight = offer.partition(";")
    return name.strip() == coding and weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")


def _drain(
    connection: socket.socket, receive: Callable[[socket.socket, int], bytes] = lambda one, count: one.recv(count)
) -> None:
    """Read what the client still sends, within bounds: closing a socket with unread bytes discards what was sent."""
    _shut(connection, socket.SHUT_WR)
    connection.settimeout(DRAIN_SECONDS)
    for _ in range(DRAIN_BYTES // 4096):
        if not receive(connection, 4096):
            return


def _has_left(connection: socket.socket) -> bool:
    """Whether the client has closed its side. The connection does not block afterwards, until it gets a timeout."""
    connection.settimeout(0)
    try:
        return socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def _discard_unsent(connection: socket.socket) -> None:
    """Have the kernel drop what the client has not taken when the connection is closed, instead of waiting for it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def _say_goodbye(connection: socket.socket) -> None:
    """End TLS as it should be, so that the client knows that nothing was cut off; its own end is not waited for."""
    if isinstance(connection, ssl.SSLSocket):
        with contextlib.suppress(OSError, ValueError):
            connection.settimeout(0)
            connection.unwrap()


def _shut(connection: socket.socket, how: int) -> None:
    try:
        socket.socket.shutdown(connection, how)  # below TLS, whose own would make it a plain one for its thread
    except OSError as error:  # it is gone already
        _log.debug("HTTP connection was closed: %s", error)
