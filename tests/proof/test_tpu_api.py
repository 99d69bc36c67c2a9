"""Tests of the stand-in for the Cloud TPU API: by Google's own client as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import (
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    ServiceUnavailable,
)
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.standins.tpu_api import Fault, TpuApi
from tests.standins.tpu_nodes import METADATA_TYPE, PROJECT_NUMBER

PARENT = "projects/lab/locations/us-east5-a"
NODE = f"{PARENT}/nodes/train-1"
QUEUE = f"{PARENT}/queuedResources/queue-1"
SECONDS = 30.0  # of each call
State, Health = tpu_v2.Node.State, tpu_v2.Node.Health


class Site:
    """The stand-in, with a time that the test moves, and a client of it."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.0
        self.api = TpuApi(lambda: self.time, seed=1)

    def connect(self) -> None:
        self.channel = grpc.insecure_channel(self.api.address)
        self.client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=self.channel))

    def call(self, method: str, timeout: float = SECONDS, **request: Any) -> Any:
        return getattr(self.client, method)(request=request, retry=None, timeout=timeout)

    def state(self, name: str = NODE) -> str:
        return State(self.call("get_node", name=name).state).name

    def operations(self, **request: Any) -> list[Any]:
        return list(self.call("list_operations", name=PARENT, **request).operations)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    with made.api.running():
        made.connect()
        made.api.nodes.add(NODE)
        yield made
        made.channel.close()


def test_a_node_is_stopped_and_started_in_its_time(site: Site) -> None:
    stop = site.call("stop_node", name=NODE).operation
    assert (stop.done, stop.metadata.type_url) == (False, METADATA_TYPE)
    assert site.state() == "STOPPING"
    site.time += 20
    assert site.state() == "STOPPED"
    (listed,) = site.operations()
    assert (listed.name, listed.done, listed.HasField("response")) == (stop.name, True, True)
    metadata = tpu_v2.OperationMetadata.pb().FromString(listed.metadata.value)
    target = f"projects/{PROJECT_NUMBER}/locations/us-east5-a/nodes/train-1"
    assert (metadata.verb, metadata.target) == ("stop", target)
    start = site.call("start_node", name=NODE).operation
    assert site.state() == "STARTING"
    site.time += 40
    node = site.call("get_node", name=NODE)
    assert (node.state, node.health) == (State.READY, Health.HEALTH_UNSPECIFIED)  # not checked yet
    site.time += 5
    assert site.call("get_node", name=NODE).health == Health.HEALTHY
    assert [one.name for one in site.operations()] == [start.name, stop.name]
    assert [event.what for event in site.api.nodes.events] == ["stop", "stopped", "start", "booted"]
    assert site.api.nodes.boots(NODE) == 2


@pytest.mark.parametrize(("method", "right"), [("stop_node", "READY"), ("start_node", "STOPPED")])
def test_a_call_in_another_state_is_refused(site: Site, method: str, right: str) -> None:
    before = "stop" if method == "start_node" else ""
    if before:
        site.call("stop_node", name=NODE)
        site.time += 20
    site.call(method, name=NODE)
    for _ in range(2):
        with pytest.raises(FailedPrecondition, match=f"must be {right}"):
            site.call(method, name=NODE)
        site.time += 100
    assert len(site.api.nodes.events) == (4 if before else 2)


