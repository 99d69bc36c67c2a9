"""What the tests of restarts share: the restarting side of a daemon, and one node of a simulated cloud."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.restart.restart_side import Side
from tests.unit.restart.site import Machine, Site, site_running


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Side:
    return Side(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def running() -> Iterator[Site]:
    with site_running() as made:
        yield made


@pytest.fixture
def site(running: Site) -> Site:
    running.ending = lambda _: False
    running.machine = Machine()
    running.begin()
    return running
