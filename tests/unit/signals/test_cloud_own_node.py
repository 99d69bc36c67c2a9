"""A daemon that watches its own node alone: it gets that node, and lists the zone only where that tells more."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.unit.signals.cloud_watcher import Watcher
from tests.unit.sim.cloud.servers import ZONE, Cloud
from tpuwatch.model.answers import Problem
from tpuwatch.signals.cloud import CloudSignal
from tpuwatch.sim.cloud.faults import InjectedFault


def methods(watcher: Watcher, polls: int = 1) -> Counter[str]:
    """How often each method is called in so many polls."""
    before = Counter(watcher.counts)
    for _ in range(polls):
        watcher.next()
    found: Counter[str] = Counter()
    for (method, code), number in watcher.counts.items():
        found[method] += number - before[method, code]
    return +found


@pytest.mark.parametrize("nodes", [(), ("train-1",), (f"{ZONE}/train-1",)], ids=["no nodes", "itself", "with its zone"])
def test_a_poll_is_one_call_for_the_own_node(cloud: Cloud, watch: Any, nodes: tuple[str, ...]) -> None:
    cloud.world.page_limit = 1
    for number in range(1, 6):
        cloud.add(f"train-{number}", queued_resource="queue-1")
    watcher = watch(nodes=nodes)
    assert watcher.ask().problem is None
    assert methods(watcher, 20) == {"GetNode": 20}
    assert set(watcher.signal.answers) == {f"{ZONE}/train-1"}
    assert watcher.node().queued_resource == "queue-1"


@pytest.mark.parametrize("nodes", [("train-2",), ("train-*",), ("train-1", "europe-west4-b/*")])
def test_who_watches_more_lists_the_zones(cloud: Cloud, watch: Any, nodes: tuple[str, ...]) -> None:
    for name in ("train-1", "train-2"):
        cloud.add(name)
    cloud.add("far-1", zone="europe-west4-b")
    watcher = watch(nodes=nodes)
    watcher.ask()
    assert "GetNode" not in methods(watcher, 3)


def test_a_node_that_is_gone_is_looked_for_in_the_list_until_it_is_back(cloud: Cloud, watch: Any) -> None:
    node = cloud.add()
    cloud.add("other")
    watcher = watch()
    watcher.ask()
    cloud.world.remove(node.path)
    assert methods(watcher) == {"GetNode": 1, "ListNodes": 1, "ListQueuedResources": 1}
    assert watcher.answer().problem is Problem.GONE
    assert methods(watcher, 3) == {"ListNodes": 3}
    cloud.add()
    assert methods(watcher) == {"ListNodes": 1}
    assert watcher.answer().problem is None
    assert methods(watcher, 3) == {"GetNode": 3}


def test_a_node_that_get_node_lacks_once_and_the_list_has_is_there(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch()
    watcher.ask()
    cloud.world.faults.set(InjectedFault(method="GetNode", code="NOT_FOUND", times=1))
    assert methods(watcher) == {"GetNode": 1, "ListNodes": 1}
    assert watcher.answer().problem is None
    assert methods(watcher) == {"GetNode": 1}


def test_without_the_permission_to_get_it_the_list_is_used_for_five_minutes(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch()
    cloud.world.faults.set(InjectedFault(method="GetNode", code="PERMISSION_DENIED"))
    assert watcher.ask().problem is None
    calls = methods(watcher, 20)
    assert calls["ListNodes"] == 20
    assert 1 <= calls["GetNode"] <= 2
    assert watcher.node().state == "READY"


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED"])
def test_after_another_fault_the_zone_is_not_listed(cloud: Cloud, watch: Any, code: str) -> None:
    cloud.add()
    watcher = watch()
    watcher.ask()
    cloud.world.faults.set(InjectedFault(method="GetNode", code=code))
    assert "ListNodes" not in methods(watcher, 3)
    assert watcher.answer().problem not in (None, Problem.GONE)
    assert watcher.node().state == "READY"


@pytest.mark.parametrize(
    ("fields", "resets", "lists"),
    [
        ({"hosts": 4, "queued_resource": "queue-1"}, True, True),
        ({"hosts": 4, "queued_resource": "queue-1"}, False, False),
        ({"hosts": 1, "queued_resource": "queue-1"}, True, False),
        ({"hosts": 4}, True, False),
    ],
)
def test_nodes_beside_a_slice_are_listed_every_five_minutes_where_it_may_be_reset(
    cloud: Cloud, fields: dict[str, Any], resets: bool, lists: bool
) -> None:
    cloud.add(**fields)
    cloud.add("train-2", hosts=4, queued_resource="queue-1")
    watcher = Watcher(cloud.server.address, cloud.clock)
    watcher.signal = CloudSignal(
        watcher.section,
        lambda: watcher.identity,
        clock=cloud.clock,
        rng=random.Random(5),
        on_call=lambda method, code: watcher.counts.update([(method, code)]),
        resets=resets,
    )
    watcher.ask()
    cloud.world.faults.set(InjectedFault(method="ListNodes", code="UNAVAILABLE", times=1))
    calls = methods(watcher, 40)  # some 20 minutes
    assert calls["GetNode"] + calls["ListNodes"] == 40
    assert (3 <= calls["ListNodes"] <= 5) if lists else not calls["ListNodes"]
    assert [node.name for node in watcher.signal.beside] == ["train-2"] * lists
    watcher.signal.close()
