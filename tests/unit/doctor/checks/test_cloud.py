"""Google's side, as a simulated cloud and a small metadata server show it."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.doctor_machine import NOBODY, ManualClock, Place, described, expect, serving, statuses
from tests.unit.sim.cloud.servers import PARENT, PROJECT, ZONE, Cloud, cloud_running
from tpuwatch.core import HttpReply
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.environment import Environment, fetch
from tpuwatch.model.signals import QUEUED_STATES, QUEUED_WAITING
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import QueuedRequest, SimNode

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
    cloud.world.requests.clear()
    cloud.add("train-1")
    yield cloud
    cloud.world.faults.clear()


def pages(**more: str | None) -> dict[str, str]:
    """A VM's metadata; `more` replaces values, None takes them away. Underlines stand for slashes at the end."""
    values = {**VM, **more}
    return {ROOT + path: value for path, value in values.items() if value is not None}


def config(endpoint: str, **cloud: Any) -> dict[str, Any]:
    return {"cloud": {"endpoint": endpoint, "insecure": True, "project": PROJECT, "zone": ZONE, **cloud}}


def outside(place: Place, server: Cloud, *, monitoring: dict[str, Any] | None = None, **cloud: Any) -> Environment:
    """What is seen from a machine without a metadata server."""
    settings = {**config(server.server.address, **cloud), "monitoring": monitoring or {}}
    return place.environment(config=settings, environ={**NOBODY, "HOME": "/home/me"})


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
    assert found == {name: [CheckStatus.SKIPPED if name in skipped else CheckStatus.OK] for name in NAMES}


def test_the_cloud_is_switched_off(place: Place) -> None:
    assert {status for name in NAMES for status in statuses(name, place.environment())} == {CheckStatus.SKIPPED}


def test_no_metadata_server(place: Place) -> None:
    environment = place.environment(config={}, environ=NOBODY)
    assert statuses("metadata", environment) == [CheckStatus.SKIPPED]
    (line,) = described("identity", environment)
    assert line.startswith("wrong: Neither the configuration nor a metadata server names the project and the zone")
    assert 'project = "…" and zone = "…" under [cloud]' in line

    place.chips()  # on a TPU there has to be one
    assert statuses("metadata", place.environment(config={}, environ=NOBODY)) == [CheckStatus.WRONG]


def test_a_node_of_kubernetes_is_said_to_be_none_of_the_api(place: Place) -> None:
    pod = {"NODE_NAME": "gke-pool-1", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with serving(pages(**{"instance/attributes/tpu-env": "NODE_ID: '0'\nCONSUMER_PROJECT_ID: 'lab'\n"})) as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address, **pod})
        (line,) = described("identity", environment)
    assert "no node of the Cloud TPU API. It is node gke-pool-1 of Kubernetes, which is never restarted" in line


def test_another_place_than_the_machine_is_in(place: Place) -> None:
    with serving(pages()) as address:
        config = {"cloud": {"zone": "europe-west4-b"}}
        (line,) = described("identity", place.environment(config=config, environ={"GCE_METADATA_HOST": address}))
    assert line.startswith('warn: The configuration says zone = "europe-west4-b" under [cloud], but this machine is in')
    assert 'zone = "" under [cloud]' in line


def test_something_else_answers_in_its_place(place: Place) -> None:
    with serving(pages(), flavor="") as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        (line,) = described("metadata", environment)
        assert statuses("identity", environment) == [CheckStatus.UNKNOWN]
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
        expect("clock", environment, f"{status}: ", said)


def test_the_clock_by_the_api_where_there_is_no_metadata_server(place: Place) -> None:
    clock = ManualClock()
    asked = []

    def api(url: str, **_: Any) -> HttpReply:
        asked.append(url)
        return HttpReply(404, {"date": formatdate(clock.time() + 1000, usegmt=True)})

    environment = place.environment(config={}, environ=NOBODY, clock=clock, fetch=api)
    assert statuses("clock", environment) == [CheckStatus.WRONG]
    assert asked == ["https://tpu.googleapis.com"]
    assert statuses("clock", place.environment(config={}, environ=NOBODY)) == [CheckStatus.UNKNOWN]


