"""Queued resources of a zone: which are known, which nodes they make, and what is wrong by several lists alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.cloud import tpu_v2

from tests.unit.signals.test_cloud_zone import QUEUES, Service, queued_resource, watch
from tests.unit.sim.cloud.servers import PROJECT, ZONE, Cloud
from tpuwatch.core.clock import ManualClock
from tpuwatch.google.errors import ApiError, ApiFault
from tpuwatch.google.tpu_queued_resource import convert_queued_resource
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import QUEUED_STATES, QUEUED_WAITING, QueuedResource
from tpuwatch.signals.cloud import CloudZone
from tpuwatch.signals.queued_resources import ASK_SECONDS, KNOWN_SECONDS, LOST_LISTS

INTERVAL = 30.0


class Zone:
    """A zone over a service that the test changes, polled by its clock."""

    def __init__(self, *names: str) -> None:
        self.service = Counting()
        self.clock = ManualClock()
        self.zone = CloudZone(watch(*names), interval=INTERVAL, clock=self.clock, rng=random.Random(1))

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(INTERVAL)
            self.zone.poll(self.service)  # type: ignore[arg-type] # it stands in for a client

    def known(self) -> dict[str, QueuedResource]:
        found = self.zone.queued_resources
        assert found is not None
        return {one.name: one for one in found}

    def problems(self) -> dict[str, Problem | None]:
        return {label.partition("/")[2]: answer.problem for label, answer in self.zone.answers()}


class Counting(Service):
    lists = 0
    refuses = False

    def list_queued_resources(self, project: str, zone: str) -> Any:
        self.lists += 1
        if self.refuses:
            raise ApiError(ApiFault(Problem.DENIED, "PERMISSION_DENIED", "No."))
        return super().list_queued_resources(project, zone)


def multislice(name: str, state: str, count: int, prefix: str = "") -> tpu_v2.QueuedResource:
    several = {"node_count": count, "node_id_prefix": prefix}
    return tpu_v2.QueuedResource(
        name=QUEUES + name, state={"state": state}, tpu={"node_spec": [{"multislice_params": several}]}
    )


def test_what_makes_made_or_names_a_watched_node_is_known_and_nothing_else() -> None:
    at = Zone("n*")
    at.service.nodes = {"n1": {"state": "READY", "queued_resource": f"{QUEUES}named"}}
    at.service.queued = [
        queued_resource("makes", "ACCEPTED", "n2"),
        queued_resource("named", "ACTIVE"),
        queued_resource("other", "FAILED", "m1"),
        multislice("several", "CREATING", 2, "n"),
    ]
    at.poll()
    assert at.known().keys() == {"makes", "named", "several"}
    assert at.known()["several"].nodes == ("n-0", "n-1")


def test_it_is_listed_every_five_minutes_and_sooner_when_a_node_goes_missing_or_comes() -> None:
    at = Zone("n*", "m1")
    at.service.nodes = {name: {"state": "READY"} for name in ("n1", "m1")}
    at.service.queued = [queued_resource("q1", "ACTIVE", "n1"), queued_resource("q2", "PROVISIONING", "n2")]
    at.poll()
    assert at.service.lists == 1
    at.poll(9)
    assert at.service.lists == 1
    at.poll()
    assert at.service.lists == 2
    del at.service.nodes["m1"]  # a name
    at.poll()
    assert at.service.lists == 3
    del at.service.nodes["n1"]  # it matches a pattern, and a queued resource made it
    at.poll()
    assert at.service.lists == 4
    at.service.nodes["n2"] = {"state": "READY"}
    at.service.queued[1] = queued_resource("q2", "ACTIVE", "n2")
    at.poll()
    assert at.service.lists == 5
    assert at.known()["q2"].state == "ACTIVE"


@pytest.mark.parametrize("state", [*QUEUED_STATES, 17])
def test_a_node_that_a_pattern_matches_and_that_is_still_to_come_is_awaited(state: str | int) -> None:
    at = Zone("n*")
    number = state if isinstance(state, int) else tpu_v2.QueuedResourceState.State[state]
    at.service.queued = [queued_resource("q1", number, "n1"), multislice("n", number, 2)]  # type: ignore[arg-type]
    at.poll()
    if state in QUEUED_WAITING:
        assert at.problems() == dict.fromkeys(("n1", "n-0", "n-1"), Problem.GONE)
        answers = dict(at.zone.queued())
        assert {label: answer.value and answer.value.state for label, answer in answers.items()} == {
            f"us-a/{name}": state for name in ("n1", "n-0", "n-1")
        }
        at.service.nodes = {"n1": {"state": "CREATING"}}
        at.poll()
        assert at.problems() == {"n1": None, "n-0": Problem.GONE, "n-1": Problem.GONE}
        at.service.unreachable = ["us-a"]
        at.poll()
        assert at.problems() == {"n1": None, "n-0": Problem.UNREACHABLE, "n-1": Problem.UNREACHABLE}
    else:
        assert at.problems() == {}


def test_a_request_that_has_failed_makes_no_node_of_a_pattern_any_more() -> None:
    at = Zone("n*", "m1")
    at.service.queued = [queued_resource("q1", "ACCEPTED", "n1"), queued_resource("q2", "ACCEPTED", "m1")]
    at.poll()
    assert at.problems() == {"n1": Problem.GONE, "m1": Problem.GONE}
    at.service.queued = [queued_resource("q1", "FAILED", "n1"), queued_resource("q2", "FAILED", "m1")]
    at.poll(10)
    assert at.problems() == {"m1": Problem.GONE}  # a name stays
    ((label, answer),) = at.zone.queued()
    assert (label, answer.value and answer.value.state) == ("us-a/m1", "FAILED")
    (gone,) = (answer.detail for _, answer in at.zone.answers())
    assert "Its queued resource q2 is FAILED." in gone
    assert "Check the name" not in gone


@pytest.mark.parametrize("name", ["n1", "n*"])
def test_one_list_without_a_node_makes_no_orphan(name: str) -> None:
    at = Zone(name)
    at.service.nodes = {"n1": {"state": "READY", "queued_resource": f"{QUEUES}q1"}}
    at.service.queued = [queued_resource("q1", "ACTIVE", "n1", "x2")]
    at.service.nodes["x2"] = {"state": "READY", "queued_resource": f"{QUEUES}q1"}  # it is not watched
    at.poll(20)
    lists = at.service.lists
    node = at.service.nodes.pop("n1")
    at.poll(LOST_LISTS - 1)
    assert at.known()["q1"].lost == ()
    at.service.nodes["n1"] = node
    at.poll()
    assert at.known()["q1"].lost == ()
    del at.service.nodes["n1"]
    at.poll(LOST_LISTS - 1)
    assert at.known()["q1"].lost == ()
    at.service.unreachable = ["us-a"]  # such a list lacks nodes
    at.poll()
    assert at.known()["q1"].lost == ()
    at.service.unreachable = []
    at.poll()
    assert at.known()["q1"].lost == ("n1",)
    assert at.service.lists > lists
    at.service.nodes["n1"] = node
    at.poll()
    assert at.known()["q1"].lost == ()


def test_a_queued_resource_that_went_with_its_node_is_no_orphan() -> None:
    at = Zone("n*")
    at.service.nodes = {"n1": {"state": "READY", "queued_resource": f"{QUEUES}q1"}}
    at.service.queued = [queued_resource("q1", "ACTIVE", "n1")]
    at.poll()
    at.service.nodes = {}
    at.poll()
    at.service.queued = []  # a moment later than the node
    at.poll(LOST_LISTS)
    assert at.known() == {}


def test_a_queued_resource_that_nodes_name_and_two_lists_lack_is_known_without_a_state() -> None:
    at = Zone("n*")
    at.service.nodes = {name: {"state": "READY", "queued_resource": f"{QUEUES}q1"} for name in ("n2", "n1")}
    at.poll(10)
    assert at.known() == {}
    at.poll()
    assert at.known() == {"q1": QueuedResource("q1", "", "lab", "us-a", ("n1", "n2"))}
    at.service.queued = [queued_resource("q1", "ACTIVE", "n1")]
    at.poll(10)
    assert at.known()["q1"].state == "ACTIVE"


def test_the_queued_resource_of_a_node_that_is_not_ready_is_told(cloud: Cloud, watch: Any) -> None:
    cloud.add("train-2", queued_resource="queue-2", state="PREEMPTED", spot=True)
    cloud.add("train-3", queued_resource="queue-3")
    watcher = watch(nodes=("train-*",))
    watcher.ask()
    answers = {label: answer.value and answer.value.state for label, answer in watcher.signal.queued.items()}
    assert answers == {f"{ZONE}/train-1": None, f"{ZONE}/train-2": "SUSPENDED"}
    states = {one.name: one.state for one in watcher.signal.queued_resources[ZONE]}
    assert states == {"queue-2": "SUSPENDED", "queue-3": "ACTIVE"}
    assert watcher.signal.queued_resources[ZONE][0].project == PROJECT


def test_a_daemon_that_watches_its_own_node_alone_knows_them_only_while_that_is_gone(cloud: Cloud, watch: Any) -> None:
    node = cloud.add(queued_resource="queue-1")
    cloud.add("sister", queued_resource="queue-1", state="CREATING")
    watcher = watch()
    watcher.ask()
    assert watcher.signal.queued_resources == {}
    cloud.world.remove(node.path)
    watcher.next()
    assert [one.state for one in watcher.signal.queued_resources[ZONE]] == ["PROVISIONING"]
    cloud.add(queued_resource="queue-1")
    watcher.next()
    assert watcher.signal.queued_resources == {}


def test_a_fault_keeps_the_last_ones_with_their_time() -> None:
    at = Zone("n1")
    at.service.queued = [queued_resource("q1", "ACCEPTED", "n1")]
    at.poll()
    listed = at.clock.time()
    at.service.refuses = True
    at.poll(10)
    assert at.service.lists == 2
    assert at.known()["q1"].state == "ACCEPTED"
    ((_, answer),) = at.zone.queued()
    assert (answer.problem, answer.at, answer.tried) == (Problem.DENIED, listed, at.clock.time())


def test_all_that_the_api_tells_of_one_is_read_and_bounded() -> None:
    raw = tpu_v2.QueuedResource(
        name=f"{QUEUES}q1",
        create_time={"seconds": 1000},
        queueing_policy={"valid_until_time": {"seconds": 2000}},
        spot={},
        state={
            "state": "FAILED",
            "state_initiator": "SERVICE",
            "failed_data": {"error": {"message": "no capacity\x1b[31m " + "x" * 1000}},
        },
        tpu={"node_spec": [{"node_id": "n1"}, {"node_id": "../n2"}, {"multislice_params": {"node_count": 1 << 30}}]},
    )
    one = convert_queued_resource(tpu_v2.QueuedResource.pb(raw), "lab", "us-a")
    assert one is not None
    assert (one.name, one.state, one.initiator, one.label) == ("q1", "FAILED", "SERVICE", "us-a/q1")
    assert (one.created, one.valid_until, one.spot) == (1000.0, 2000.0, True)
    assert one.detail.startswith("no capacity")
    assert one.detail.isprintable()
    assert len(one.detail) <= 500
    assert one.nodes[:3] == ("n1", "n2", "q1-0")
    assert len(one.nodes) == 4096
    nameless = tpu_v2.QueuedResource(name="queuedResources/Ü")
    assert convert_queued_resource(tpu_v2.QueuedResource.pb(nameless), "lab", "us-a") is None
    plain = convert_queued_resource(tpu_v2.QueuedResource.pb(tpu_v2.QueuedResource(name="q")), "lab", "us-a")
    assert plain == QueuedResource("q", "STATE_UNSPECIFIED", "lab", "us-a")


def test_a_list_that_is_too_old_shows_nothing_any_more() -> None:
    at = Zone("n*")
    at.service.nodes = {"n1": {"state": "READY"}}
    at.service.queued = [queued_resource("q1", "FAILED", "n1")]
    at.poll()
    at.service.refuses = True
    at.poll(int(KNOWN_SECONDS / INTERVAL))
    assert at.known().keys() == {"q1"}
    at.poll()
    assert at.zone.queued_resources is None
    at.service.refuses = False
    at.poll(int(ASK_SECONDS / INTERVAL))
    assert at.known().keys() == {"q1"}
