"""The HTTP client of all of tpuwatch: one deadline for the whole of a request, and a limit on the size of its answer.

The deadline includes name lookup and the handshake of TLS, and holds against a server that sends a byte now and then.
Redirects are not followed. An error has no part of the address but its host, and nothing of what was sent.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import json
import socket
import ssl
import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from tpuwatch import __version__
from tpuwatch.core.backoff import parse_retry_after
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.core.lookup import Lookups
from tpuwatch.core.proxy import Proxy, proxy_for
from tpuwatch.core.tls import Tls
from tpuwatch.core.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.core.clock import Clock

_PIECE_BYTES: Final = 1 << 16
_PORTS: Final = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_HEADERS: Final = {"User-Agent": f"tpuwatch/{__version__}", "Connection": "close"}
_NO_SUCH_NAME: Final = tuple(getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA") if hasattr(socket, name))
_CUT: Final = "the answer was cut off"
_NO_ANSWER: Final = "it was closed without an answer"

S = TypeVar("S", bound=socket.socket)


class HttpFault(Enum):
    """Why there is no answer. The value says it."""

    ADDRESS = "the address cannot be asked"
    NO_NAME = "the name of the host is unknown"
    LOOKUP = "the name of the host could not be looked up"
    NETWORK = "this machine has no route to it"
    NO_ROUTE = "the host is unreachable"
    REFUSED = "the connection was refused"
    LOCAL = "no connection could be made"
    CERTIFICATE = "the certificate is not accepted"
    TLS = "it does not speak TLS as it should"
    TIMEOUT = "no answer in time"
    BROKEN = "the connection broke"
    TOO_LARGE = "the answer is too large"
    NOT_HTTP = "the answer is not HTTP"
    NOT_JSON = "the answer is not JSON"


_ERRNO: Final = {
    errno.ECONNREFUSED: HttpFault.REFUSED,
    errno.ECONNRESET: HttpFault.BROKEN,
    errno.EPIPE: HttpFault.BROKEN,
    errno.EHOSTUNREACH: HttpFault.NO_ROUTE,
    errno.EHOSTDOWN: HttpFault.NO_ROUTE,
    errno.ENETUNREACH: HttpFault.NETWORK,
    errno.EADDRNOTAVAIL: HttpFault.NETWORK,
}


class HttpError(TpuwatchError):
    """There is no answer: `fault` is why, `detail` is the reason of the system or of the library."""

    def __init__(self, fault: HttpFault, detail: str, where: str = "", *, connected: bool = False) -> None:
        super().__init__(f"{where}{': ' if where else ''}{fault.value} ({detail})")
        self.fault = fault
        self.detail = detail
        self.connected = connected  # the server took the connection


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer of any status."""

    status: int
    headers: Mapping[str, str]  # by name in lower case
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as UTF-8, with what is none replaced."""
        return self.body.decode("utf-8", "replace")

    @property
    def retry_after(self) -> float | None:
        """Seconds by the header Retry-After; None without one."""
        return parse_retry_after(self.headers.get("retry-after"))

    def json(self) -> Any:
        """The document that the body holds. Raises HttpError."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise HttpError(HttpFault.NOT_JSON, type(error).__name__, connected=True) from error


