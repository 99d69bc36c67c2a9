"""What the simulated Cloud TPU API shows, asked by the real clients."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2, tpu_v2alpha1

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, PROJECT, ZONE, Cloud
from tpuwatch.model.signals import Symptom
from tpuwatch.sim.cloud.nodes import QueuedRequest, SimNode


def names(nodes: object) -> list[str]:
    return [node.name.rpartition("/")[2] for node in nodes]


def test_a_node_is_shown_with_all_that_the_world_holds_of_it(cloud: Cloud) -> None:
    cloud.add(
        "pod",
        accelerator_type="v5litepod-16",
        hosts=4,
        spot=True,
        queued_resource="qr-1",
        labels={"team": "vision"},
        health="UNHEALTHY_MAINTENANCE",
        health_description="soon back",
        symptoms=[Symptom("OUT_OF_MEMORY", 1_789_999_000.5, "2", "the host ran out of memory")],
    )
    node = cloud.tpu.get_node(name=f"{PARENT}/nodes/pod", timeout=DEADLINE)
    assert node.name == f"{PARENT}/nodes/pod"
    assert node.state == tpu_v2.Node.State.READY
    assert node.health == tpu_v2.Node.Health.UNHEALTHY_MAINTENANCE
    assert node.health_description == "soon back"
    assert node.accelerator_type == "v5litepod-16"
    assert node.runtime_version == "tpu-ubuntu2204-base"
    assert node.scheduling_config.spot
    assert node.queued_resource == f"{PARENT}/queuedResources/qr-1"
    assert dict(node.labels) == {"team": "vision"}
    assert node.create_time.timestamp() == cloud.clock.time()
    assert node.api_version == tpu_v2.Node.ApiVersion.V2
    assert len({endpoint.ip_address for endpoint in node.network_endpoints}) == 4
    (symptom,) = node.symptoms
    assert symptom.symptom_type == tpu_v2.Symptom.SymptomType.OUT_OF_MEMORY
    assert symptom.create_time.timestamp() == 1_789_999_000.5
    assert (symptom.worker_id, symptom.details) == ("2", "the host ran out of memory")


def test_a_node_may_have_no_health_and_a_state_that_no_client_knows(cloud: Cloud) -> None:
    cloud.add(state=17, health="")
    node = tpu_v2.Node.pb(cloud.tpu.get_node(name=f"{PARENT}/nodes/train-1", timeout=DEADLINE))
    assert node.state == 17  # proto-plus would warn
    assert node.health == 0


def test_the_alpha_version_shows_the_same_world_and_its_maintenance(cloud: Cloud) -> None:
    node = cloud.add()
    cloud.world.maintain(node, in_seconds=600, lasts_seconds=60)
    shown = cloud.alpha.get_node(name=node.path, timeout=DEADLINE)
    maintenance = shown.upcoming_maintenance
    assert maintenance.type_ == tpu_v2alpha1.UpcomingMaintenance.MaintenanceType.SCHEDULED
    assert maintenance.maintenance_status == tpu_v2alpha1.UpcomingMaintenance.MaintenanceStatus.PENDING
    assert maintenance.can_reschedule
    assert maintenance.window_start_time == "2026-09-21T14:23:20Z"
    assert maintenance.window_end_time == "2026-09-21T14:24:20Z"
    assert shown.api_version == tpu_v2alpha1.Node.ApiVersion.V2_ALPHA1


def test_pages_hold_all_nodes_of_the_zone_and_hide_none_when_one_goes_between_them(cloud: Cloud) -> None:
    cloud.world.page_limit = 3
    nodes = [cloud.add(f"train-{number}") for number in reversed(range(6))]
    cloud.add("elsewhere", zone="us-east5-ab")  # whose name begins as the other zone's does
    pages = cloud.tpu.list_nodes(request={"parent": PARENT, "page_size": 1000}, timeout=DEADLINE).pages
    first = names(next(pages).nodes)
    assert first == ["train-0", "train-1", "train-2"]
    cloud.world.vanish(nodes[4])
    assert [names(page.nodes) for page in pages] == [["train-3", "train-4", "train-5"]]


def test_all_zones_can_be_listed_at_once(cloud: Cloud) -> None:
    cloud.add("a")
    cloud.add("b", zone="europe-west4-b")
    cloud.add("c", project="other")
    listed = cloud.tpu.list_nodes(parent="projects/lab/locations/-", timeout=DEADLINE)
    assert sorted(names(listed)) == ["a", "b"]


@pytest.mark.parametrize("request_", [{"page_token": "?"}, {"page_size": -1}])
def test_a_page_that_cannot_be_is_refused(cloud: Cloud, request_: dict[str, object]) -> None:
    cloud.add()
    with pytest.raises(exceptions.InvalidArgument):
        cloud.tpu.list_nodes(request={"parent": PARENT, **request_}, timeout=DEADLINE)


def test_a_node_that_there_is_not_is_not_found(cloud: Cloud) -> None:
    cloud.add()
    with pytest.raises(exceptions.NotFound, match=f"Resource '{PARENT}/nodes/other' was not found") as caught:
        cloud.tpu.get_node(name=f"{PARENT}/nodes/other", timeout=DEADLINE)
    (detail,) = caught.value.details
    assert detail.resource_name == f"{PARENT}/nodes/other"


def test_a_wrong_zone_and_a_wrong_project_are_denied_as_if_they_were_forbidden(cloud: Cloud) -> None:
    cloud.add()
    with pytest.raises(exceptions.PermissionDenied, match="Location us-east5-x is not found or access is unauthorized"):
        cloud.tpu.list_nodes(parent="projects/lab/locations/us-east5-x", timeout=DEADLINE)
    with pytest.raises(exceptions.PermissionDenied) as caught:
        cloud.tpu.get_node(name="projects/nobody/locations/us-east5-a/nodes/train-1", timeout=DEADLINE)
    assert caught.value.reason == "CONSUMER_INVALID"
    with pytest.raises(exceptions.InvalidArgument):
        cloud.tpu.list_nodes(parent="us-east5-a", timeout=DEADLINE)


def test_what_the_simulator_does_not_serve_is_unimplemented(cloud: Cloud) -> None:
    with pytest.raises(exceptions.MethodNotImplemented):
        cloud.tpu.list_accelerator_types(parent=PARENT, timeout=DEADLINE)
    assert [(call.method, call.code) for call in cloud.world.calls] == [("ListAcceleratorTypes", "UNIMPLEMENTED")]


@pytest.mark.parametrize("state", tpu_v2.QueuedResourceState.State)
def test_a_queued_resource_of_a_scenario_has_every_state_of_the_api(
    cloud: Cloud, state: tpu_v2.QueuedResourceState.State
) -> None:
    later = SimNode(PROJECT, ZONE, "later", queued_resource="qr-1")
    path, now = f"{PARENT}/queuedResources/qr-1", cloud.clock.time()
    error = "no capacity" if state.name == "FAILED" else ""
    cloud.add("other")  # there is the zone
    cloud.world.requests[path] = QueuedRequest(path, state.name, now - 60, True, "SERVICE", error, now + 30, [later])
    (one,) = cloud.tpu.list_queued_resources(parent=PARENT, timeout=DEADLINE)
    assert one == cloud.tpu.get_queued_resource(name=path, timeout=DEADLINE)
    assert (one.state.state, one.state.state_initiator.name) == (state, "SERVICE")
    assert one.state.failed_data.error.message == error
    assert (one.create_time.timestamp(), one.queueing_policy.valid_until_time.timestamp()) == (now - 60, now + 30)
    assert "spot" in one
    assert [spec.node_id for spec in one.tpu.node_spec] == ["later"]
    cloud.add("later", queued_resource="qr-1")
    (one,) = cloud.tpu.list_queued_resources(parent=PARENT, timeout=DEADLINE)
    assert [spec.node_id for spec in one.tpu.node_spec] == ["later"]


def test_queued_resources_are_what_their_nodes_make_them(cloud: Cloud) -> None:
    cloud.add("a", queued_resource="qr-1", spot=True)
    cloud.add("b", queued_resource="qr-1", spot=True)
    cloud.add("c", queued_resource="qr-2", state="CREATING")
    cloud.add("d")
    first, second = cloud.tpu.list_queued_resources(parent=PARENT, timeout=DEADLINE)
    assert first == cloud.tpu.get_queued_resource(name=f"{PARENT}/queuedResources/qr-1", timeout=DEADLINE)
    assert [spec.node_id for spec in first.tpu.node_spec] == ["a", "b"]
    assert first.state.state == tpu_v2.QueuedResourceState.State.ACTIVE
    assert "spot" in first
    assert "guaranteed" in second
    assert second.state.state == tpu_v2.QueuedResourceState.State.PROVISIONING
    with pytest.raises(exceptions.NotFound):
        cloud.tpu.get_queued_resource(name=f"{PARENT}/queuedResources/qr-3", timeout=DEADLINE)
