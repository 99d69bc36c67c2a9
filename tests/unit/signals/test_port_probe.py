from __future__ import annotations

import contextlib
import errno
import resource
import socket
import time

import pytest

from tests.standins.runtime_server import listening, refused
from tpuwatch.signals.runtime import probe_ports


def test_only_ports_that_a_process_listens_on_are_found_in_the_order_asked() -> None:
    with listening() as one, refused() as none, listening() as other:
        found = probe_ports([other, none, one], 5)
    assert list(found.items()) == [(other, "127.0.0.1"), (one, "127.0.0.1")]


def test_nothing_asked_is_nothing_found() -> None:
    assert probe_ports([], 5) == {}


def test_a_port_that_listens_on_ipv6_alone_is_found() -> None:
    with contextlib.ExitStack() as stack:
        try:
            port = stack.enter_context(refused())  # so that no other program listens on it by IPv4
            stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))
        except OSError:
            pytest.skip("no IPv6 here")
        assert probe_ports([port], 5) == {port: "::1"}


def test_a_port_whose_queue_is_full_is_open_but_silent() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]
        for _ in range(8):  # the kernel takes one or two more than the backlog
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            assert caller.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)
        with listening() as other:
            assert probe_ports([port, other], 0.2) == {port: None, other: "127.0.0.1"}


def test_no_socket_stays_open_and_an_idle_machine_costs_almost_nothing() -> None:
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(refused()) for _ in range(4)]
        probe_ports(ports, 5)
        before = time.thread_time()
        for _ in range(100):
            assert probe_ports(ports, 5) == {}
        each = (time.thread_time() - before) / 100
    assert each < 0.001  # CPU time, so other programs do not count; 0.2 ms on the slowest machine tried


def test_without_descriptors_it_reports_that_and_never_closed_ports() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with refused() as port:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                probe_ports([port], 5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