class HttpClient:
    """Makes requests, each with a connection of its own, which `close` ends. Thread-safe. Times in seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lookups = Lookups()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    def request(
        self,
        url: str,
        *,
        seconds: float,
        max_bytes: int,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        tls: Tls | None = None,
        head_only: bool = False,
        proxies: bool = False,
    ) -> HttpReply:
        """The answer, within `seconds` and of `max_bytes` with its head. Raises HttpError.

        `tls` says who is believed at an address with "https": without, the authorities of this machine. `head_only`
        leaves the body unread. `proxies` uses the proxy that the environment names.
        """
        deadline = self._clock.monotonic() + seconds
        target = _Target.of(url, proxies=proxies)
        first, sent = target.proxy or target, {**_HEADERS, **(headers or {})}
        with contextlib.ExitStack() as stack:
            with _explained(target.where, seconds, connected=False):
                connection = stack.enter_context(self._connected(first.host, first.port, deadline))
            with _explained(target.where, seconds, connected=True):
                if target.proxy is not None and target.secure:
                    _open_tunnel(_Channel(connection, deadline, self._clock, max_bytes), target, target.proxy)
                elif target.proxy is not None:
                    sent |= target.proxy.headers
                if target.secure:
                    secured = self._secured(connection, tls or Tls.trusting(), target.host, deadline)
                    connection = stack.enter_context(secured)
                channel = _Channel(connection, deadline, self._clock, max_bytes)
                return _exchange(channel, target, method, sent, body, head_only=head_only)

    def close(self) -> None:
        """End all requests, and refuse new ones."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):  # already closed
                    # Of the plain socket: that of TLS would take the encryption away from a thread about to read.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _connected(self, host: str, port: int, deadline: float) -> Iterator[socket.socket]:
        last: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "no address")
        addresses = self._lookups.addresses(host, port, _left(deadline, self._clock))
        for others, (family, address) in zip(reversed(range(len(addresses))), addresses, strict=True):
            with self._endable(socket.socket(family, socket.SOCK_STREAM)) as connection:
                try:
                    connection.settimeout(_left(deadline, self._clock) / (1 + others))  # none takes the others' time
                    connection.connect(address)
                except OSError as error:
                    last = error
                    continue
                with self._lock:
                    self._check_open()  # `close` cannot end it before it is connected
                yield connection
                return
        raise last

    @contextlib.contextmanager
    def _secured(self, plain: socket.socket, tls: Tls, host: str, deadline: float) -> Iterator[socket.socket]:
        with self._endable(tls.wrap(plain, host)) as connection:
            connection.settimeout(_left(deadline, self._clock))
            tls.handshake(connection)
            yield connection

    @contextlib.contextmanager
    def _endable(self, connection: S) -> Iterator[S]:
        """The connection, which is closed at the end, and shut down by `close` until then."""
        with connection:
            with self._lock:
                self._check_open()
                self._open.add(connection)
            try:
                yield connection
            finally:
                with self._lock:
                    self._open.discard(connection)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, "tpuwatch is closing")


def host_port(host: str, port: int) -> str:
    """A host and a port as an address has them: `10.0.0.1:80`, `[fd00::7]:80`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class _Target:
    """What is asked, and over which proxy."""

    host: str
    port: int
    path: str  # with the query; the whole address where a proxy takes it
    secure: bool
    proxy: Proxy | None

    @classmethod
    def of(cls, url: str, *, proxies: bool) -> _Target:
        """Raises HttpError."""
        try:
            parts = urlsplit(url)
            secure, host, port = parts.scheme == "https", parts.hostname or "", parts.port or _PORTS[parts.scheme]
            proxy = proxy_for(parts.scheme, f"{host}:{port}") if proxies else None
        except (ValueError, KeyError) as error:
            raise HttpError(HttpFault.ADDRESS, type(error).__name__) from None  # whose text quotes the address
        if not host:
            raise HttpError(HttpFault.ADDRESS, "it has no host")
        if proxy is not None and proxy.scheme != "http":  # its password would go out without TLS
            what = f"{parts.scheme}_proxy has {proxy.scheme}://, and tpuwatch uses proxies of http:// alone"
            raise HttpError(HttpFault.LOCAL, what, host)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if proxy is not None and not secure:
            path = f"{parts.scheme}://{parts.netloc}{path}"
        return cls(host, port, path, secure, proxy)

    @property
    def where(self) -> str:
        return host_port(self.host, self.port)


class _Channel(io.RawIOBase):
    """A socket for http.client whose reads and writes share one deadline, and whose reads share one size limit."""

    def __init__(self, connection: socket.socket, deadline: float, clock: Clock, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._clock = clock
        self._limit = self._room = max_bytes
        self.ended = False  # the server sends no more

    def sendall(self, data: Any) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            self._connection.settimeout(_left(self._deadline, self._clock))
            rest = rest[self._connection.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """Closed by the HttpClient: http.client closes its socket before it has read the reply."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline, self._clock))
        got = self._connection.recv_into(buffer)
        self._room -= got
        self.ended = not got
        if self._room < 0:
            raise _TooLargeError(f"larger than {format_size(self._limit)}")
        return got


