"""A clock for the ledgers, and a simulated Cloud Storage for those in a bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standins.buckets import storage_running
from tests.standins.storage import StorageServer
from tests.unit.restart.records import NOW
from tpuwatch.core.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[StorageServer]:
    with storage_running(clock) as running:
        yield running
