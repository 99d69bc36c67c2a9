"""Tests of the conversion of nodes, on raw messages of both versions of the API."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import tpu_v2, tpu_v2alpha1

from tpuwatch.google.tpu_node import NodeConverter, short_name
from tpuwatch.model.signals import CloudNode, Maintenance, Symptom

NAME = "projects/lab/locations/us-a/nodes/train-1"


def raw(package: Any = tpu_v2, **fields: Any) -> Any:
    return package.Node.pb(package.Node(name=NAME, **fields))


def convert(message: Any, previous: CloudNode | None = None, now: float = 100.0) -> CloudNode:
    return NodeConverter("lab", "us-a", now).convert(message, "train-1", previous)


def test_everything_that_the_api_shows_is_taken_over() -> None:
    message = raw(
        state="READY",
        health="UNHEALTHY_TENSORFLOW",
        health_description="the stack is down",
        symptoms=[{"symptom_type": "LOW_MEMORY", "worker_id": "3", "details": "low", "create_time": {"seconds": 50}}],
        accelerator_type="v4-32",
        runtime_version="tpu-ubuntu2204-base",
        network_endpoints=[{"ip_address": f"10.0.0.{n}"} for n in range(4)],
        scheduling_config={"spot": True},
        queued_resource="projects/lab/locations/us-a/queuedResources/queue-1",
        create_time={"seconds": 10, "nanos": 500_000_000},
        labels={"team": "b", "a": "c"},
    )
    assert convert(message) == CloudNode(
        project="lab",
        zone="us-a",
        name="train-1",
        state="READY",
        health="UNHEALTHY_TENSORFLOW",
        health_description="the stack is down",
        symptoms=(Symptom("LOW_MEMORY", 50.0, "3", "low"),),
        accelerator="v4-32",
        runtime_version="tpu-ubuntu2204-base",
        hosts=4,
        addresses=("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"),
        spot=True,
        queued_resource="queue-1",
        created=10.5,
        labels=(("a", "c"), ("team", "b")),
        changed=100.0,
    )


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ([{"ip_address": "fd00::7"}, {"ip_address": "fd00::8"}], "fd00::7"),
        ([{"ip_address": "10.0.0.1/x"}, {"ip_address": "10.0.0.2"}], ""),
        ([{"ip_address": "10.0.0.1/x"}], ""),
        ([{"ip_address": "evil.example"}], ""),
        ([{"ip_address": "1" * 100}], ""),
        ([{}], ""),
        ([], ""),
    ],
)
def test_an_address_is_one_or_there_is_none(told: list[dict[str, str]], address: str) -> None:
    node = convert(raw(state="READY", network_endpoints=told))
    assert node.address == address
    assert convert(raw(state="READY"), node).address == address, "one that is left out is as it was"


def test_preemptible_counts_as_spot() -> None:
    assert convert(raw(scheduling_config={"preemptible": True})).spot
    assert not convert(raw(scheduling_config={"reserved": True})).spot


def test_what_is_missing_is_empty() -> None:
    node = convert(tpu_v2.Node.pb(tpu_v2.Node()))
    assert (node.state, node.health, node.hosts, node.created) == ("STATE_UNSPECIFIED", "", 1, None)
    assert node.maintenance is None


def test_enum_values_that_are_newer_than_the_package() -> None:
    message = raw(symptoms=[{"worker_id": "0"}])
    message.state, message.health, message.symptoms[0].symptom_type = 17, 9, 44
    node = convert(message)
    assert (node.state, node.health, node.symptoms[0].kind) == ("STATE_17", "HEALTH_9", "SYMPTOM_44")


def test_every_state_and_health_of_the_package_has_its_name() -> None:
    for state in tpu_v2.Node.State:
        assert convert(raw(state=state)).state == state.name
    for health in tpu_v2.Node.Health:
        assert convert(raw(health=health)).health == ("" if health == 0 else health.name)


def test_the_alpha_reports_maintenance() -> None:
    message = raw(
        tpu_v2alpha1,
        state="READY",
        upcoming_maintenance={
            "type_": "SCHEDULED",
            "maintenance_status": "PENDING",
            "can_reschedule": True,
            "window_start_time": "1970-01-01T00:01:40Z",
            "window_end_time": "1970-01-01T01:00:00+01:00",
            "latest_window_start_time": "soon",
        },
    )
    assert convert(message).maintenance == Maintenance("SCHEDULED", "PENDING", 100.0, 0.0, None, can_reschedule=True)
    assert convert(raw(tpu_v2alpha1)).maintenance is None


def test_changed_is_when_state_or_health_was_first_seen_so() -> None:
    first = convert(raw(state="READY", health="HEALTHY"), None, 100)
    again = convert(raw(state="READY", health="HEALTHY", accelerator_type="v4-8"), first, 200)
    assert again.changed == 100
    sick = convert(raw(state="READY", health="TIMEOUT"), again, 300)
    assert sick.changed == 300
    assert convert(raw(state="STOPPED", health="TIMEOUT"), sick, 400).changed == 400


def test_one_that_was_created_again_is_another_node() -> None:
    first = convert(raw(state="READY", create_time={"seconds": 10}), None, 100)
    assert convert(raw(state="READY", create_time={"seconds": 10}), first, 200).changed == 100
    assert convert(raw(state="READY", create_time={"seconds": 11}), first, 200).changed == 200
    assert convert(raw(state="READY"), first, 200).changed == 100  # a reply that lacks it proves nothing


def test_what_did_not_change_is_not_kept_twice() -> None:
    first = convert(raw(state="READY", labels={"a": "b"}), None, 100)
    assert convert(raw(state="READY", labels={"a": "b"}), first, 200) is first
    assert convert(raw(state="READY", labels={"a": "c"}), first, 200) is not first


def test_hosts_stay_known_when_the_endpoints_go() -> None:
    first = convert(raw(state="READY", network_endpoints=[{}, {}]))
    assert convert(raw(state="PREEMPTED"), first).hosts == 2


def test_text_of_others_is_cleaned_and_cut() -> None:
    node = convert(
        raw(
            health_description="a\x1b[31m\n" + "b" * 9000,
            accelerator_type="v4\0" + "x" * 500,
            labels={f"k{n:03}": "\u202e" + "v" * 300 for n in range(200)},
            symptoms=[{"details": "x" * 9000, "create_time": {"seconds": n}} for n in range(50)],
        )
    )
    assert node.health_description.startswith("a [31m bbb")
    assert len(node.health_description) == 500
    assert len(node.accelerator) == 128
    assert len(node.labels) == 64
    assert all(value.isprintable() and len(value) <= 128 for _, value in node.labels)
    assert [symptom.at for symptom in node.symptoms] == [float(n) for n in range(30, 50)]


def test_strings_that_nodes_share_are_one() -> None:
    converter = NodeConverter("lab", "us-a", 1.0)
    one = converter.convert(raw(runtime_version="tpu-vm-" + "base"), "a", None)
    two = converter.convert(raw(runtime_version="tpu-vm-" + "base"), "b", None)
    assert one.runtime_version is two.runtime_version


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (NAME, "train-1"),
        ("train-1", "train-1"),
        ("", ""),
        ("a/b/", ""),
        ("a/B", ""),
        ("a/" + "x" * 64, ""),
        ("a/b\n", ""),
    ],
)
def test_short_names(path: str, name: str) -> None:
    assert short_name(path) == name


def test_a_node_without_a_network_endpoint_says_so() -> None:
    assert convert(raw(state="READY", network_endpoints=[])).lacks_endpoints
    assert not convert(raw(state="READY", network_endpoints=[{}])).lacks_endpoints
