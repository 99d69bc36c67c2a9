"""A place of its own for each test of `tpuwatch exec`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.exec.running import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
