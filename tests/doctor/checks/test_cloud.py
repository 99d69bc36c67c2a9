"""Google's side, as a simulated cloud and a small metadata server show it."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from tests.doctor.place import ManualClock, Place, serving, statuses, told
from tests.sim.cloud.servers import PROJECT, ZONE, Cloud, cloud_running
from tpuwatch.doctor.check import Status
from tpuwatch.doctor.reach import Reply, fetch
from tpuwatch.sim.cloud.faults import Fault
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import SimNode, World

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "/computeMetadata/v1/"
ACCOUNT = "instance/service-accounts/default/"
PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
NAMES = ("metadata", "identity", "clock", "credentials", "scopes", "api", "permissions", "nodes")
VM = {
    "instance/id": "1",
    "instance/zone": f"projects/1/zones/{ZONE}",
    "project/project-id": PROJECT,
    "instance/attributes/tpu-env": f"NODE_ID: 'train-1'\nZONE: '{ZONE}'\nCONSUMER_PROJECT_ID: '{PROJECT}'\n",
    f"{ACCOUNT}email": "tpu@lab.iam.gserviceaccount.com",
    f"{ACCOUNT}scopes": f"{PLATFORM}\n",
    f"{ACCOUNT}token": '{"access_token": "secret", "expires_in": 3599, "token_type": "Bearer"}',
}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with cloud_running() as cloud:
        yield cloud


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Cloud]:
    cloud.world.nodes.clear()
    cloud.add("train-1")
    yield cloud
    cloud.world.faults.clear()


def pages(**more: str | None) -> dict[str, str]:
    """A VM's metadata; `more` replaces values, None takes them away. Underlines stand for slashes at the end."""
    values = {**VM, **more}
    return {ROOT + path: value for path, value in values.items() if value is not None}


def config(endpoint: str, **cloud: Any) -> dict[str, Any]:
    return {"cloud": {"endpoint": endpoint, "insecure": True, "project": PROJECT, "zone": ZONE, **cloud}}


def test_a_vm_on_which_all_is_well(place: Place, server: Cloud) -> None:
    clock = ManualClock()
    with serving(pages(), date=formatdate(clock.time(), usegmt=True)) as address:
        environment = place.environment(
            config={"cloud": {"endpoint": server.server.address, "insecure": True, "nodes": ["train-*"]}},
            environ={"GCE_METADATA_HOST": address},
            clock=clock,
            fetch=fetch,
        )
        found = {name: statuses(name, environment) for name in NAMES}
    skipped = {"credentials", "scopes"}  # a simulator needs none
    assert found == {name: [Status.SKIPPED if name in skipped else Status.OK] for name in NAMES}


def test_the_cloud_is_switched_off(place: Place) -> None:
    assert {status for name in NAMES for status in statuses(name, place.environment())} == {Status.SKIPPED}


def test_no_metadata_server(place: Place) -> None:
    with serving({}) as gone:
        pass
    environment = place.environment(config={}, environ={"GCE_METADATA_HOST": gone})
    assert statuses("metadata", environment) == [Status.SKIPPED]
    (line,) = told("identity", environment)
    assert line.startswith("wrong: Neither the configuration nor a metadata server tells the project and the zone")
    assert 'project = "…" and zone = "…" under [cloud]' in line

    place.chips()  # on a TPU there has to be one
    assert statuses("metadata", place.environment(config={}, environ={"GCE_METADATA_HOST": gone})) == [Status.WRONG]


def test_another_place_than_the_machine_is_in(place: Place) -> None:
    with serving(pages()) as address:
        config = {"cloud": {"zone": "europe-west4-b"}}
        (line,) = told("identity", place.environment(config=config, environ={"GCE_METADATA_HOST": address}))
    assert line.startswith('warn: The configuration says zone = "europe-west4-b" under [cloud], but this machine is in')
    assert 'zone = "" under [cloud]' in line


