"""A clock for the ledgers, and a simulated Cloud Storage for those in a bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.restart.buckets import storage_running
from tests.restart.records import NOW
from tpuwatch.clock import ManualClock
from tpuwatch.sim.storage import StorageServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[StorageServer]:
    with storage_running(clock) as running:
        yield running
