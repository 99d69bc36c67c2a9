"""A simulated cloud and signals that ask it, and processes that serve runtime metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.standins.runtime_server import RuntimeProcess
from tests.unit.signals.cloud_watcher import Watcher
from tests.unit.sim.cloud.servers import Cloud, cloud_running


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
        watcher.signal.close()


@pytest.fixture
def start() -> Iterator[Callable[..., RuntimeProcess]]:
    """Starts processes that serve runtime metrics, and ends them after the test."""
    with contextlib.ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> RuntimeProcess:
            process = RuntimeProcess(*args, **kwargs)
            stack.callback(process.stop)
            return process

        yield start
