"""Connections for small requests: one deadline that includes name lookup, a size limit, and `close` from outside."""

from __future__ import annotations

import contextlib
import errno
import io
import ipaddress
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import http.client
    from collections.abc import Iterator

    from tpuwatch.core import Clock

MAX_REPLY_BYTES: Final = 1 << 20  # of a metadata server, including the headers
_PIECE_BYTES: Final = 1 << 16


class LookupTimeoutError(TimeoutError):
    """A name lookup timed out."""


class TooLargeError(Exception):
    """A reply exceeds the size limit."""


class Connector:
    """Opens connections that `close` can end. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resolver = _Resolver()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    @contextlib.contextmanager
    def connection(self, host: str, port: int, deadline: float) -> Iterator[socket.socket]:
        """A connection, opened before the deadline of the monotonic clock. Raises OSError (socket.gaierror)."""
        last: OSError = ConnectionError(errno.ECONNREFUSED, "no address")
        for family, address in self._resolver.addresses(host, port, seconds_left(deadline, self._clock)):
            connection = socket.socket(family, socket.SOCK_STREAM)
            try:
                with self._lock:
                    self._check_open()
                    self._open.add(connection)
                connection.settimeout(seconds_left(deadline, self._clock))
                try:
                    connection.connect(address)
                except OSError as error:
                    last = error
                    continue
                with self._lock:
                    self._check_open()  # `close` cannot end it before it is connected
                yield connection
                return
            finally:
                with self._lock:
                    self._open.discard(connection)
                connection.close()
        raise last

    def close(self) -> None:
        """End all connections, and refuse new ones."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):  # already closed
                    connection.shutdown(socket.SHUT_RDWR)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, "tpuwatch is closing")


class DeadlineSocket(io.RawIOBase):
    """A socket for http.client whose reads and writes share one deadline, and whose reads share one size limit.

    Raises TimeoutError after the deadline and TooLargeError beyond the limit.
    """

    def __init__(self, connection: socket.socket, deadline: float, clock: Clock, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._clock = clock
        self._room = max_bytes

    def sendall(self, data: Any) -> None:
        self._connection.settimeout(seconds_left(self._deadline, self._clock))
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """Closed by the Connector: http.client closes its socket before it has read the reply."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(seconds_left(self._deadline, self._clock))
        got = self._connection.recv_into(buffer)
        self._room -= got
        if self._room < 0:
            raise TooLargeError
        return got


def read_whole(reply: http.client.HTTPResponse) -> bytes:
    """The body of a reply. Raises ConnectionResetError if it is shorter than its Content-Length."""
    # In pieces: one buffer would have the length that the reply claims.
    body = b"".join(iter(lambda: reply.read(_PIECE_BYTES), b""))
    if reply.length:
        raise ConnectionResetError(errno.ECONNRESET, "the reply was cut off")
    return body


class _Resolver:
    """Looks up names with a timeout. A lookup cannot be cancelled, so it runs in a thread: at most one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: _Lookup | None = None

    def addresses(self, host: str, port: int, seconds: float) -> list[tuple[int, Any]]:
        """Address families and addresses. Raises socket.gaierror, and TimeoutError after `seconds`."""
        with contextlib.suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [(family, (host, port))]
        with self._lock:
            if self._current is None or self._current.done.is_set():
                self._current = _Lookup(host, port)
            lookup = self._current
        if not lookup.done.wait(seconds):
            raise LookupTimeoutError(f"the name {host} was not looked up in time")
        if lookup.error is not None:
            raise lookup.error
        return lookup.found


class _Lookup:
    def __init__(self, host: str, port: int) -> None:
        self.done = threading.Event()
        self.found: list[tuple[int, Any]] = []
        self.error: OSError | None = None
        self._name = (host, port)
        threading.Thread(target=self._run, name="lookup", daemon=True).start()

    def _run(self) -> None:
        try:
            found = socket.getaddrinfo(*self._name, type=socket.SOCK_STREAM)
            self.found = [(family, address) for family, _, _, _, address in found]
        except UnicodeError:  # not a valid DNS name
            self.error = socket.gaierror(socket.EAI_NONAME, "not a host's name")
        except OSError as error:
            self.error = error
        finally:
            self.done.set()


def seconds_left(deadline: float, clock: Clock) -> float:
    """Seconds until the deadline. Raises TimeoutError after it."""
    left = deadline - clock.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left
