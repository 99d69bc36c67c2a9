"""The tuning side that the tests of its loop share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.tune import tune_side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def advising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tune_side.Side]:
    """The tuning side in mode observe, on a large machine."""
    yield from _tuning(tmp_path, monkeypatch)


@pytest.fixture
def applying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tune_side.Side]:
    """The tuning side in mode act, on a large machine."""
    yield from _tuning(tmp_path, monkeypatch, mode="act")


def _tuning(root: Path, patch: pytest.MonkeyPatch, **tune: str) -> Iterator[tune_side.Side]:
    tune_side.large_host(patch)
    made = tune_side.Side(root, **tune)
    yield made
    made.store.close()
