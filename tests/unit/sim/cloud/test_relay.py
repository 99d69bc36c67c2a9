"""Connections that are passed on, and that fall silent."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from tpuwatch.sim.cloud.relay import Relay

DEADLINE = 60.0


class Way:
    """A relay, and the two sides of it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(DEADLINE)
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        self.relay = Relay(listening, self.server.getsockname()[1], "test-relay")
        self.open: list[socket.socket] = [self.server]

    def client(self) -> socket.socket:
        """A new connection's near end."""
        self.open.append(socket.create_connection(self.address, DEADLINE))
        return self.open[-1]

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """A new connection's near and far end."""
        client = self.client()
        server, _ = self.server.accept()
        server.settimeout(DEADLINE)
        self.open.append(server)
        return client, server


@pytest.fixture
def way() -> Iterator[Way]:
    made = Way()
    yield made
    with contextlib.suppress(OSError):  # it is closed already
        made.relay.close()
    for each in made.open:
        each.close()


def ended(connection: socket.socket) -> bool:
    """Whether it comes to its end, with nothing more to read."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


def test_bytes_pass_both_ways_and_the_end_too(way: Way) -> None:
    for leaver in (0, 1):
        ends = way.pair()
        for here, there in (ends, ends[::-1]):
            here.sendall(b"hello")
            assert there.recv(9) == b"hello"
        ends[leaver].close()
        assert ended(ends[1 - leaver])


def test_silence_closes_nothing_and_takes_new_connections_in(way: Way) -> None:
    client, server = way.pair()
    way.relay.silence(True)
    way.relay.silence(True)
    new = way.client()
    for each in (client, new, server):
        each.sendall(b"hello")
    assert not select.select([client, server, new, way.server], [], [], 0.2)[0]
    leaver = way.client()
    leaver.close()
    way.relay.silence(False)
    assert all(map(ended, (client, server, new)))
    assert not select.select([way.server], [], [], 0)[0]  # nobody was passed on late
    near, far = way.pair()
    near.sendall(b"hello")
    assert far.recv(9) == b"hello"
