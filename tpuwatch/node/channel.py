"""Connections for small requests: bounded in size and in time as a whole, names and all, and ended from outside."""

from __future__ import annotations

import contextlib
import errno
import io
import ipaddress
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.clock import Clock


class LookupTimeoutError(TimeoutError):
    """A name was not looked up in time."""


class TooLargeError(Exception):
    """A reply goes on beyond the limit."""


class Dialer:
    """Opens connections that `close` can end. Safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resolver = _Resolver()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False

    @contextlib.contextmanager
    def connection(self, host: str, port: int, deadline: float) -> Iterator[socket.socket]:
        """A connection, made by the deadline of the monotonic clock. Raises OSError, socket.gaierror among them."""
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
                    self._check_open()  # what is not connected yet `close` cannot end
                yield connection
                return
            finally:
                with self._lock:
                    self._open.discard(connection)
                connection.close()
        raise last

    def close(self) -> None:
        """End connections, and refuse others."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                with contextlib.suppress(OSError):  # it has ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionAbortedError(errno.ECONNABORTED, "tpuwatch is closing")


class Channel:
    """A socket as http.client uses one, on which all that is read and sent shares one deadline and one size."""

    def __init__(self, connection: socket.socket, deadline: float, clock: Clock, most_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._clock = clock
        self._most_bytes = most_bytes

    def sendall(self, data: Any) -> None:
        self._connection.settimeout(seconds_left(self._deadline, self._clock))
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Bounded(self._connection, self._deadline, self._clock, self._most_bytes))

    def close(self) -> None:
        """Whoever opened the connection closes it."""


class _Bounded(io.RawIOBase):
    """What the other side sends: TimeoutError after the deadline, TooLargeError beyond the size."""

    def __init__(self, connection: socket.socket, deadline: float, clock: Clock, room: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._clock = clock
        self._room = room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(seconds_left(self._deadline, self._clock))
        got = self._connection.recv_into(buffer)
        self._room -= got
        if self._room < 0:
            raise TooLargeError
        return got


class _Resolver:
    """Looks names up within a time. A look-up cannot be broken off, so it has a thread: never more than one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: _Lookup | None = None

    def addresses(self, host: str, port: int, seconds: float) -> list[tuple[int, Any]]:
        """Address families and addresses. Raises socket.gaierror, and TimeoutError after `seconds`."""
        with contextlib.suppress(ValueError):
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
            return [(family, (host, port))]
        with self._lock:
            if self._under_way is None or self._under_way.done.is_set():
                self._under_way = _Lookup(host, port)
            lookup = self._under_way
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
        threading.Thread(target=self._run, name="look-up", daemon=True).start()

    def _run(self) -> None:
        try:
            found = socket.getaddrinfo(*self._name, type=socket.SOCK_STREAM)
            self.found = [(family, address) for family, _, _, _, address in found]
        except UnicodeError:  # a name that no DNS can hold
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
