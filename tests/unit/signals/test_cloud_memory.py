"""From when on nodes are what they are, over reloads and restarts: the simulated cloud, a real store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins.simulated import ZONE
from tests.unit.daemon.watching import watched
from tpuwatch.core.errors import StoreError
from tpuwatch.model.answers import Answer
from tpuwatch.model.signals import CloudNode
from tpuwatch.signals import cloud_memory
from tpuwatch.signals.cloud_memory import CloudMemory
from tpuwatch.store import EventStore, store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.signals.cloud_watcher import Watcher
    from tests.unit.sim.cloud.servers import Cloud

NODE = CloudNode("p", "z", "train-1", "READY", "HEALTHY", changed=100.0)


class Runs:
    """Runs of a daemon, one after the other, each with its signal."""

    def __init__(self, watcher: Watcher, directory: Path) -> None:
        self.watcher = watcher
        self.directory = directory
        self.failures = 0
        self.store = EventStore.open(directory, watcher.clock)
        self.store.commit([], [])
        self.reload()

    def reload(self) -> None:
        self.watcher.signal.close()
        self.watcher.signal = self.watcher.new(CloudMemory(self.store, self._failed))

    def restart(self, after: float = 10.0) -> None:
        """End the run in order, and begin another one after so many seconds."""
        self.store.close()
        self.watcher.clock.advance(after)
        self.store = EventStore.open(self.directory, self.watcher.clock)
        self.reload()

    def seen(self) -> CloudNode:
        self.watcher.ask()
        return self.watcher.node()

    def _failed(self) -> None:
        self.failures += 1


@pytest.fixture
def runs(cloud: Cloud, watch: Any, tmp_path: Path) -> Iterator[Runs]:
    cloud.add(health="TIMEOUT")
    runs = Runs(watch(), tmp_path)
    yield runs
    runs.store.close()


@pytest.mark.parametrize("how", ["reload", "restart"])
@pytest.mark.parametrize("unseen", [True, False])
def test_it_is_known_after_a_reload_and_a_restart(runs: Runs, cloud: Cloud, how: str, unseen: bool) -> None:
    first = runs.seen()
    if not unseen:
        next(iter(cloud.world.nodes.values())).health = "UNHEALTHY_TENSORFLOW"
        runs.watcher.next()
        first = runs.watcher.node()
    # What was so at first sight may have been so for long; a change that was seen is known to the second.
    assert (first.changed, first.changed_unseen) == (cloud.clock.time(), unseen)
    cloud.clock.advance(3600)
    runs.watcher.ask()
    getattr(runs, how)()
    assert runs.seen() == first


def test_what_changed_while_nothing_looked_changed_at_an_unknown_time(runs: Runs, cloud: Cloud) -> None:
    runs.seen()
    next(iter(cloud.world.nodes.values())).health = "HEALTHY"
    runs.restart()
    node = runs.seen()
    assert (node.changed, node.changed_unseen) == (cloud.clock.time(), True)
    cloud.clock.advance(600)
    runs.restart()
    assert runs.seen() == node


def test_after_a_long_break_nothing_is_known_of_before(runs: Runs, cloud: Cloud) -> None:
    runs.seen()
    runs.restart(after=store.CLOUD_NODES_SECONDS + 60)
    assert (runs.seen().changed, runs.seen().changed_unseen) == (cloud.clock.time(), True)


def test_a_node_that_was_created_again_is_another_one(runs: Runs, cloud: Cloud) -> None:
    node = next(iter(cloud.world.nodes.values()))
    runs.seen()
    cloud.world.remove(node.path)
    cloud.clock.advance(30)
    cloud.add(health="TIMEOUT")
    runs.restart()
    assert runs.seen().changed == cloud.clock.time()


def test_only_changes_are_written(runs: Runs, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    save = runs.store.save_cloud_nodes

    def counting(nodes: Any) -> None:
        written.extend(node.health for node in nodes)
        save(nodes)

    monkeypatch.setattr(runs.store, "save_cloud_nodes", counting)
    runs.seen()
    for health in ("TIMEOUT", "TIMEOUT", "HEALTHY", "HEALTHY"):
        next(iter(cloud.world.nodes.values())).health = health
        runs.watcher.next()
    assert written == ["TIMEOUT", "HEALTHY"]


def test_what_the_store_does_not_take_is_offered_again(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    runs.store._connection.execute("PRAGMA query_only = 1")
    node = runs.seen()
    assert runs.failures == 1
    assert "cannot write the store" in caplog.text
    runs.store._connection.execute("PRAGMA query_only = 0")
    runs.watcher.next()
    assert [(one.name, one.changed) for one in runs.store.cloud_nodes()] == [("train-1", node.changed)]


def test_a_store_that_cannot_be_read_does_not_stop_the_asking(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise StoreError("the store is damaged")

    monkeypatch.setattr(runs.store, "cloud_nodes", broken)
    runs.reload()
    assert runs.failures == 1
    assert runs.seen().health == "TIMEOUT"


def test_nodes_that_come_and_go_for_ever_are_not_all_kept_in_mind(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_memory, "_MAX_OTHERS", 10)
    with closing(EventStore.open(tmp_path, cloud.clock)) as store:
        memory = CloudMemory(store, lambda: None)
        for number in range(100):
            memory.keep([replace(NODE, name=f"n{number}")])
            assert memory.node("p", "z", f"n{number}") is not None
        assert len(memory._kept) <= 13


def test_the_daemons_node_side_knows_it_after_a_reload(tmp_path: Path) -> None:
    with watched(tmp_path) as watching:
        first = watching.start()
        before = wait_for(
            lambda: first.signals.snapshot.cloud.get(f"{ZONE}/train-1", Answer()).value, "word of the node"
        )
        first.stop()
        watching.clock.ahead += 300
        second = watching.start()
        after = wait_for(
            lambda: second.signals.snapshot.cloud.get(f"{ZONE}/train-1", Answer()).value, "word of the node"
        )
    assert before is not None
    assert after is not None
    assert (after.changed, after.changed_unseen) == (before.changed, True)
