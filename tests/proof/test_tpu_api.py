"""Tests of the stand-in for the Cloud TPU API: by Google's own client as it comes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import (
    DeadlineExceeded,
    FailedPrecondition,
    GoogleAPICallError,
    InvalidArgument,
    MethodNotImplemented,
    NotFound,
    ResourceExhausted,
    ServiceUnavailable,
)
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.rpc import error_details_pb2

from tests.standins.tpu_api import PAGE, Call, Fault, TpuApi
from tests.standins.tpu_nodes import METADATA_TYPE, PROJECT_NUMBER, RefusalError

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


def test_operations_tell_their_verb_target_and_time(site: Site) -> None:
    operation = site.call("stop_node", name=NODE).operation
    metadata = tpu_v2.OperationMetadata.pb()()
    metadata.ParseFromString(site.call("get_operation", name=operation.name).metadata.value)
    target = f"projects/{PROJECT_NUMBER}/locations/us-east5-a/nodes/train-1"
    assert (metadata.verb, metadata.target) == ("stop", target)
    assert metadata.create_time.ToMicroseconds() == int(site.time * 1e6)


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


def test_what_is_not_there_and_what_is_no_name(site: Site) -> None:
    for method in ("get_node", "stop_node", "start_node"):
        with pytest.raises(NotFound):
            site.call(method, name=f"{PARENT}/nodes/other")
        with pytest.raises(InvalidArgument):
            site.call(method, name="train-1")
    with pytest.raises(NotFound):
        site.call("get_operation", name=f"{PARENT}/operations/none")
    with pytest.raises(NotFound):
        site.call("reset_queued_resource", name=QUEUE)


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
    (queue,) = site.call("list_queued_resources", parent=PARENT)
    assert queue == site.call("get_queued_resource", name=QUEUE)
    assert [one.node_id for one in queue.tpu.node_spec] == ["slice-0", "slice-1"]


def test_lists_come_in_pages_and_of_one_place(site: Site) -> None:
    names = [site.api.nodes.add(f"{PARENT}/nodes/n-{number:03}") for number in range(PAGE + 20)]
    site.api.nodes.add("projects/lab/locations/europe-west4-b/nodes/n-000")
    pages = list(site.client.list_nodes(request={"parent": PARENT, "page_size": 1000}, timeout=SECONDS).pages)
    assert [len(page.nodes) for page in pages] == [PAGE, 21]
    assert [node.name for page in pages for node in page.nodes] == [*names, NODE]
    assert len(list(site.call("list_nodes", parent="projects/lab/locations/-"))) == PAGE + 22
    for name in names:
        site.api.nodes.stop(name, "another")
    first = site.call("list_operations", name=PARENT, page_size=1000)
    rest = site.call("list_operations", name=PARENT, page_token=first.next_page_token)
    assert (len(first.operations), len(rest.operations), rest.next_page_token) == (PAGE, 20, "")
    with pytest.raises(InvalidArgument):
        site.call("list_operations", name=PARENT, page_token="x")  # noqa: S106 (of a page)


def test_operations_are_filtered(site: Site) -> None:
    other = site.api.nodes.add(f"{PARENT}/nodes/other")
    site.call("stop_node", name=NODE)
    site.time += 20
    site.call("stop_node", name=other)
    site.call("start_node", name=NODE)
    target = f"projects/{PROJECT_NUMBER}/locations/us-east5-a/nodes/train-1"
    for text, count in (
        ("done=false", 2),
        ("done=true", 1),
        (f'metadata.target="{target}" AND done=false', 1),
        ("", 3),
    ):
        assert len(site.operations(filter=text)) == count, text
    for wrong in ({"filter": "colour=red"}, {"filter": "done"}, {"page_size": -1}):
        with pytest.raises(InvalidArgument):
            site.operations(**wrong)
    with pytest.raises(MethodNotImplemented):
        site.operations(return_partial_success=True)


@pytest.mark.parametrize(("fault", "done"), [(Fault.LOST, True), (Fault.UNHEARD, False)])
def test_of_an_answer_that_is_lost_it_is_not_known_what_it_was(site: Site, fault: Fault, done: bool) -> None:
    site.api.strike("StopNode", fault)
    with pytest.raises(ServiceUnavailable):
        site.call("stop_node", name=NODE)
    assert site.state() == ("STOPPING" if done else "READY")
    call = site.api.calls[0]
    assert (call.method, call.resource, call.done_at is not None, call.code) == ("StopNode", NODE, done, "UNAVAILABLE")
    assert "gapic/" in call.by


@pytest.mark.parametrize(("fault", "done"), [(Fault.HANGS, True), (Fault.BLACK_HOLE, False)])
def test_a_call_that_hangs_ends_by_its_deadline(site: Site, fault: Fault, done: bool) -> None:
    site.api.strike("StopNode", fault)
    with pytest.raises(DeadlineExceeded):
        site.call("stop_node", name=NODE, timeout=0.2)
    assert site.state() == ("STOPPING" if done else "READY")


def test_a_late_call_is_carried_out_though_the_caller_has_left() -> None:
    site = Site()
    site.api = TpuApi(lambda: site.time, speed=100.0)
    with site.api.running():
        site.connect()
        site.api.nodes.add(NODE)
        site.api.strike("StopNode", Fault.LATE)
        with pytest.raises(DeadlineExceeded):
            site.call("stop_node", name=NODE, timeout=0.2)
        deadline = time.monotonic() + SECONDS
        while site.state() == "READY" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert site.state() == "STOPPING"
        site.channel.close()


def test_a_quota_says_when_to_try_again(site: Site) -> None:
    site.api.strike("StopNode", Fault.QUOTA)
    with pytest.raises(ResourceExhausted, match="Quota exceeded") as caught:
        site.call("stop_node", name=NODE)
    (later,) = caught.value.details
    assert isinstance(later, error_details_pb2.RetryInfo)
    assert 5 <= later.retry_delay.seconds <= 20
    assert site.state() == "READY"


def test_a_start_finds_no_capacity_at_once_or_later(site: Site) -> None:
    site.call("stop_node", name=NODE)
    site.time += 20
    site.api.strike("StartNode", Fault.STOCKOUT, Fault.FAILS)
    with pytest.raises(ResourceExhausted, match="no more capacity"):
        site.call("start_node", name=NODE)
    assert site.state() == "STOPPED"
    operation = site.call("start_node", name=NODE).operation
    assert site.state() == "STARTING"
    site.time += 20
    assert site.state() == "STOPPED"
    error = site.call("get_operation", name=operation.name).error
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


def test_an_operation_that_vanished_has_its_effect(site: Site) -> None:
    site.api.strike("StopNode", Fault.VANISHES)
    name = site.call("stop_node", name=NODE).operation.name
    assert site.operations() == []
    with pytest.raises(NotFound):
        site.call("get_operation", name=name)
    assert site.state() == "STOPPING"


def test_a_stale_look_shows_what_was(site: Site) -> None:
    site.call("stop_node", name=NODE)
    site.time += 0.001
    site.api.strike("GetNode", Fault.STALE)
    site.api.strike("ListOperations", Fault.STALE)
    assert site.state() == "READY"
    assert site.operations() == []
    assert (site.state(), len(site.operations())) == ("STOPPING", 1)


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


def test_for_a_while_all_looks_show_what_was_some_time_before(site: Site) -> None:
    site.call("stop_node", name=NODE)
    site.time += 500
    site.api.show_what_was(frozenset({"GetNode", "ListNodes"}), 100.0, age=600.0)
    assert site.state() == "READY"
    assert [State(node.state).name for node in site.call("list_nodes", parent=PARENT)] == ["READY"]
    site.api.is_spared = lambda resource: resource == NODE
    assert site.state() == "STOPPED"


def test_a_list_lacks_a_node_or_has_each_twice(site: Site) -> None:
    site.api.strike("ListNodes", Fault.LACKS, Fault.TWICE)
    assert [*site.call("list_nodes", parent=PARENT)] == []
    twice = [(node.name, Health(node.health).name) for node in site.call("list_nodes", parent=PARENT)]
    assert sorted(twice) == [(NODE, "HEALTHY"), (NODE, "TIMEOUT")]


def test_a_call_is_refused_by_a_fault_or_by_who_looks_before_it(site: Site) -> None:
    site.api.strike("StopNode", Fault.PRECONDITION)
    with pytest.raises(FailedPrecondition):
        site.call("stop_node", name=NODE)

    def refuse(_: Call) -> None:
        raise RefusalError(grpc.StatusCode.UNAVAILABLE, "Not now.")

    site.api.on_change = refuse
    with pytest.raises(ServiceUnavailable, match="Not now"):
        site.call("stop_node", name=NODE)
    assert (site.state(), site.api.nodes.events) == ("READY", [])


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


def test_a_part_of_a_list_says_so(site: Site) -> None:
    site.api.strike("ListNodes", Fault.PART)
    (page,) = site.client.list_nodes(request={"parent": PARENT}, timeout=SECONDS).pages
    assert ([*page.nodes], [*page.unreachable]) == ([], [PARENT])


def test_another_client_recreates_a_node(site: Site) -> None:
    before = site.call("get_node", name=NODE)
    site.api.nodes.recreate(NODE, "another")
    seen = [site.state()]
    site.time += 11
    with pytest.raises(NotFound):
        site.call("get_node", name=NODE)
    with pytest.raises(NotFound):
        site.call("stop_node", name=NODE)
    site.time += 2
    seen.append(site.state())
    site.time += 40
    after = site.call("get_node", name=NODE)
    assert [*seen, State(after.state).name] == ["DELETING", "CREATING", "READY"]
    assert after.id != before.id
    assert after.create_time > before.create_time
    assert {event.by for event in site.api.nodes.events} == {"another"}


def test_shares_of_calls_are_struck_the_same_way_by_the_same_seed() -> None:
    def seen(seed: int) -> list[str]:
        api = TpuApi(lambda: 1.0, seed=seed, shares={"GetNode": {Fault.UNHEARD: 0.5}})
        with api.running(), grpc.insecure_channel(api.address) as channel:
            client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
            api.nodes.add(NODE)
            for _ in range(20):
                with contextlib.suppress(GoogleAPICallError):
                    client.get_node(request={"name": NODE}, retry=None, timeout=SECONDS)
        return [call.code for call in api.calls]

    first = seen(1)
    assert first == seen(1) != seen(2)
    assert {"OK", "UNAVAILABLE"} == {*first}


def test_who_looks_before_a_change_sees_that_it_is_not_done_yet(site: Site) -> None:
    states = []
    site.api.on_change = lambda call: states.append((call.method, site.api.nodes.get(call.resource).state))
    site.call("stop_node", name=NODE)
    assert states == [("StopNode", State.READY)]
