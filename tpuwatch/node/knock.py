"""Who listens on this machine's ports: asked by connecting, which costs next to nothing where nobody does."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def knock(ports: Iterable[int], seconds: float) -> dict[int, str | None]:
    """The ports that somebody listens on, with the address; None where the connection is not taken in time.

    All ports are asked at once; `seconds` is how long to wait for the next of them. Raises OSError when this process
    may open no more files.
    """
    asked, found = tuple(ports), dict[int, str | None]()
    for family, address in _LOOPBACK:
        found |= _knock(family, address, [port for port in asked if port not in found], seconds)
    return {port: found[port] for port in asked if port in found}


def _knock(family: socket.AddressFamily, address: str, ports: list[int], seconds: float) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    with contextlib.ExitStack() as sockets:
        pending: dict[int, tuple[int, socket.socket]] = {}  # by descriptor
        poll = select.poll()
        for port in ports:
            try:
                attempt = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    return found  # this machine has no such addresses
                raise
            if attempt.connect_ex((address, port)) in (0, errno.EINPROGRESS):
                poll.register(attempt, select.POLLOUT)
                pending[attempt.fileno()] = (port, attempt)
        while pending and (ready := poll.poll(seconds * 1000)):
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                port, attempt = pending.pop(descriptor)
                if attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found[port] = address
        found |= {port: None for port, _ in pending.values()}
    return found
