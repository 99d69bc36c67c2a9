"""A simulated cloud, and witnesses that ask it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.node.witnesses import Watcher
from tests.sim.cloud.servers import Cloud, cloud_running


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_running() as running:
        yield running


@pytest.fixture
def watch(cloud: Cloud) -> Iterator[Any]:
    made: list[Watcher] = []

    def make(**more: Any) -> Watcher:
        made.append(Watcher(cloud.server.address, cloud.clock, **more))
        return made[-1]

    yield make
    for watcher in made:
        watcher.witness.close()
