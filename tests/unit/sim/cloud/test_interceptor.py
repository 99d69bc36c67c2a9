"""Faults, tokens and the log of calls, as the real clients meet them."""

from __future__ import annotations

import threading

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.rpc import error_details_pb2

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, Cloud
from tpuwatch.core.grpc_codes import NUMBERS, code_number
from tpuwatch.model.signals import Symptom
from tpuwatch.sim.cloud.faults import InjectedFault

PATH = f"{PARENT}/nodes/train-1"


def get(cloud: Cloud, timeout: float = DEADLINE) -> object:
    return cloud.tpu.get_node(name=PATH, timeout=timeout)


@pytest.mark.parametrize("code", sorted(NUMBERS.keys() - {"OK"}))
def test_every_code_can_be_answered(cloud: Cloud, code: str) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("GetNode", code=code, message="as you wish"))
    with pytest.raises(exceptions.GoogleAPICallError) as caught:
        get(cloud)
    assert caught.value.grpc_status_code.name == code
    assert caught.value.message == "as you wish"
    assert cloud.world.calls[-1].code == code


def test_codes_have_the_numbers_that_grpc_gives_them() -> None:
    from grpc import StatusCode

    assert {code.name: code.value[0] for code in StatusCode} == NUMBERS
    assert code_number("NO_SUCH_CODE") == 2


def test_an_error_shows_its_reason_and_when_to_come_back(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.faults.set(
        InjectedFault(
            "ListNodes", code="PERMISSION_DENIED", reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", retry_after_seconds=7.5
        )
    )
    with pytest.raises(exceptions.PermissionDenied, match="insufficient authentication scopes") as caught:
        cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE)
    assert caught.value.reason == "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
    assert caught.value.domain == "googleapis.com"
    assert dict(caught.value.metadata) == {"service": "tpu.googleapis.com"}
    (retry,) = [one for one in caught.value.details if isinstance(one, error_details_pb2.RetryInfo)]
    assert retry.retry_delay.ToMilliseconds() == 7500


def test_faults_strike_only_what_they_name(cloud: Cloud) -> None:
    cloud.add()
    cloud.add("train-2")
    cloud.world.faults.set(InjectedFault("google.cloud.tpu.v2alpha1.*", code="PERMISSION_DENIED"))
    cloud.world.faults.set(InjectedFault("GetNode", code="UNAVAILABLE", resource="*/train-2"))
    cloud.world.faults.set(InjectedFault("StopNode", code="ABORTED"))
    get(cloud)
    list(cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE))
    with pytest.raises(exceptions.ServiceUnavailable):
        cloud.tpu.get_node(name=f"{PARENT}/nodes/train-2", timeout=DEADLINE)
    with pytest.raises(exceptions.PermissionDenied):
        cloud.alpha.get_node(name=PATH, timeout=DEADLINE)
    with pytest.raises(exceptions.Aborted):
        cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE)
    assert cloud.happened() == []


def test_a_fault_on_all_methods_is_for_calls_and_not_for_what_they_begin(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(code="UNAVAILABLE", times=1))
    with pytest.raises(exceptions.ServiceUnavailable):
        cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE)
    cloud.world.faults.set(InjectedFault("*", latency_seconds=0.001))
    operation = cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE).operation
    cloud.pass_time(60)
    assert cloud.operations.get_operation(operation.name, timeout=DEADLINE).done


def test_a_fault_ends_after_its_times_at_its_time_or_when_it_is_cleared(cloud: Cloud) -> None:
    cloud.add()
    faults = cloud.world.faults
    faults.set(InjectedFault("GetNode", code="UNAVAILABLE", times=2))
    for _ in range(2):
        with pytest.raises(exceptions.ServiceUnavailable):
            get(cloud)
    get(cloud)
    faults.set(InjectedFault("GetNode", code="UNAVAILABLE", until=cloud.clock.time() + 60))
    with pytest.raises(exceptions.ServiceUnavailable):
        get(cloud)
    cloud.pass_time(60)
    get(cloud)
    faults.set(InjectedFault("GetNode", code="UNAVAILABLE"))
    faults.set(InjectedFault("ListNodes", code="UNAVAILABLE"))
    faults.clear("GetNode")
    get(cloud)
    assert [fault.method for fault in faults.active] == ["ListNodes"]
    faults.clear()
    assert faults.active == ()


def test_the_newest_fault_strikes_and_a_share_leaves_the_rest_to_the_others(cloud: Cloud) -> None:
    faults = cloud.world.faults
    faults.set(InjectedFault("GetNode", code="ABORTED"))
    faults.set(InjectedFault("GetNode", code="UNAVAILABLE", share=0.25))
    struck = [faults.take("GetNode").code for _ in range(1000)]
    assert set(struck) == {"ABORTED", "UNAVAILABLE"}
    assert 150 < struck.count("UNAVAILABLE") < 350


