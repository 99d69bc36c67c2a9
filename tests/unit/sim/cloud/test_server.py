"""The server itself: addresses, TLS, guests, its end, and the one that never speaks."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
from pathlib import Path

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.standins.certificates import make_certificates
from tests.unit.sim.cloud.servers import DEADLINE, PARENT, Cloud, cloud_running
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.responses import ServiceError
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World


def list_through(channel: grpc.Channel, timeout: float = DEADLINE) -> list[str]:
    client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
    return [node.name for node in client.list_nodes(parent=PARENT, timeout=timeout)]


def test_a_client_that_trusts_the_authority_gets_through_by_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    with cloud_running(tls=made.server()) as cloud:
        cloud.add()
        trusting = grpc.ssl_channel_credentials(made.authority.read_bytes())
        for host in ("localhost", "127.0.0.1"):
            with grpc.secure_channel(f"{host}:{cloud.server.port}", trusting) as channel:
                assert list_through(channel) == [f"{PARENT}/nodes/train-1"]


def test_a_client_that_does_not_trust_the_authority_gets_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    with cloud_running(tls=make_certificates(tmp_path).server()) as cloud:
        cloud.add()
        with (
            grpc.secure_channel(
                cloud.server.address, grpc.ssl_channel_credentials(other.authority.read_bytes())
            ) as channel,
            pytest.raises(exceptions.ServiceUnavailable),
        ):
            list_through(channel)
        assert not cloud.world.calls


def test_a_port_that_is_taken_is_an_error_that_says_so() -> None:
    with cloud_running() as cloud, pytest.raises(TpuwatchError, match="another program has the port, or that is"):
        CloudServer(World(ManualClock()), port=cloud.server.port)
    assert not sim_threads()


def test_a_server_can_come_back_on_its_port() -> None:
    world = World(ManualClock())
    first = CloudServer(world)
    first.stop()
    first.stop()
    second = CloudServer(world, port=first.port)
    try:
        with grpc.insecure_channel(second.address) as channel, pytest.raises(exceptions.PermissionDenied):
            list_through(channel)
    finally:
        second.stop()


def test_a_server_that_has_stopped_leaves_no_threads() -> None:
    before = set(threading.enumerate())
    with cloud_running() as cloud:
        cloud.add()
        list_through(cloud.channel)
        assert sim_threads()
    assert not sim_threads()
    for thread in set(threading.enumerate()) - before:  # grpc's own end a moment after the server
        thread.join(DEADLINE)
        assert not thread.is_alive(), thread.name


def test_other_services_ride_along_with_faults_log_and_refusals() -> None:
    def echo(request: bytes, _: grpc.ServicerContext) -> bytes:
        if request == b"refuse":
            raise ServiceError("FAILED_PRECONDITION", "no")
        return request

    guest = grpc.method_handlers_generic_handler("test.Guest", {"Echo": grpc.unary_unary_rpc_method_handler(echo)})
    with cloud_running(services=[guest]) as cloud:
        call = cloud.channel.unary_unary("/test.Guest/Echo")
        assert call(b"hello", timeout=DEADLINE) == b"hello"
        with pytest.raises(grpc.RpcError) as caught:
            call(b"refuse", timeout=DEADLINE)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        cloud.world.faults.set(InjectedFault("Echo", code="DATA_LOSS"))
        with pytest.raises(grpc.RpcError) as caught:
            call(b"hello", timeout=DEADLINE)
        assert caught.value.code() == grpc.StatusCode.DATA_LOSS
        assert [call.code for call in cloud.world.calls] == ["OK", "FAILED_PRECONDITION", "DATA_LOSS"]


def test_half_open_connections_stay_open_and_new_ones_are_as_silent(cloud: Cloud) -> None:
    cloud.add()
    names = list_through(cloud.channel)
    assert names == [f"{PARENT}/nodes/train-1"]
    with socket.create_connection(("127.0.0.1", cloud.server.port), timeout=DEADLINE) as old:
        cloud.world.faults.set(InjectedFault(half_open=True, until=cloud.clock.time() + 60))
        cloud.server.advance()
        drain(old)  # the server's greeting
        calls = len(cloud.world.calls)
        with pytest.raises(exceptions.DeadlineExceeded):
            list_through(cloud.channel, timeout=0.2)
        with socket.create_connection(("127.0.0.1", cloud.server.port), timeout=DEADLINE) as new:
            for connection in (old, new):
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            with pytest.raises(exceptions.DeadlineExceeded), new_channel(cloud) as another:
                list_through(another, timeout=0.2)
            assert len(cloud.world.calls) == calls
            assert not select.select([old, new], [], [], 0)[0]  # neither a word nor an end
            cloud.pass_time(60)
            cloud.server.advance()
            for connection in (old, new):
                with contextlib.suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
    with new_channel(cloud) as fresh:
        assert list_through(fresh) == names
    states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
    cloud.channel.subscribe(states.put)
    while states.get(timeout=DEADLINE) is grpc.ChannelConnectivity.READY:
        pass  # until the old one has noticed that it was cut
    cloud.channel.unsubscribe(states.put)
    assert list_through(cloud.channel) == names


def test_two_clouds_are_two_worlds(cloud: Cloud) -> None:
    cloud.add("a")
    with cloud_running() as other:
        other.add("b")
        assert list_through(cloud.channel) == [f"{PARENT}/nodes/a"]
        assert list_through(other.channel) == [f"{PARENT}/nodes/b"]


def new_channel(cloud: Cloud) -> grpc.Channel:
    """One with a connection of its own: gRPC lets channels to the same address share theirs."""
    return grpc.insecure_channel(cloud.server.address, options=[("grpc.use_local_subchannel_pool", 1)])


def drain(connection: socket.socket) -> None:
    """Read what is there."""
    while select.select([connection], [], [], 0)[0]:
        connection.recv(65536)


def sim_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sim-cloud")]
