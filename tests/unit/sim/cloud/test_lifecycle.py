"""What people can ask of a simulated node, and the service's rules for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, Cloud
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import SimNode, WorkloadPhase

PATH = f"{PARENT}/nodes/train-1"


def ask(cloud: Cloud, method: str, **request: object) -> str:
    """Begin an operation; its name."""
    return getattr(cloud.tpu, method)(request=request, timeout=DEADLINE).operation.name


def stop(cloud: Cloud, name: str = PATH) -> str:
    return ask(cloud, "stop_node", name=name)


def start(cloud: Cloud, name: str = PATH) -> str:
    return ask(cloud, "start_node", name=name)


def state(cloud: Cloud) -> str:
    return cloud.tpu.get_node(name=PATH, timeout=DEADLINE).state.name


def operation(cloud: Cloud, name: str) -> operations_pb2.Operation:
    return cloud.operations.get_operation(name, timeout=DEADLINE)


def stopped(cloud: Cloud, **fields: object) -> SimNode:
    node = cloud.add(**fields)
    stop(cloud)
    cloud.pass_time(60)
    return node


def test_a_node_stops_and_starts_by_the_clock_and_its_guest_is_alive_again(cloud: Cloud) -> None:
    node = cloud.add()
    node.workloads[0].phase = WorkloadPhase.STUCK
    cloud.world.hang(node, lies=True)
    stopping = stop(cloud)
    assert state(cloud) == "STOPPING"
    assert not operation(cloud, stopping).done
    cloud.pass_time(59.9)
    assert state(cloud) == "STOPPING"
    cloud.pass_time(0.1)
    assert state(cloud) == "STOPPED"
    assert operation(cloud, stopping).done
    assert not node.alive

    starting = start(cloud)
    cloud.pass_time(179)
    assert state(cloud) == "STARTING"
    assert not node.alive
    cloud.pass_time(1)
    assert state(cloud) == "READY"
    assert operation(cloud, starting).done
    assert node.alive
    assert not node.lies
    assert node.boots == 2
    assert [workload.phase for workload in node.workloads] == [WorkloadPhase.NONE]
    assert cloud.happened() == ["hang", "stop", "stopped", "start", "boot"]


def test_the_operation_carries_the_node_without_its_health(cloud: Cloud) -> None:
    stopped(cloud)
    name = start(cloud)
    cloud.pass_time(180)
    node = tpu_v2.Node.pb()()
    assert operation(cloud, name).response.Unpack(node)
    assert node.name == PATH
    assert node.state == tpu_v2.Node.State.READY
    assert node.health == 0
    assert cloud.tpu.get_node(name=PATH, timeout=DEADLINE).health == tpu_v2.Node.Health.HEALTHY


def test_the_metadata_is_the_api_s_own_unless_the_world_says_otherwise(cloud: Cloud) -> None:
    cloud.add()
    future = cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE)
    assert future.metadata.verb == "stop"
    assert future.metadata.target == PATH
    assert future.metadata.api_version == "v2"
    cloud.world.common_metadata = True
    cloud.pass_time(60)
    future = cloud.tpu.start_node(request={"name": PATH}, timeout=DEADLINE)
    assert future.operation.metadata.type_url == "type.googleapis.com/google.cloud.common.OperationMetadata"
    with pytest.raises(TypeError):  # as the client does with the real service's
        _ = future.metadata
    metadata = tpu_v2.OperationMetadata.pb().FromString(future.operation.metadata.value)
    assert metadata.verb == "start"


def test_a_node_of_several_hosts_cannot_be_stopped(cloud: Cloud) -> None:
    cloud.add(hosts=4)
    with pytest.raises(exceptions.FailedPrecondition, match="single-host"):
        stop(cloud)
    assert state(cloud) == "READY"
    assert cloud.happened() == []


@pytest.mark.parametrize(
    ("ask", "wrong", "why"),
    [
        (stop, "STOPPED", "its state is STOPPED"),
        (stop, "REPAIRING", "its state is REPAIRING"),
        (stop, 17, "its state is 17"),
        (start, "READY", "its state is READY"),
        (start, "PREEMPTED", "only recreated"),
    ],
)
def test_only_what_runs_can_be_stopped_and_what_is_stopped_started(
    cloud: Cloud, ask: Callable[[Cloud], str], wrong: str | int, why: str
) -> None:
    cloud.add(state=wrong)
    with pytest.raises(exceptions.FailedPrecondition, match=why):
        ask(cloud)


def test_without_capacity_the_start_fails_and_the_node_stays_stopped(cloud: Cloud) -> None:
    node = stopped(cloud)
    cloud.world.capacity[node.zone] = 0
    name = start(cloud)
    assert not operation(cloud, name).done  # the service finds out later
    cloud.pass_time(180)
    failed = operation(cloud, name)
    assert failed.done
    assert failed.error.code == 8
    assert 'no more capacity in the zone "us-east5-a"' in failed.error.message
    assert state(cloud) == "STOPPED"
    assert node.boots == 1

    cloud.world.capacity[node.zone] = 1
    start(cloud)
    cloud.pass_time(180)
    assert state(cloud) == "READY"
    assert cloud.world.capacity[node.zone] == 0


def test_a_preemption_overtakes_a_start(cloud: Cloud) -> None:
    node = stopped(cloud, spot=True)
    name = start(cloud)
    cloud.world.preempt(node)
    cloud.pass_time(180)
    assert state(cloud) == "PREEMPTED"
    assert operation(cloud, name).error.code == 10
    assert node.boots == 1


def test_a_reset_boots_all_hosts_of_all_nodes_of_the_queued_resource(cloud: Cloud) -> None:
    nodes = [cloud.add(f"pod-{number}", hosts=4, queued_resource="qr-1") for number in range(2)]
    other = cloud.add("other")
    for node in nodes:
        cloud.world.hang(node)
    resource = f"{PARENT}/queuedResources/qr-1"
    name = ask(cloud, "reset_queued_resource", name=resource)
    assert [node.state for node in nodes] == ["RESTARTING"] * 2
    with pytest.raises(exceptions.FailedPrecondition):
        ask(cloud, "reset_queued_resource", name=resource)
    cloud.pass_time(240)
    assert [(node.state, node.boots, node.alive) for node in nodes] == [("READY", 2, True)] * 2
    assert other.boots == 1
    done = operation(cloud, name)
    shown = tpu_v2.QueuedResource.pb()()
    assert done.response.Unpack(shown)
    assert shown.name == resource


def test_a_queued_resource_that_was_preempted_cannot_be_reset(cloud: Cloud) -> None:
    cloud.add(queued_resource="qr-1", spot=True, state="PREEMPTED")
    with pytest.raises(exceptions.FailedPrecondition, match="SUSPENDED"):
        ask(cloud, "reset_queued_resource", name=f"{PARENT}/queuedResources/qr-1")


def test_nothing_but_a_deletion_comes_between_a_node_and_its_operation(cloud: Cloud) -> None:
    node = cloud.add()
    name = stop(cloud)
    for again in (stop, start):
        with pytest.raises(exceptions.FailedPrecondition, match="an operation on it is under way"):
            again(cloud)
    ask(cloud, "delete_node", name=PATH)
    with pytest.raises(exceptions.FailedPrecondition):
        ask(cloud, "delete_node", name=PATH)
    cloud.pass_time(60)
    assert operation(cloud, name).error.code == 10
    assert node.path not in cloud.world.nodes


def test_a_node_is_deleted_and_created_again(cloud: Cloud) -> None:
    cloud.add(accelerator_type="v4-16", hosts=2)
    deleting = ask(cloud, "delete_node", name=PATH)
    assert state(cloud) == "DELETING"
    cloud.pass_time(60)
    assert operation(cloud, deleting).response.type_url.endswith("google.protobuf.Empty")
    with pytest.raises(exceptions.NotFound):
        state(cloud)

    node = {"accelerator_type": "v4-16", "runtime_version": "tpu-vm-base", "scheduling_config": {"spot": True}}
    ask(cloud, "create_node", parent=PARENT, node_id="train-1", node=node)
    assert state(cloud) == "CREATING"
    cloud.pass_time(180)
    assert state(cloud) == "READY"
    made = cloud.world.nodes[PATH]
    assert (made.hosts, made.chips_per_host, made.spot, made.boots) == (2, 4, True, 1)
    with pytest.raises(exceptions.AlreadyExists):
        ask(cloud, "create_node", parent=PARENT, node_id="train-1", node=node)


def test_a_creation_that_fails_leaves_no_node(cloud: Cloud) -> None:
    zone = cloud.add("other").zone
    request = {"parent": PARENT, "node_id": "train-1", "node": {"accelerator_type": "v6e-8"}}
    cloud.world.faults.set(InjectedFault("CreateNodeOperation", code="INTERNAL", times=1))
    for capacity, code in ((1, 13), (0, 8)):
        cloud.world.capacity[zone] = capacity
        name = ask(cloud, "create_node", **request)
        cloud.pass_time(180)
        assert operation(cloud, name).error.code == code
        assert PATH not in cloud.world.nodes


@pytest.mark.parametrize(("node_id", "kind"), [("train-1", "v99-4"), ("Train_1", "v4-8"), ("", "v4-8")])
def test_a_node_that_cannot_be_is_not_created(cloud: Cloud, node_id: str, kind: str) -> None:
    cloud.add("other")
    with pytest.raises(exceptions.InvalidArgument):
        ask(cloud, "create_node", parent=PARENT, node_id=node_id, node={"accelerator_type": kind})
    assert len(cloud.world.nodes) == 1


def test_an_operation_can_be_made_to_fail_and_leaves_the_node_as_it_was(cloud: Cloud) -> None:
    cloud.add(health="TIMEOUT")
    cloud.world.faults.set(InjectedFault("StopNodeOperation", code="INTERNAL", message="it broke", times=1))
    name = stop(cloud)
    assert state(cloud) == "STOPPING"
    cloud.pass_time(60)
    assert operation(cloud, name).error.code == 13
    assert operation(cloud, name).error.message == "it broke"
    node = cloud.tpu.get_node(name=PATH, timeout=DEADLINE)
    assert (node.state.name, node.health.name) == ("READY", "TIMEOUT")
    stop(cloud)
    cloud.pass_time(60)
    assert state(cloud) == "STOPPED"


def test_an_operation_can_be_slow_or_never_end(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault("StartNodeOperation", black_hole=True))
    cloud.world.faults.set(InjectedFault("StopNodeOperation", latency_seconds=1000))
    name = stop(cloud)
    cloud.pass_time(1059)
    assert not operation(cloud, name).done
    cloud.pass_time(1)
    assert operation(cloud, name).done
    name = start(cloud)
    cloud.pass_time(1e6)
    assert not operation(cloud, name).done
    assert state(cloud) == "STARTING"
