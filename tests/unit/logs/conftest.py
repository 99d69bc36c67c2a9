"""Fixtures for tests of logs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.logs.sites import Site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An empty log directory and its follower."""
    site = Site(tmp_path)
    yield site
    site.follower.close()


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that other users can reach, as pytest's own are not."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
