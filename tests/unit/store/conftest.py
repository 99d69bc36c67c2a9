from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[EventStore]:
    with closing(EventStore.open(tmp_path, clock)) as opened:
        yield opened


@pytest.fixture
def next_run(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], EventStore]]:
    """Opens the store as the next run of a daemon does, after the run before has closed it."""
    with ExitStack() as run:

        def begin() -> EventStore:
            run.close()
            return run.enter_context(closing(EventStore.open(tmp_path, clock)))

        yield begin
