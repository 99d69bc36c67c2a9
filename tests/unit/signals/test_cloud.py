"""Tests of the Cloud TPU API as a signal, against the simulated cloud through Google's own client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sim.cloud.servers import PROJECT, ZONE, Cloud
from tpuwatch.google import tpu_client
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Identity, Known
from tpuwatch.sim.cloud.faults import InjectedFault


def listed(cloud: Cloud, method: str = "ListNodes") -> list[str]:
    """The parents that were listed so far."""
    return [call.resource for call in cloud.world.calls if call.method == method]


def test_it_reports_the_own_node(cloud: Cloud, watch: Any) -> None:
    cloud.add(hosts=2, spot=True, queued_resource="queue-1")
    cloud.add("other")
    watcher = watch()
    answer = watcher.ask()
    assert answer.problem is None
    assert [node.name for node in answer.value or ()] == ["train-1"]
    assert (answer.at, answer.tried) == (cloud.clock.time(), cloud.clock.time())
    node = watcher.node()
    assert (node.project, node.zone, node.state, node.health) == (PROJECT, ZONE, "READY", "HEALTHY")
    assert (node.hosts, node.spot, node.queued_resource) == (2, True, "queue-1")
    assert set(watcher.signal.answers) == {f"{ZONE}/train-1"}
    assert watcher.counts == {("GetNode", "OK"): 1}


def test_one_call_per_zone_and_poll_however_many_nodes_are_watched(cloud: Cloud, watch: Any) -> None:
    for n in range(1, 41):
        cloud.add(f"train-{n}")
    cloud.add("far-1", zone="europe-west4-b")
    watcher = watch(nodes=("train-*", "train-7", "europe-west4-b/*"))
    watcher.ask()
    assert sorted(listed(cloud)) == [
        f"projects/{PROJECT}/locations/europe-west4-b",
        f"projects/{PROJECT}/locations/{ZONE}",
    ]
    assert set(watcher.signal.answers) == {f"{ZONE}/train-{n}" for n in range(1, 41)} | {"europe-west4-b/far-1"}


def test_every_page_is_a_call_and_counted(cloud: Cloud, watch: Any) -> None:
    cloud.world.page_limit = 3
    for n in range(10):
        cloud.add(f"train-{n}")
    watcher = watch(node="", nodes=("*",))
    assert len(watcher.ask().value or ()) == 10
    assert watcher.counts == {("ListNodes", "OK"): 4, ("ListQueuedResources", "OK"): 1}
    assert len(listed(cloud)) == 4


def test_a_list_that_does_not_end_is_no_list(cloud: Cloud, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpu_client, "MAX_PAGES", 2)
    cloud.world.page_limit = 1
    for n in range(1, 5):
        cloud.add(f"train-{n}")
    watcher = watch(nodes=("train-4",))
    assert watcher.ask().problem is Problem.SERVER
    assert watcher.answer("train-4").problem is Problem.SERVER  # not gone


def test_a_page_that_fails_voids_the_list(cloud: Cloud, watch: Any) -> None:
    cloud.world.page_limit = 2
    for n in range(1, 5):
        cloud.add(f"train-{n}")
    watcher = watch(nodes=("train-4",))
    good = watcher.ask()
    cloud.world.faults.set(InjectedFault(method="ListNodes", code="UNAVAILABLE"))
    cloud.world.faults.set(InjectedFault(method="ListNodes", times=1))  # lets the first page pass
    answer = watcher.next()
    assert answer.problem is Problem.SERVER
    assert watcher.counts == {("ListNodes", "OK"): 3, ("ListNodes", "UNAVAILABLE"): 1, ("ListQueuedResources", "OK"): 1}
    assert answer.value == good.value
    assert watcher.answer("train-4").value is not None


def test_changed_is_when_it_was_first_seen_so(cloud: Cloud, watch: Any) -> None:
    node = cloud.add()
    watcher = watch()
    watcher.ask()
    first = watcher.node().changed
    cloud.world.faults.set(InjectedFault(method="GetNode", code="INTERNAL", times=1))
    for problem in (Problem.SERVER, None):  # a fault in between makes no difference
        assert watcher.next().problem is problem
        assert watcher.node().changed == first
    changed_at = cloud.clock.time()
    node.health = "TIMEOUT"
    watcher.next()
    assert (watcher.node().health, watcher.node().changed) == ("TIMEOUT", cloud.clock.time())
    assert cloud.clock.time() - changed_at <= 30.0  # it shows within an interval


def test_a_node_that_was_never_there_is_gone_and_the_line_names_what_to_check(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch(nodes=("trian-2",))
    assert watcher.ask().problem is None
    answer = watcher.answer("trian-2")
    assert (answer.problem, answer.value, answer.at) == (Problem.GONE, None, None)
    assert f"lists no node trian-2 in zone {ZONE} of project {PROJECT}" in answer.detail
    assert "`nodes` under [cloud]" in answer.detail
    assert watcher.answer().problem is None


def test_a_node_that_vanishes_is_gone_with_what_was_last_seen(cloud: Cloud, watch: Any) -> None:
    node = cloud.add()
    watcher = watch()
    watcher.ask()
    seen_at = cloud.clock.time()
    cloud.world.remove(node.path)
    for _ in range(3):
        assert watcher.next().problem is None
        answer = watcher.answer()
        assert answer.problem is Problem.GONE
        assert answer.value is not None
        assert answer.value.state == "READY"
        assert answer.at == seen_at
        assert answer.tried == cloud.clock.time()
        assert "lists the node train-1" in answer.detail
        assert "no more; it was last seen at 2026-" in answer.detail
    cloud.add(health="TIMEOUT")
    watcher.next()
    assert watcher.answer().problem is None
    assert watcher.node().health == "TIMEOUT"


def test_a_node_that_only_a_pattern_names_is_forgotten_when_it_goes(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    node = cloud.add("batch-1")
    watcher = watch(nodes=("batch-*",))
    watcher.ask()
    assert f"{ZONE}/batch-1" in watcher.signal.answers
    cloud.world.remove(node.path)
    watcher.next()
    assert set(watcher.signal.answers) == {f"{ZONE}/train-1"}


def test_what_an_unreachable_location_would_have_reported_is_not_gone(
    cloud: Cloud, watch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.add()
    lost = cloud.add("train-2")
    watcher = watch(nodes=("train-2", "t*"))
    watcher.ask()
    seen_at = cloud.clock.time()
    cloud.world.remove(lost.path)
    real = tpu_client.CloudClient._page

    def page(*args: Any) -> Any:
        reply = real(*args)
        reply.unreachable.append(f"projects/{PROJECT}/locations/{ZONE}")
        return reply

    monkeypatch.setattr(tpu_client.CloudClient, "_page", page)
    assert watcher.next().problem is Problem.UNREACHABLE
    assert watcher.answer("train-1").problem is None
    answer = watcher.answer("train-2")
    assert (answer.problem, answer.at) == (Problem.UNREACHABLE, seen_at)
    assert answer.value is not None
    monkeypatch.undo()
    assert watcher.next().problem is None
    assert watcher.answer("train-2").problem is Problem.GONE


def test_nodes_without_a_name_are_a_fault_not_gone(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch()
    watcher.ask()
    cloud.world.faults.set(InjectedFault(method="GetNode", drop=("name",)))
    assert watcher.next().problem is Problem.SERVER
    assert watcher.answer().problem is Problem.SERVER
    assert watcher.node().state == "READY"


def test_the_queued_resource_of_a_gone_node_is_reported(cloud: Cloud, watch: Any) -> None:
    node = cloud.add(queued_resource="queue-1")
    cloud.add("sister", queued_resource="queue-1", state="PREEMPTED")
    watcher = watch()
    watcher.ask()
    assert listed(cloud, "ListQueuedResources") == []
    cloud.world.remove(node.path)
    watcher.next()
    assert "Its queued resource queue-1 is SUSPENDED." in watcher.answer().detail
    queued = watcher.signal.queued[f"{ZONE}/train-1"].value
    assert (queued.name, queued.state) == ("queue-1", "SUSPENDED")
    began = cloud.clock.time()
    while cloud.clock.time() < began + 400:
        watcher.next()
    first, second = [call.time for call in cloud.world.calls if call.method == "ListQueuedResources"]
    assert 300 <= second - first <= 330
    assert watcher.counts["ListQueuedResources", "OK"] == 2


def test_a_gone_node_is_gone_whether_or_not_queued_resources_can_be_listed(cloud: Cloud, watch: Any) -> None:
    node = cloud.add(queued_resource="queue-1")
    watcher = watch()
    watcher.ask()
    cloud.world.remove(node.path)
    cloud.world.faults.set(InjectedFault(method="ListQueuedResources", code="PERMISSION_DENIED"))
    assert watcher.next().problem is None
    assert watcher.answer().problem is Problem.GONE
    assert watcher.counts["ListQueuedResources", "PERMISSION_DENIED"] == 1
    queued = watcher.signal.queued[f"{ZONE}/train-1"]
    assert (queued.value, queued.at, queued.problem) == (None, None, Problem.DENIED)


def test_without_a_queued_resource_that_makes_the_node_there_is_none(cloud: Cloud, watch: Any) -> None:
    cloud.add("other", queued_resource="queue-2")
    watcher = watch()
    watcher.ask()
    queued = watcher.signal.queued[f"{ZONE}/train-1"]
    assert (queued.value, queued.at, queued.problem) == (None, cloud.clock.time(), None)
    assert "Check the name" in watcher.answer().detail


def test_queued_resources_are_listed_for_each_node_that_goes_missing(cloud: Cloud, watch: Any) -> None:
    first, second = (cloud.add(name, queued_resource=f"queue-{name}") for name in ("train-1", "train-2"))
    watcher = watch(nodes=("train-2",))
    watcher.ask()
    assert watcher.counts["ListQueuedResources", "OK"] == 1  # others than the own one are watched
    for node in (first, second):
        cloud.add(f"{node.name}-sister", queued_resource=node.queued_resource, state="CREATING")
        cloud.world.remove(node.path)
        watcher.next()
    states = {label: answer.value and answer.value.state for label, answer in watcher.signal.queued.items()}
    assert states == {f"{ZONE}/train-1": "PROVISIONING", f"{ZONE}/train-2": "PROVISIONING"}
    assert watcher.counts["ListQueuedResources", "OK"] == 3
    watcher.next()
    assert watcher.counts["ListQueuedResources", "OK"] == 3


def test_the_alpha_reports_maintenance(cloud: Cloud, watch: Any) -> None:
    node = cloud.add()
    cloud.world.maintain(node)
    watcher = watch(use_v2alpha1=True)
    watcher.ask()
    assert watcher.node().maintenance is not None
    assert {call.service for call in cloud.world.calls} == {"google.cloud.tpu.v2alpha1.Tpu"}
    plain = watch()
    plain.ask()
    assert plain.node().maintenance is None


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNIMPLEMENTED"])
def test_without_the_alpha_v2_is_used_and_reported(
    cloud: Cloud, watch: Any, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(method="google.cloud.tpu.v2alpha1.*", code=code))
    watcher = watch(use_v2alpha1=True)
    assert watcher.ask().problem is None
    assert "v2alpha1 of the Cloud TPU API is not available" in caplog.text
    watcher.next()
    assert watcher.counts == {("GetNode", code): 1, ("GetNode", "OK"): 2}


def test_what_fails_in_both_versions_is_not_blamed_on_the_alpha(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(method="*Node*", code="PERMISSION_DENIED"))
    watcher = watch(use_v2alpha1=True)
    assert watcher.ask().problem is Problem.DENIED
    cloud.world.faults.clear()
    cloud.world.calls.clear()
    assert watcher.next().problem is None
    assert [call.service for call in cloud.world.calls] == ["google.cloud.tpu.v2alpha1.Tpu"]


def test_switched_off_it_asks_no_server(cloud: Cloud, watch: Any) -> None:
    watcher = watch(enabled=False)
    assert watcher.ask().problem is Problem.OFF
    assert not cloud.world.calls
    assert watcher.signal.due_in > 0


def test_without_a_place_to_ask_it_reports_what_is_lacking(cloud: Cloud, watch: Any) -> None:
    watcher = watch(nodes=("a",))
    watcher.identity = Identity(zone=Known(ZONE, "config"))
    answer = watcher.ask()
    assert (answer.problem, answer.value) == (Problem.UNCONFIGURED, None)
    assert "no project is configured" in answer.detail
    assert watcher.answer("a").problem is Problem.UNCONFIGURED
    assert answer.tried == watcher.answer("a").tried == cloud.clock.time()  # it was looked into: it is a fault to fix
    assert not cloud.world.calls
    assert watcher.signal.due_in == 30.0


def test_without_a_node_it_reports_that(watch: Any) -> None:
    answer = watch(node="").ask()
    assert answer.problem is Problem.UNCONFIGURED
    assert "no node to ask" in answer.detail


def test_an_identity_that_becomes_known_is_watched_from_then_on(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.add("train-2")
    watcher = watch(node="", nodes=("train-2",))
    watcher.ask()
    assert set(watcher.signal.answers) == {f"{ZONE}/train-2"}
    watcher.identity = Identity(Known(PROJECT, "config"), Known(ZONE, "config"), Known("train-1", "metadata"))
    watcher.ask()
    assert watcher.answer("train-1").problem is None
    assert watcher.node("train-1").state == "READY"
