from __future__ import annotations

import re
import shutil
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.store.make import cursor, event
from tpuwatch.config.schema import StateConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon.store_maintenance import RENEW_SECONDS, StoreMaintenance
from tpuwatch.metrics.registry import Metrics
from tpuwatch.store import EventStore, StoreReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Upkeep:
    """The maintenance of a store in `directory`, with a clock that is moved by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.store = EventStore.open(directory, self.clock)
        self.metrics = Metrics(loops=[], refusals=[])
        follower = SimpleNamespace(present=lambda: [(1, 2)])
        self.logs: Any = SimpleNamespace(stored_events=0, ingest=SimpleNamespace(follower=follower))
        self.maintenance = StoreMaintenance(self.store, metrics=self.metrics, clock=self.clock, on_step=lambda: None)

    def commit(self, *keys: str) -> None:
        self.logs.stored_events += len(self.store.commit([event(key) for key in keys], [cursor(10)]))

    def run(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.maintenance.run_if_due(StateConfig(dir=self.directory), self.logs)

    @property
    def errors(self) -> float:
        found = re.search(r"^tpuwatch_store_errors_total (\S+)$", self.metrics.exposition()[0].decode(), re.MULTILINE)
        assert found is not None
        return float(found[1])


@pytest.fixture
def upkeep(tmp_path: Path) -> Iterator[Upkeep]:
    upkeep = Upkeep(tmp_path / "state")
    with closing(upkeep.store):
        yield upkeep


def test_a_store_that_was_deleted_is_made_again_in_the_next_turn(
    upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep.run()
    upkeep.commit("a", "b")
    shutil.rmtree(upkeep.directory)
    upkeep.run(1.0)
    assert upkeep.store.durable
    assert upkeep.maintenance.events(upkeep.logs) == 2
    assert len(StoreReader.open(upkeep.directory).events()) == 2
    assert caplog.messages == ["The store is durable again.", deleted(upkeep)]


def deleted(upkeep: Upkeep) -> str:
    return f"the files of the store {upkeep.directory}/store.db were deleted or replaced while tpuwatch ran"


def test_a_commit_after_the_deletion_is_durable_at_once(upkeep: Upkeep, caplog: pytest.LogCaptureFixture) -> None:
    upkeep.commit("a")
    for _ in range(3):
        shutil.rmtree(upkeep.directory)
        upkeep.commit("b")
        assert upkeep.store.durable
        assert len(StoreReader.open(upkeep.directory).events()) == 2
        upkeep.run()
    assert upkeep.store.notices == (deleted(upkeep),)
    assert caplog.messages == [deleted(upkeep)]


def test_what_takes_the_place_of_the_store_is_set_aside_and_logged(
    upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep.commit("a")
    shutil.rmtree(upkeep.directory)
    upkeep.directory.mkdir()
    (upkeep.directory / "store.db").write_bytes(b"rubbish " * 4096)
    upkeep.run()
    assert "is damaged (file is not a database): it was kept as store.db.corrupt-" in upkeep.store.notices[1]
    assert caplog.messages[1:] == list(upkeep.store.notices)
    assert len(upkeep.store.events()) == 1


def test_a_store_that_cannot_be_kept_is_tried_again_and_again_and_logged_once(
    upkeep: Upkeep, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep.commit("a")
    shutil.rmtree(upkeep.directory)
    upkeep.directory.write_text("a file")
    upkeep.run()
    upkeep.run(RENEW_SECONDS / 2)
    assert (upkeep.store.durable, upkeep.errors) == (False, 1)
    upkeep.run(RENEW_SECONDS / 2)
    assert upkeep.errors == 2
    assert len(caplog.records) == 2
    assert deleted(upkeep) in caplog.messages
    upkeep.directory.unlink()
    upkeep.run(RENEW_SECONDS)
    assert upkeep.store.durable
    assert caplog.messages[2:] == ["The store is durable again."]
    upkeep.commit("a", "b")
    assert upkeep.maintenance.events(upkeep.logs) == 2
