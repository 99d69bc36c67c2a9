"""The restarting side that the tests of its loop share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.restart.restart_side import Side

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    return Side(tmp_path, monkeypatch)