def test_something_else_answers_in_its_place(place: Place) -> None:
    with serving(pages(), flavor="") as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        (line,) = told("metadata", environment)
        assert statuses("identity", environment) == [Status.UNKNOWN]
    assert line.startswith(f"wrong: What answers at {address} is not Google's metadata server")
    assert "unset GCE_METADATA_HOST" in line


@pytest.mark.parametrize(
    ("ahead", "status", "said"),
    [(0, "ok", "is right"), (61, "warn", "61 s slow"), (-301, "wrong", "301 s fast"), (30, "ok", "is right")],
)
def test_the_clock_by_the_metadata_server(place: Place, ahead: int, status: str, said: str) -> None:
    clock = ManualClock()
    with serving(pages(), date=formatdate(clock.time() + ahead, usegmt=True)) as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address}, clock=clock, fetch=fetch)
        (line,) = told("clock", environment)
    assert line.startswith(f"{status}: ")
    assert said in line


def test_the_clock_by_the_api_where_there_is_no_metadata_server(place: Place) -> None:
    clock = ManualClock()
    asked = []

    def api(address: str, path: str, **more: Any) -> Reply:
        asked.append((address, path, more.get("tls")))
        return Reply(404, {"date": formatdate(clock.time() + 1000, usegmt=True)}, "")

    with serving({}) as gone:
        pass
    environment = place.environment(config={}, environ={"GCE_METADATA_HOST": gone}, clock=clock, fetch=api)
    assert statuses("clock", environment) == [Status.WRONG]
    assert asked == [("tpu.googleapis.com", "/", True)]
    silent = place.environment(config={}, environ={"GCE_METADATA_HOST": gone})
    assert statuses("clock", silent) == [Status.UNKNOWN]


def test_scopes(place: Place) -> None:
    both = {"monitoring": {"read": True, "export": True}}
    tpu_only = "https://www.googleapis.com/auth/cloud.tpu\nhttps://www.googleapis.com/auth/monitoring.read\n"
    with serving(pages(**{f"{ACCOUNT}scopes": tpu_only})) as address:
        (line,) = told("scopes", place.environment(config=both, environ={"GCE_METADATA_HOST": address}))
        assert line.startswith("wrong: The VM's access tokens lack a scope for writing to Cloud Monitoring")
        assert f"--scopes={PLATFORM}" in line
        assert statuses("scopes", place.environment(config={}, environ={"GCE_METADATA_HOST": address})) == [Status.OK]
    with serving(pages(**{f"{ACCOUNT}scopes": "https://www.googleapis.com/auth/devstorage.read_only"})) as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        assert statuses("scopes", environment) == [Status.WRONG]
        assert statuses("credentials", environment) == [Status.OK]