def test_an_answer_can_be_lost_after_the_work_is_done(cloud: Cloud) -> None:
    node = cloud.add()
    cloud.world.faults.set(InjectedFault("StopNode", code="UNAVAILABLE", after_work=True, times=1))
    with pytest.raises(exceptions.ServiceUnavailable):
        cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE)
    assert node.state == "STOPPING"
    assert cloud.happened() == ["stop"]
    cloud.world.faults.set(InjectedFault("GetNode", black_hole=True, after_work=True))
    with pytest.raises(exceptions.DeadlineExceeded):
        get(cloud, timeout=0.2)


def test_latency_holds_a_call_back_by_real_time(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("GetNode", latency_seconds=3600))
    with pytest.raises(exceptions.DeadlineExceeded):
        get(cloud, timeout=0.2)
    cloud.world.faults.clear()
    cloud.world.faults.set(InjectedFault("GetNode", latency_seconds=0.01))
    assert get(cloud).name == PATH


@pytest.mark.parametrize("fault", [InjectedFault(black_hole=True), InjectedFault(latency_seconds=3600)])
def test_a_server_that_stops_lets_go_of_the_calls_that_it_holds(cloud: Cloud, fault: InjectedFault) -> None:
    cloud.add()
    cloud.world.faults.set(fault)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            get(cloud)
        except exceptions.GoogleAPICallError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not cloud.world.calls:
        thread.join(0.005)
        assert thread.is_alive()
    cloud.server.stop()
    thread.join(DEADLINE)
    assert len(failed) == 1
    assert not [one for one in threading.enumerate() if one.name.startswith("sim-cloud")]


def test_lists_can_lack_nodes(cloud: Cloud) -> None:
    for name in ("train-1", "train-2", "other"):
        cloud.add(name)
    cloud.world.faults.set(InjectedFault("ListNodes", omit=("train-*",), times=1))
    names = [[node.name.rpartition("/")[2] for node in cloud.tpu.list_nodes(parent=PARENT)] for _ in range(2)]
    assert names == [["other"], ["other", "train-1", "train-2"]]
    cloud.world.faults.set(InjectedFault("GetNode", omit=("train-1",)))
    assert cloud.tpu.get_node(name=f"{PARENT}/nodes/train-1").name


def test_enums_that_no_client_knows_and_fields_that_are_missing(cloud: Cloud) -> None:
    cloud.add(labels={"health": "fine"}, symptoms=[Symptom("LOW_MEMORY", None, "0", "low")])
    cloud.world.faults.set(InjectedFault("GetNode", wrong_enum=True))
    node = tpu_v2.Node.pb(get(cloud))  # proto-plus would warn
    assert (node.state, node.health, node.symptoms[0].symptom_type) == (99, 99, 99)
    cloud.world.faults.set(InjectedFault("*", drop=("health", "create_time", "ip_address")))
    (node,) = cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE)
    assert "create_time" not in node
    assert node.health == 0
    assert node.network_endpoints[0].ip_address == ""
    assert (node.state, dict(node.labels)) == (2, {"health": "fine"})
    cloud.world.faults.clear()
    assert get(cloud).state.name == "READY"  # the world is as it was


def test_calls_are_written_down_with_what_became_of_them(cloud: Cloud) -> None:
    cloud.add()
    get(cloud)
    cloud.clock.advance(5)
    list(cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE))
    with pytest.raises(exceptions.NotFound):
        cloud.alpha.get_node(name=f"{PARENT}/nodes/other", timeout=DEADLINE)
    seen = [(call.service.split(".")[3], call.method, call.resource, call.code) for call in cloud.world.calls]
    assert seen == [
        ("v2", "GetNode", PATH, "OK"),
        ("v2", "ListNodes", PARENT, "OK"),
        ("v2alpha1", "GetNode", f"{PARENT}/nodes/other", "NOT_FOUND"),
    ]
    assert [call.time for call in cloud.world.calls] == [cloud.clock.time() - 5, cloud.clock.time(), cloud.clock.time()]


def test_access_tokens_are_asked_for_where_the_world_knows_any(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.tokens = {"good": cloud.clock.time() + 60}
    with pytest.raises(exceptions.Unauthenticated) as caught:
        get(cloud)
    assert caught.value.reason == "CREDENTIALS_MISSING"
    good = [("authorization", "Bearer good")]
    assert cloud.tpu.get_node(name=PATH, timeout=DEADLINE, metadata=good).name == PATH
    with pytest.raises(exceptions.Unauthenticated):
        cloud.tpu.get_node(name=PATH, timeout=DEADLINE, metadata=[("authorization", "Bearer other")])
    cloud.pass_time(60)
    with pytest.raises(exceptions.Unauthenticated) as caught:
        cloud.tpu.get_node(name=PATH, timeout=DEADLINE, metadata=good)
    assert caught.value.reason == "ACCESS_TOKEN_EXPIRED"
