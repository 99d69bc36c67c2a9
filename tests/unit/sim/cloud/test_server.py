"""The server itself: addresses, TLS, guests, its end, and the one that never speaks."""

from __future__ import annotations

import threading

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, cloud_running
from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World


def list_through(channel: grpc.Channel, timeout: float = DEADLINE) -> list[str]:
    client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
    return [node.name for node in client.list_nodes(parent=PARENT, timeout=timeout)]


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


def sim_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("sim-cloud")]