@pytest.mark.parametrize(
    ("fault", "status", "fix"),
    [
        (
            Fault(code="PERMISSION_DENIED", reason="SERVICE_DISABLED", message="not enabled"),
            "wrong",
            f"gcloud services enable tpu.googleapis.com --project={PROJECT}",
        ),
        (
            Fault(code="PERMISSION_DENIED", reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", message="scopes"),
            "wrong",
            f"--scopes={PLATFORM}",
        ),
        (Fault(code="PERMISSION_DENIED", message="no"), "wrong", "--role=roles/tpu.viewer"),
        (Fault(code="NOT_FOUND", message="no such zone"), "wrong", "gcloud compute tpus locations list"),
        (Fault(code="UNAUTHENTICATED", message="who?"), "wrong", "gcloud auth application-default login"),
        (Fault(code="UNAVAILABLE", message="down"), "unknown", ""),
        (Fault(code="RESOURCE_EXHAUSTED", message="quota"), "unknown", ""),
        (Fault(code="INTERNAL", message="oops"), "unknown", ""),
    ],
    ids=lambda value: value.reason or value.code if isinstance(value, Fault) else None,
)
def test_an_api_that_does_not_tell(place: Place, server: Cloud, fault: Fault, status: str, fix: str) -> None:
    server.world.faults.set(fault)
    environment = place.environment(
        config=config(server.server.address), environ={"GCE_METADATA_HOST": "127.0.0.1:9", "HOME": "/home/me"}
    )
    (line,) = told("api", environment)
    assert line.startswith(f"{status}: ")
    assert fix in line
    denied = fault.code == "PERMISSION_DENIED" and not fault.reason
    assert statuses("permissions", environment) == [Status.WRONG if denied else Status.UNKNOWN]
    assert Status.WRONG not in statuses("nodes", environment)


def test_an_api_that_never_answers_is_unknown(place: Place, server: Cloud) -> None:
    server.world.faults.set(Fault(black_hole=True))
    settings = config(server.server.address, timeout_seconds=0.2)
    environment = place.environment(config=settings, environ={"GCE_METADATA_HOST": "127.0.0.1:9"})
    assert statuses("api", environment) == [Status.UNKNOWN]


def test_nodes_that_are_not_there(place: Place, server: Cloud) -> None:
    settings = config(server.server.address, nodes=["trian-1", "eval-*", "train-*"])
    environment = place.environment(config=settings, environ={"GCE_METADATA_HOST": "127.0.0.1:9"})
    lines = told("nodes", environment)
    assert f"wrong: There is no node trian-1 in zone {ZONE} of project {PROJECT}. Is train-1 meant?" in lines[0]
    assert f"gcloud compute tpus tpu-vm list --zone={ZONE} --project={PROJECT}" in lines[0]

    only = config(server.server.address, nodes=["eval-*"])
    (line,) = told("nodes", place.environment(config=only, environ={"GCE_METADATA_HOST": "127.0.0.1:9"}))
    assert line.startswith("wrong: There is no node that the patterns under [cloud] match")


def test_a_zone_that_does_not_exist(place: Place, server: Cloud) -> None:
    settings = config(server.server.address, nodes=["us-nowhere1-x/train-1", "train-1"])
    environment = place.environment(config=settings, environ={"GCE_METADATA_HOST": "127.0.0.1:9"})
    lines = told("api", environment)
    assert [line.partition(":")[0] for line in lines] == ["wrong"]
    assert "us-nowhere1-x" in lines[0]
    assert statuses("nodes", environment) == [Status.OK, Status.UNKNOWN]


def test_without_a_node_there_is_nothing_to_look_for(place: Place, server: Cloud) -> None:
    environment = place.environment(config=config(server.server.address), environ={"GCE_METADATA_HOST": "127.0.0.1:9"})
    assert statuses("api", environment) == [Status.OK]
    assert statuses("nodes", environment) == [Status.SKIPPED]


def test_a_permission_that_is_not_tried_is_unknown(place: Place, server: Cloud) -> None:
    settings = {**config(server.server.address), "monitoring": {"export": True}}
    environment = place.environment(config=settings, environ={"GCE_METADATA_HOST": "127.0.0.1:9"})
    lines = told("permissions", environment)
    assert lines[0].startswith("ok: tpu.nodes.list is granted")
    assert lines[1].startswith("unknown: monitoring.timeSeries.create is not tried")
    assert "--role=roles/monitoring.metricWriter" in lines[1]


def test_the_permission_to_read_monitoring_is_tried(place: Place) -> None:
    world = World(ManualClock())
    world.add(SimNode(project=PROJECT, zone=ZONE, name="train-1"))
    monitoring = CloudServer(world, services=[MonitoringService(world).handler()])
    try:
        settings = {**config(monitoring.address), "monitoring": {"read": True, "endpoint": monitoring.address}}
        with serving(pages()) as address:
            variables = {"GCE_METADATA_HOST": address}
            lines = told("permissions", place.environment(config=settings, environ=variables))
            assert [line.partition(":")[0] for line in lines] == ["ok", "ok"]
            world.faults.set(Fault(method="ListTimeSeries", code="PERMISSION_DENIED", message="no"))
            lines = told("permissions", place.environment(config=settings, environ=variables))
    finally:
        monitoring.stop()
    assert lines[1].startswith("wrong: tpu@lab.iam.gserviceaccount.com lacks monitoring.timeSeries.list")
    assert "--member=serviceAccount:tpu@lab.iam.gserviceaccount.com --role=roles/monitoring.viewer" in lines[1]
