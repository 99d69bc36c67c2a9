from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tpuwatch.clock import ManualClock
from tpuwatch.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def journal(tmp_path: Path, clock: ManualClock) -> Iterator[Journal]:
    opened = Journal.open(tmp_path, clock)
    yield opened
    opened.close()
