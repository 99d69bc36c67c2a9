"""Tests of the Cloud TPU API as the executor asks it, against the simulated cloud through Google's own client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from google.longrunning import operations_pb2

from tests.unit.restart.records import TARGET
from tests.unit.sim.cloud.servers import Cloud, cloud_running
from tpuwatch.config import schema
from tpuwatch.google.permissions import PermissionsClient
from tpuwatch.model.restart import Target
from tpuwatch.restart import cloud_api as cloud_module
from tpuwatch.restart.cloud_api import CloudNodeApi
from tpuwatch.restart.workflow.types import ApiCall
from tpuwatch.sim.cloud.faults import InjectedFault


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with cloud_running() as running:
        yield running


@pytest.fixture
def counts() -> Counter[tuple[str, str]]:
    return Counter()


@pytest.fixture
def api(cloud: Cloud, counts: Counter[tuple[str, str]]) -> Iterator[CloudNodeApi]:
    config = schema.CloudConfig(endpoint=cloud.server.address, insecure=True, timeout_seconds=20)
    made = CloudNodeApi(config, clock=cloud.clock, counted=lambda method, code: counts.update([(method, code)]))
    yield made
    made.close()


def test_a_look_shows_the_node(cloud: Cloud, api: CloudNodeApi, counts: Counter[tuple[str, str]]) -> None:
    cloud.add(hosts=4, spot=True, queued_resource="queue-1")
    sight = api.look(TARGET, since=0.0)
    assert (sight.state, sight.health, sight.gone, sight.fault) == ("READY", "HEALTHY", False, "")
    assert (sight.hosts, sight.spot, sight.queued_resource) == (4, True, "queue-1")
    assert sight.created == pytest.approx(cloud.clock.time())
    assert (sight.operations, sight.listed) == ((), True)
    assert sight.at == cloud.clock.time()
    assert counts == {("GetNode", "OK"): 1, ("ListNodes", "OK"): 1, ("ListOperations", "OK"): 1}


def test_a_look_without_operations_is_one_call(
    cloud: Cloud, api: CloudNodeApi, counts: Counter[tuple[str, str]]
) -> None:
    cloud.add()
    api.call(ApiCall.STOP, TARGET, "")
    sight = api.look(TARGET, since=None)
    assert (sight.state, sight.operations, sight.listed) == ("STOPPING", None, False)
    assert counts == {("StopNode", "OK"): 1, ("GetNode", "OK"): 1}


@pytest.mark.parametrize("common", [False, True])
def test_a_stop_and_a_start_and_their_operations(cloud: Cloud, api: CloudNodeApi, common: bool) -> None:
    cloud.world.common_metadata = common  # google.cloud.common.OperationMetadata, which Google's own client chokes on
    cloud.add()
    cloud.add("other")
    api.call(ApiCall.STOP, Target("lab", "us-east5-a", "other"), "")
    stop = api.call(ApiCall.STOP, TARGET, "")
    assert (stop.code, stop.message) == ("", "")
    began = cloud.clock.time()
    (shown,) = api.look(TARGET, since=0.0).operations
    assert (shown.name, shown.verb, shown.done, shown.code) == (stop.operation, "stop", False, 0)
    assert shown.created == pytest.approx(began)
    cloud.pass_time(60)
    start = api.call(ApiCall.START, TARGET, "")
    cloud.pass_time(180)
    sight = api.look(TARGET, since=0.0)
    assert sight.state == "READY"
    assert [(one.name, one.verb, one.done) for one in sight.operations] == [
        (start.operation, "start", True),
        (stop.operation, "stop", True),
    ]
    later = api.look(TARGET, since=began + 1)
    assert [one.verb for one in later.operations] == ["start"]


def test_the_other_nodes_of_the_queued_resource_are_listed_with_the_operations(cloud: Cloud, api: CloudNodeApi) -> None:
    for name, queue in (("train-1", "queue-1"), ("train-2", "queue-1"), ("train-3", "queue-2")):
        cloud.add(name, hosts=4, queued_resource=queue)
    assert api.look(TARGET, since=None).beside is None
    (other,) = api.look(TARGET, since=0.0).beside or ()
    assert (other.name, other.said) == ("train-2", "READY, HEALTHY")
    cloud.world.faults.set(InjectedFault("ListNodes", code="PERMISSION_DENIED", times=1))
    blind = api.look(TARGET, since=0.0)
    assert (blind.state, blind.beside, blind.beside_fault != "") == ("READY", None, True)


def test_a_reset_is_of_the_queued_resource_and_found_by_its_nodes(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add(hosts=4, queued_resource="queue-1")
    reset = api.call(ApiCall.RESET, TARGET, "queue-1")
    sight = api.look(TARGET, since=0.0)
    assert sight.state == "RESTARTING"
    assert [(one.name, one.verb) for one in sight.operations] == [(reset.operation, "reset")]


def test_a_failed_operation_shows_why(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add(state="STOPPED")
    cloud.world.capacity["us-east5-a"] = 0
    api.call(ApiCall.START, TARGET, "")
    cloud.pass_time(180)
    (shown,) = api.look(TARGET, since=0.0).operations
    assert (shown.done, shown.code) == (True, 8)
    assert "no more capacity" in shown.message


def test_a_node_that_is_gone(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add("other")
    sight = api.look(TARGET, since=0.0)
    assert (sight.state, sight.gone, sight.shown, sight.listed) == ("", True, "GONE", True)


def test_a_project_that_is_not_there_is_no_node_that_is_gone(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add()
    sight = api.look(Target("elsewhere", "us-east5-a", "train-1"), since=0.0)
    assert (sight.shown, sight.gone) == ("", False)
    assert "project" in sight.fault


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"])
def test_a_node_that_cannot_be_asked_for_shows_nothing(cloud: Cloud, api: CloudNodeApi, code: str) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("GetNode", code=code))
    sight = api.look(TARGET, since=0.0)
    assert (sight.shown, sight.gone, sight.listed) == ("", False, False)
    assert sight.fault.endswith(('".', "."))
    if code == "PERMISSION_DENIED":
        assert "tpu.nodes.get" in sight.fault


def test_operations_that_cannot_be_listed_are_not_taken_for_none(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add()
    api.call(ApiCall.STOP, TARGET, "")
    cloud.world.faults.set(InjectedFault("ListOperations", code="PERMISSION_DENIED"))
    sight = api.look(TARGET, since=0.0)
    assert (sight.state, sight.operations, sight.listed) == ("STOPPING", (), False)
    assert "tpu.operations.list" in sight.fault


def test_all_pages_of_operations_are_read(cloud: Cloud, api: CloudNodeApi, counts: Counter[tuple[str, str]]) -> None:
    cloud.world.page_limit = 2
    for number in range(1, 6):
        cloud.add(f"train-{number}")
        api.call(ApiCall.STOP, Target("lab", "us-east5-a", f"train-{number}"), "")
    assert [one.verb for one in api.look(TARGET, since=0.0).operations] == ["stop"]
    assert counts["ListOperations", "OK"] == 3


def test_a_list_that_does_not_end_and_a_page_that_fails_void_the_list(
    cloud: Cloud, api: CloudNodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.world.page_limit = 1
    for number in range(1, 5):
        cloud.add(f"train-{number}")
        api.call(ApiCall.STOP, Target("lab", "us-east5-a", f"train-{number}"), "")
    monkeypatch.setattr(cloud_module, "MAX_PAGES", 2)
    assert not api.look(TARGET, since=0.0).listed
    monkeypatch.undo()
    cloud.world.faults.set(InjectedFault("ListOperations", code="UNAVAILABLE"))
    cloud.world.faults.set(InjectedFault("ListOperations", times=1))  # lets the first page pass
    sight = api.look(TARGET, since=0.0)
    assert (sight.listed, sight.operations) == (False, ())


def test_more_operations_than_are_reported_are_no_whole_list(
    cloud: Cloud, api: CloudNodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.add(state="STOPPED")
    cloud.world.capacity["us-east5-a"] = 0
    monkeypatch.setattr(cloud_module, "MAX_OPERATIONS", 2)
    names = []
    for _ in range(3):
        names.insert(0, api.call(ApiCall.START, TARGET, "").operation)
        cloud.pass_time(200)
    sight = api.look(TARGET, since=0.0)
    assert ([one.name for one in sight.operations], sight.listed) == (names[:2], False)


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "NOT_FOUND"])
def test_a_refusal_says_so(cloud: Cloud, api: CloudNodeApi, code: str) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("StopNode", code=code, message="It will not be.", retry_after_seconds=42.0))
    answer = api.call(ApiCall.STOP, TARGET, "")
    assert (answer.operation, answer.code, answer.retry_after) == ("", code, 42.0)
    assert "It will not be." in answer.message
    assert "train-1" in answer.message
    if code == "PERMISSION_DENIED":
        assert "tpu.nodes.stop" in answer.message


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "UNKNOWN", "CANCELLED"])
@pytest.mark.parametrize("done", [True, False])
def test_what_may_have_been_carried_out_is_not_reported_as_refused(
    cloud: Cloud, api: CloudNodeApi, code: str, done: bool
) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("StopNode", code=code, after_work=done))
    answer = api.call(ApiCall.STOP, TARGET, "")
    assert (answer.operation, answer.code) == ("", "")
    assert "may have been carried out or not" in answer.message
    assert cloud.happened() == (["stop"] if done else [])


def test_a_black_hole_ends_at_the_deadline(cloud: Cloud) -> None:
    cloud.add()
    config = schema.CloudConfig(endpoint=cloud.server.address, insecure=True, timeout_seconds=0.2)
    api = CloudNodeApi(config, clock=cloud.clock)
    cloud.world.faults.set(InjectedFault("StopNode", black_hole=True, after_work=True))
    answer = api.call(ApiCall.STOP, TARGET, "")
    assert (answer.operation, answer.code) == ("", "")
    assert cloud.happened() in ([], ["stop"])  # the deadline may have passed on the way there
    cloud.world.faults.set(InjectedFault("ListOperations", black_hole=True))
    assert not api.look(TARGET, since=0.0).listed
    cloud.world.faults.set(InjectedFault("GetNode", black_hole=True))
    assert api.look(TARGET, since=0.0).shown == ""
    api.close()


def test_nobody_there_is_no_word_of_the_node(cloud: Cloud) -> None:
    config = schema.CloudConfig(endpoint="127.0.0.1:1", insecure=True, timeout_seconds=20)
    api = CloudNodeApi(config, clock=cloud.clock)
    assert api.look(TARGET, since=0.0).shown == ""
    answer = api.call(ApiCall.START, TARGET, "")
    assert (answer.operation, answer.code) == ("", "")
    api.close()


def test_states_that_are_newer_than_the_package_are_listed(cloud: Cloud, api: CloudNodeApi) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("GetNode", wrong_enum=True))
    sight = api.look(TARGET, since=0.0)
    assert (sight.state, sight.health) == ("STATE_99", "HEALTH_99")


def raw_operation(**fields: Any) -> Any:
    name = fields.pop("name", "projects/lab/locations/us-east5-a/operations/operation-1790000000123-5f0-1")
    operation = operations_pb2.Operation(name=name)
    operation.metadata.Pack(cloud_module.tpu_v2.OperationMetadata.pb()(**fields))
    return operation


def test_operations_are_read_with_care() -> None:
    by_number = "projects/123456/locations/us-east5-a/nodes/train-1"  # the project's number in place of its name
    reported = cloud_module._listed(raw_operation(target=by_number, verb="StopNode"))
    assert reported.place == "us-east5-a/nodes/train-1"
    assert (reported.operation.verb, reported.operation.created) == (
        "stop",
        1790000000.123,
    )  # by its name: it does not say
    unnamed = cloud_module._listed(raw_operation(target=by_number, verb="\x00odd", name="x"))
    assert (unnamed.operation.verb, unnamed.operation.created) == ("odd", None)
    assert cloud_module._listed(raw_operation(target="", verb="stop")).place == ""
    assert cloud_module._listed(operations_pb2.Operation(name="x")).place == ""


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("projects/lab/locations/us-east5-a/operations/x", False),  # it may be of any time
        ("projects/lab/locations/us-east5-a/operations/operation-1790000002000-5f0-1", False),
        (
            "projects/lab/locations/us-east5-a/operations/operation-1790000000999-5f0-1",
            True,
        ),  # before what is asked for
    ],
)
def test_an_operation_that_cannot_be_read_may_be_the_one_looked_for(
    cloud: Cloud, api: CloudNodeApi, monkeypatch: pytest.MonkeyPatch, name: str, whole: bool
) -> None:
    cloud.add()
    api.call(ApiCall.STOP, TARGET, "")
    rubbish = operations_pb2.Operation(name=name)
    rubbish.metadata.value = b"\xff\xff\xff"
    shown = cloud_module.CloudNodeApi._operations
    monkeypatch.setattr(CloudNodeApi, "_operations", lambda *given: [rubbish, *shown(*given)])
    sight = api.look(TARGET, since=1_790_000_001.0)
    assert sight.listed is whole
    assert ("no known form" in sight.fault) is not whole
    assert [one.verb for one in api.look(TARGET, since=0.0).operations] == ["stop"]


class Held(PermissionsClient):
    """Credentials with these permissions."""

    def __init__(self, held: set[str] | None) -> None:
        self._held = held

    def held(self, project: str, names: Sequence[str], seconds: float) -> frozenset[str] | None:  # noqa: ARG002
        return None if self._held is None else frozenset(names) & self._held


@pytest.mark.parametrize(
    ("held", "stops"),
    [
        ({"tpu.nodes.stop"}, False),
        ({"tpu.nodes.stop", "tpu.nodes.start"}, True),
        (set(), True),  # it may be granted on the node alone: the service decides
        (None, True),
    ],
    ids=["stop alone", "both", "neither", "not known"],
)
def test_who_may_not_start_a_node_does_not_stop_it(cloud: Cloud, held: set[str] | None, stops: bool) -> None:
    cloud.add()
    config = schema.CloudConfig(endpoint=cloud.server.address, insecure=True)
    api = CloudNodeApi(config, clock=cloud.clock, permissions=Held(held))
    answer = api.call(ApiCall.STOP, TARGET, "")
    api.close()
    assert bool(answer.operation) is stops
    assert cloud.happened().count("stop") == stops
    if not stops:
        assert answer.code == "PERMISSION_DENIED"
        assert "have tpu.nodes.stop on project lab, and not tpu.nodes.start" in answer.message
