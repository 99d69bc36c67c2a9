"""A running simulated cloud for tests, with a clock that they move, and the real clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.api_core.operations_v1 import OperationsClient
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaTransport

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

PROJECT, ZONE = "lab", "us-east5-a"
PARENT = f"projects/{PROJECT}/locations/{ZONE}"
DEADLINE = 60.0  # of each call: long, for none should need it


class Cloud:
    """A world, the server that shows it, and unmodified clients that talk to it."""

    def __init__(self, **server: Any) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.server = CloudServer(self.world, **server)
        self.channel = grpc.insecure_channel(self.server.address)
        self.tpu = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=self.channel))
        self.alpha = tpu_v2alpha1.TpuClient(transport=AlphaTransport(channel=self.channel))
        self.operations = OperationsClient(self.channel)

    def add(self, name: str = "train-1", **fields: Any) -> SimNode:
        """One more node, in the usual project and zone."""
        return self.world.add(SimNode(**{"project": PROJECT, "zone": ZONE, "name": name, **fields}))

    def pass_time(self, seconds: float) -> None:
        """Let the world's time run on."""
        self.clock.advance(seconds)
        self.world.advance()

    def happened(self) -> list[str]:
        """What happened to nodes so far."""
        return [one.what for one in self.world.history]

    def close(self) -> None:
        self.channel.close()
        self.server.stop()


@contextmanager
def cloud_running(**server: Any) -> Iterator[Cloud]:
    cloud = Cloud(**server)
    try:
        yield cloud
    finally:
        cloud.close()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_running() as running:
        yield running