class _TooLargeError(Exception):
    """An answer exceeds the size limit."""


def _exchange(
    channel: _Channel,
    target: _Target,
    method: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    head_only: bool,
) -> HttpReply:
    try:
        request = http.client.HTTPConnection(target.host, target.port)
        request.default_port = _PORTS["https" if target.secure else "http"]
        request.sock = channel  # has the methods used
        request.request(method, target.path, body, dict(headers))
    except (http.client.InvalidURL, ValueError) as error:
        raise HttpError(HttpFault.ADDRESS, type(error).__name__, target.where) from None  # whose text quotes secrets
    with request.getresponse() as reply:
        if channel.ended:  # before the empty line at the end of the head
            raise ConnectionResetError(errno.ECONNRESET, _CUT)
        content = b"" if head_only else _whole(reply, channel)
        return HttpReply(reply.status, {name.lower(): value for name, value in reversed(reply.getheaders())}, content)


def _open_tunnel(channel: _Channel, target: _Target, proxy: Proxy) -> None:
    """Have a proxy connect this connection to the target."""
    asked = _Target(target.host, target.port, target.where, secure=False, proxy=None)
    reply = _exchange(channel, asked, "CONNECT", proxy.headers, None, head_only=True)
    if not http.client.OK <= reply.status < http.client.MULTIPLE_CHOICES:
        raise OSError(0, f"the proxy answers with status {reply.status}")


def _whole(reply: http.client.HTTPResponse, channel: _Channel) -> bytes:
    try:
        # In pieces: one buffer would have the length that the reply claims.
        body = b"".join(iter(lambda: reply.read(_PIECE_BYTES), b""))
    except http.client.IncompleteRead as error:
        if channel.ended:
            raise ConnectionResetError(errno.ECONNRESET, _CUT) from error
        raise  # what should be the length of a chunk is none
    if reply.length:
        raise ConnectionResetError(errno.ECONNRESET, _CUT)
    return body


def _left(deadline: float, clock: Clock) -> float:
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextlib.contextmanager
def _explained(where: str, seconds: float, *, connected: bool) -> Iterator[None]:
    """Raise what fails as HttpError."""
    try:
        yield
    except TimeoutError as error:
        raise HttpError(HttpFault.TIMEOUT, f"{seconds:g} s", where, connected=connected) from error
    except _TooLargeError as error:
        raise HttpError(HttpFault.TOO_LARGE, str(error), where, connected=connected) from error
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(*_fault(error), where, connected=connected) from error


def _fault(error: OSError | http.client.HTTPException) -> tuple[HttpFault, str]:
    if isinstance(error, socket.gaierror):
        fault = HttpFault.NO_NAME if error.errno in _NO_SUCH_NAME else HttpFault.LOOKUP
        return fault, error.strerror or "unknown"
    if isinstance(error, ssl.SSLCertVerificationError):
        return HttpFault.CERTIFICATE, error.verify_message
    if isinstance(error, (ssl.SSLEOFError, http.client.RemoteDisconnected)):
        return HttpFault.BROKEN, _NO_ANSWER
    if isinstance(error, ssl.SSLError):
        return HttpFault.TLS, (error.reason or "unknown").replace("_", " ").lower()
    if isinstance(error, OSError):
        return _ERRNO.get(error.errno or 0, HttpFault.LOCAL), error.strerror or str(error)
    return HttpFault.NOT_HTTP, type(error).__name__
