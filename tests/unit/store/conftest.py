from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[EventStore]:
    opened = EventStore.open(tmp_path, clock)
    yield opened
    opened.close()