def test_scopes(place: Place) -> None:
    both = {"monitoring": {"read": True, "export": True}}
    tpu_only = "https://www.googleapis.com/auth/cloud.tpu\nhttps://www.googleapis.com/auth/monitoring.read\n"
    with serving(pages(**{f"{ACCOUNT}scopes": tpu_only})) as address:
        (line,) = described("scopes", place.environment(config=both, environ={"GCE_METADATA_HOST": address}))
        assert line.startswith("wrong: The VM's access tokens lack a scope for writing to Cloud Monitoring")
        assert f"--scopes={PLATFORM}" in line
        assert statuses("scopes", place.environment(config={}, environ={"GCE_METADATA_HOST": address})) == [
            CheckStatus.OK
        ]
    with serving(pages(**{f"{ACCOUNT}scopes": "https://www.googleapis.com/auth/devstorage.read_only"})) as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        assert statuses("scopes", environment) == [CheckStatus.WRONG]
        assert statuses("credentials", environment) == [CheckStatus.OK]


@pytest.mark.parametrize(
    ("fault", "status", "fix"),
    [
        (
            InjectedFault(code="PERMISSION_DENIED", reason="SERVICE_DISABLED", message="not enabled"),
            "wrong",
            f"gcloud services enable tpu.googleapis.com --project={PROJECT}",
        ),
        (
            InjectedFault(code="PERMISSION_DENIED", reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", message="scopes"),
            "wrong",
            f"--scopes={PLATFORM}",
        ),
        (InjectedFault(code="PERMISSION_DENIED", message="no"), "wrong", "--role=roles/tpu.viewer"),
        (InjectedFault(code="NOT_FOUND", message="no such zone"), "wrong", "gcloud compute tpus locations list"),
        (InjectedFault(code="UNAUTHENTICATED", message="who?"), "wrong", "gcloud auth application-default login"),
        (InjectedFault(code="UNAVAILABLE", message="down"), "unknown", ""),
        (InjectedFault(code="RESOURCE_EXHAUSTED", message="quota"), "unknown", ""),
        (InjectedFault(code="INTERNAL", message="oops"), "unknown", ""),
    ],
    ids=lambda value: value.reason or value.code if isinstance(value, InjectedFault) else None,
)
def test_an_api_that_does_not_answer(place: Place, server: Cloud, fault: InjectedFault, status: str, fix: str) -> None:
    server.world.faults.set(fault)
    environment = outside(place, server)
    expect("api", environment, f"{status}: ", fix)
    denied = fault.code == "PERMISSION_DENIED" and not fault.reason
    assert statuses("permissions", environment) == [CheckStatus.WRONG if denied else CheckStatus.UNKNOWN]
    assert CheckStatus.WRONG not in statuses("nodes", environment)


def test_an_api_that_never_answers_is_unknown(place: Place, server: Cloud) -> None:
    server.world.faults.set(InjectedFault(black_hole=True))
    assert statuses("api", outside(place, server, timeout_seconds=0.2)) == [CheckStatus.UNKNOWN]


def test_nodes_that_are_not_there(place: Place, server: Cloud) -> None:
    lines = described("nodes", outside(place, server, nodes=["trian-1", "eval-*", "train-*"]))
    assert f"wrong: There is no node trian-1 in zone {ZONE} of project {PROJECT}. Is train-1 meant?" in lines[0]
    assert f"gcloud compute tpus tpu-vm list --zone={ZONE} --project={PROJECT}" in lines[0]

    only = outside(place, server, nodes=["eval-*"])
    expect("nodes", only, "wrong: There is no node that the patterns under [cloud] match")


@pytest.mark.parametrize("nodes", [["train-1", "next-1"], ["next-*"]], ids=["a name", "a pattern"])
@pytest.mark.parametrize("state", QUEUED_STATES)
def test_a_node_that_a_queued_resource_still_makes_is_no_wrong_name(
    place: Place, server: Cloud, state: str, nodes: list[str]
) -> None:
    path = f"{PARENT}/queuedResources/q-1"
    awaited = [SimNode(PROJECT, ZONE, "next-1", queued_resource="q-1")]
    server.world.requests[path] = QueuedRequest(path, state, 0.0, awaited=awaited)
    (line,) = described("nodes", outside(place, server, nodes=nodes))
    if state in QUEUED_WAITING:
        assert line.startswith(f"ok: Node next-1 does not exist yet: its queued resource q-1 is {state}.")
    else:
        assert line.startswith("wrong: There is no node ")


def test_a_zone_that_does_not_exist(place: Place, server: Cloud) -> None:
    environment = outside(place, server, nodes=["us-nowhere1-x/train-1", "train-1"])
    expect("api", environment, "wrong: ", "us-nowhere1-x")
    assert statuses("nodes", environment) == [CheckStatus.OK, CheckStatus.UNKNOWN]


def test_without_a_node_there_is_nothing_to_look_for(place: Place, server: Cloud) -> None:
    environment = outside(place, server)
    assert statuses("api", environment) == [CheckStatus.OK]
    assert statuses("nodes", environment) == [CheckStatus.SKIPPED]
