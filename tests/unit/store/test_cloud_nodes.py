from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW
from tpuwatch.model.signals import CloudNode
from tpuwatch.store import EventStore, schema
from tpuwatch.store.store import CLOUD_NODES_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

NODE = CloudNode("p", "z", "train-1", "READY", "TIMEOUT", hosts=4, created=NOW - 9000, changed=NOW - 60)


def test_a_node_comes_back_as_far_as_it_was_stored(store: EventStore) -> None:
    other = replace(NODE, name="train-2", created=None, changed=None, changed_unseen=True)
    store.save_cloud_nodes([replace(NODE, labels=(("a", "b"),), accelerator="v4-8"), other])
    assert store.cloud_nodes() == [NODE, other]


def test_the_latest_facts_of_a_node_replace_the_earlier(store: EventStore) -> None:
    store.save_cloud_nodes([NODE, replace(NODE, zone="y")])
    store.save_cloud_nodes([replace(NODE, state="STOPPED")])
    assert [(one.zone, one.state) for one in store.cloud_nodes()] == [("y", "READY"), ("z", "STOPPED")]


@pytest.mark.parametrize(("seconds", "known"), [(CLOUD_NODES_SECONDS - 1, True), (86_400, False)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_later_run_knows_it_after_a_short_break_only(
    tmp_path: Path, clock: ManualClock, seconds: float, known: bool, clean: bool
) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        store.commit([], [])
        store.save_cloud_nodes([NODE])
        clock.advance(7 * 86_400)  # at work all the time
        store.prune(1e9, 1 << 40)
        if clean:
            clock.advance(3600)  # the end itself counts as work
        store.close(clean=clean)
    clock.advance(seconds)
    with closing(EventStore.open(tmp_path, clock)) as store:
        assert store.cloud_nodes() == ([NODE] if known else [])
        clock.advance(60)
        store.save_cloud_nodes([replace(NODE, name="new")])
        assert [one.name for one in store.cloud_nodes()] == (["new", "train-1"] if known else ["new"])


def test_they_are_bounded_in_number(store: EventStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_CLOUD_NODES", 2)
    for number in range(5):
        store.save_cloud_nodes([replace(NODE, name=f"n{number}")])
        clock.advance(1)
    store.prune(1e9, 1 << 40)
    assert [one.name for one in store.cloud_nodes()] == ["n3", "n4"]


def test_what_a_later_version_stores_besides_is_left_out(store: EventStore) -> None:
    store.save_cloud_nodes([NODE])
    store._connection.execute("UPDATE cloud_nodes SET facts = json_set(facts, '$.mood', 'good')")
    assert store.cloud_nodes() == [NODE]


def test_a_store_in_memory_begins_with_them(tmp_path: Path, clock: ManualClock) -> None:
    with closing(EventStore.open(tmp_path, clock)) as store:
        store.commit([], [])
        store.save_cloud_nodes([NODE])
    (tmp_path / "store.lock").unlink()
    (tmp_path / "store.lock").symlink_to("elsewhere")  # so that the directory cannot be had
    with closing(EventStore.open(tmp_path, clock)) as store:
        assert not store.durable
        assert store.cloud_nodes() == [NODE]
    assert (tmp_path / schema.FILE_NAME).exists()
