"""The restarting and the tuning side that the tests of their loops share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import tune_side
from tests.restart_side import Side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    return Side(tmp_path, monkeypatch)


@pytest.fixture
def advising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tune_side.Side]:
    """The tuning side in mode observe, on a large machine."""
    yield from _tuning(tmp_path, monkeypatch)


@pytest.fixture
def applying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tune_side.Side]:
    """The tuning side in mode apply, on a large machine."""
    yield from _tuning(tmp_path, monkeypatch, mode="apply")


def _tuning(root: Path, patch: pytest.MonkeyPatch, **tune: str) -> Iterator[tune_side.Side]:
    tune_side.large_host(patch)
    made = tune_side.Side(root, **tune)
    yield made
    made.journal.close()