def test_several_hosts_are_reset_together_and_cannot_be_stopped(site: Site) -> None:
    names = [site.api.nodes.add(f"{PARENT}/nodes/slice-{number}", hosts=4, queue=QUEUE) for number in range(2)]
    site.api.nodes.hang(names[0])
    with pytest.raises(FailedPrecondition, match="single TPU nodes"):
        site.call("stop_node", name=names[0])
    site.call("reset_queued_resource", name=QUEUE)
    assert {site.state(name) for name in names} == {"RESTARTING"}
    with pytest.raises(FailedPrecondition):
        site.call("reset_queued_resource", name=QUEUE)
    site.time += 40
    assert {site.call("get_node", name=name).health for name in names} == {Health.HEALTHY}
    assert [site.api.nodes.boots(name) for name in names] == [2, 2]


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (Fault.LOST, ServiceUnavailable, True),
        (Fault.UNHEARD, ServiceUnavailable, False),
        (Fault.HANGS, DeadlineExceeded, True),
        (Fault.BLACK_HOLE, DeadlineExceeded, False),
    ],
)
def test_a_call_without_an_answer_is_carried_out_or_not(
    site: Site, fault: Fault, error: type[Exception], done: bool
) -> None:
    site.api.strike("StopNode", fault)
    with pytest.raises(error):
        site.call("stop_node", name=NODE, timeout=SECONDS if error is ServiceUnavailable else 0.2)
    assert site.state() == ("STOPPING" if done else "READY")
    call = site.api.calls[0]
    assert (call.method, call.resource, call.done_at is not None) == ("StopNode", NODE, done)


def test_a_start_finds_no_capacity_at_once_or_later(site: Site) -> None:
    site.call("stop_node", name=NODE)
    site.time += 20
    site.api.strike("StartNode", Fault.STOCKOUT, Fault.FAILS)
    with pytest.raises(ResourceExhausted, match="no more capacity"):
        site.call("start_node", name=NODE)
    assert site.state() == "STOPPED"
    site.call("start_node", name=NODE)
    assert site.state() == "STARTING"
    site.time += 20
    assert site.state() == "STOPPED"
    error = site.operations()[0].error
    assert (error.code, "no more capacity" in error.message) == (8, True)
    site.call("start_node", name=NODE)


def test_a_stop_that_fails_leaves_the_node_as_it_was(site: Site) -> None:
    site.api.nodes.hang(NODE)
    site.api.strike("StopNode", Fault.FAILS)
    site.call("stop_node", name=NODE)
    site.time += 10
    node = site.call("get_node", name=NODE)
    assert (node.state, node.health) == (State.READY, Health.TIMEOUT)
    assert [one.error.code for one in site.operations()] == [13]


def test_for_a_while_a_look_shows_what_was_when_that_began(site: Site) -> None:
    other = site.api.nodes.add(f"{PARENT}/nodes/other")
    site.api.show_what_was(frozenset({"GetNode", "ListOperations"}), 150.0, resource=NODE)
    site.time += 0.001
    for name in (NODE, other):
        site.call("stop_node", name=name)
    site.time += 100
    assert (site.state(), site.state(other)) == ("READY", "STOPPED")
    listed = {node.name: State(node.state).name for node in site.call("list_nodes", parent=PARENT)}
    assert listed == {NODE: "STOPPED", other: "STOPPED"}
    assert len(site.operations()) == 1
    assert [(call.age, State(call.node.state).name) for call in site.api.calls if call.method == "GetNode"] == [
        (pytest.approx(100.001), "READY"),
        (0.0, "STOPPED"),
    ]
    site.time += 60
    assert (site.state(), len(site.operations())) == ("STOPPED", 2)


def test_what_is_true_of_a_node_is_known_whatever_is_shown(site: Site) -> None:
    site.api.nodes.hang(NODE)
    assert site.api.nodes.truth(NODE).well_since is None
    site.time += 10
    site.api.nodes.heal(NODE)
    site.time += 10
    site.api.nodes.heal(NODE)
    assert (site.api.nodes.truth(NODE).well_since, site.api.nodes.truth(NODE).booted) == (site.time - 10, 0.0)
    site.call("stop_node", name=NODE)
    site.time += 20
    site.call("start_node", name=NODE)
    site.time += 100
    truth = site.api.nodes.truth(NODE)
    assert (truth.boots, truth.well_since, truth.booted) == (2, site.time - 60, site.time - 60)
