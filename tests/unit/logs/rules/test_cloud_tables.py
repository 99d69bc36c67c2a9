"""What gcloud lists and describes of nodes and queued resources, as people paste it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Finding

SCANNER = Scanner(load_catalogue())
NODES = "NAME      ZONE           ACCELERATOR_TYPE  TYPE  TOPOLOGY  NETWORK  RANGE          STATUS"
OLD = "NAME  ZONE           ACCELERATOR_TYPE  NETWORK_ENDPOINTS  NETWORK  RANGE       STATUS  API_VERSION"
QUEUED = "NAME     ZONE            NODE_COUNT  ACCELERATOR_TYPE  STATE"
SUSPENDED = """\
createTime: '2026-03-02T10:11:12.345678901Z'
name: projects/acme/locations/europe-west4-a/queuedResources/sweep-b
spot: {}
state:
  state: SUSPENDED
  stateInitiator: SERVICE
tpu:
  nodeSpec:
  - node:
      acceleratorType: v5litepod-16
    nodeId: sweep-b-0
"""


def node(name: str, state: str) -> str:
    return f"{name:8}  us-central2-b  v4-8              V4    2x2x1     default  10.130.0.0/20  {state}"


def queued(name: str, state: str) -> str:
    return f"{name:7}  europe-west4-a  1           v5litepod-16      {state}"


def described(state: str, health: str = "HEALTHY") -> str:
    return f"""\
acceleratorConfig:
  topology: 2x2x1
  type: V4
acceleratorType: v4-8
apiVersion: V2
cidrBlock: 10.130.0.0/20
health: {health}
healthDescription: The runtime does not answer.
id: '1234567890123456789'
name: projects/acme/locations/us-central2-b/nodes/train-7
networkConfig:
  enableExternalIps: true
networkEndpoints:
- accessConfig:
    externalIp: 203.0.113.9
  ipAddress: 10.130.0.2
  port: 8470
runtimeVersion: tpu-ubuntu2204-base
serviceAccount:
  email: 1-compute@developer.gserviceaccount.com
  scope:
  - https://www.googleapis.com/auth/cloud-platform
state: {state}
"""


def found_in(*lines: str) -> list[Finding]:
    return findings_in("\n".join([*lines, ""]).encode(), SCANNER, "console.txt")


STATES = [
    ("PREEMPTED", Cause.PREEMPTED),
    ("TERMINATED", Cause.PREEMPTED),
    ("CREATING", Cause.NODE_NOT_READY),
    ("STARTING", Cause.NODE_NOT_READY),
    ("STOPPED", Cause.NODE_NOT_READY),
    ("STOPPING", Cause.NODE_NOT_READY),
    ("REPAIRING", Cause.NODE_NOT_READY),
    ("RESTARTING", Cause.NODE_NOT_READY),
    ("DELETING", Cause.NODE_NOT_READY),
]
QUEUED_STATES = [
    ("WAITING_FOR_RESOURCES", Cause.CAPACITY),
    ("FAILED", Cause.NODE_NOT_READY),
    ("SUSPENDED", Cause.NODE_NOT_READY),
    ("SUSPENDING", Cause.NODE_NOT_READY),
    ("ACCEPTED", Cause.NODE_NOT_READY),
    ("CREATING", Cause.NODE_NOT_READY),
    ("PROVISIONING", Cause.NODE_NOT_READY),
]


def is_of(finding: Finding, cause: Cause, **details: Any) -> None:
    """Fail unless the finding states these details, and shows each of them."""
    assert finding.cause is cause
    assert details.items() <= finding.details.items()
    for value in details.values():
        assert str(value) in finding.summary


@pytest.mark.parametrize(("state", "cause"), STATES)
@pytest.mark.parametrize(
    "text",
    [
        "$ gcloud compute tpus tpu-vm list --zone=us-central2-b\n" + NODES + "\n" + node("train-7", "STATE"),
        NODES + "\n" + node("train-1", "READY") + "\n" + node("train-7", "STATE"),
        "NAME  ZONE  ACCELERATOR_TYPE  STATUS\ntrain-7  us-central2-b  v4-8  STATE",
        OLD + "\ntrain-7  us-central2-b  v4-8  10.240.1.2:8470  default  10.240.1.0  STATE  V2_ALPHA1",
        "+---------+\n| train-7 | us-central2-b | v4-8 | STATE |\n+---------+",
        described("STATE"),
        json.dumps(
            {"acceleratorType": "v4-8", "name": "projects/p/locations/us-central2-b/nodes/train-7", "state": "STATE"},
            indent=2,
        ),
    ],
    ids=["list", "second", "formatted", "old", "boxed", "described", "json"],
)
def test_a_node_that_is_not_ready_is_named_with_zone_and_state(text: str, state: str, cause: Cause) -> None:
    (finding,) = found_in(text.replace("STATE", state))
    is_of(finding, cause, node="train-7", zone="us-central2-b", state=state)


@pytest.mark.parametrize(("state", "cause"), QUEUED_STATES)
@pytest.mark.parametrize(
    "text", [QUEUED + "\n" + queued("sweep-b", "*"), SUSPENDED.replace("SUSPENDED", "*")], ids=["list", "described"]
)
def test_a_queued_resource_that_is_not_active_is_named(text: str, state: str, cause: Cause) -> None:
    if state == "SUSPENDED":
        text = text.replace("SERVICE", "USER")
    (finding,) = found_in(text.replace("*", state))
    is_of(finding, cause, queued_resource="sweep-b", zone="europe-west4-a", state=state)
    if state in ("FAILED", "SUSPENDED"):
        assert "describe sweep-b --zone=europe-west4-a" in finding.remedy[0].do


def test_what_the_service_suspended_was_preempted() -> None:
    (finding,) = found_in(SUSPENDED)
    is_of(finding, Cause.PREEMPTED, queued_resource="sweep-b", zone="europe-west4-a", state="SUSPENDED")
    assert "delete sweep-b --force --zone=europe-west4-a" in finding.remedy[0].do


@pytest.mark.parametrize("health", ["UNHEALTHY_TENSORFLOW", "UNHEALTHY_TPU", "TIMEOUT"])
def test_a_description_says_which_node_is_unhealthy_and_why(health: str) -> None:
    (finding,) = found_in(described("READY", health))
    is_of(finding, Cause.NODE_UNHEALTHY, node="train-7", zone="us-central2-b", health=health)
    assert finding.summary.endswith("The runtime does not answer.")
    (finding,) = found_in("NAME  ZONE  STATE  HEALTH", f"train-7  us-central2-b  READY  {health}")
    is_of(finding, Cause.NODE_UNHEALTHY, node="train-7", zone="us-central2-b", health=health)


def test_maintenance_is_no_fault_of_the_node() -> None:
    assert [finding.cause for finding in found_in(described("READY", "UNHEALTHY_MAINTENANCE"))] == [Cause.MAINTENANCE]


def test_of_several_rows_the_worst_is_first_and_each_is_named() -> None:
    states = ["PREEMPTED", "READY", "CREATING", "PREEMPTED", "STOPPED"]
    gone, waiting = found_in(NODES, *(node(f"train-{number}", state) for number, state in enumerate(states)))
    assert (gone.cause, waiting.cause) == (Cause.PREEMPTED, Cause.NODE_NOT_READY)
    assert "train-0 and train-3" in gone.summary
    assert "(CREATING and STOPPED): train-2 and train-4 in us-central2-b" in waiting.summary
    lost, queue = found_in(
        QUEUED, queued("a-1", "WAITING_FOR_RESOURCES"), queued("a-2", "FAILED"), queued("a-3", "SUSPENDED")
    )
    assert (lost.cause, queue.cause) == (Cause.NODE_NOT_READY, Cause.CAPACITY)
    assert "(FAILED and SUSPENDED): a-2 and a-3 in europe-west4-a" in lost.summary


@pytest.mark.parametrize(
    "text",
    [
        NODES + "\n" + node("train-1", "READY"),
        QUEUED + "\n" + queued("sweep-b", "ACTIVE"),
        described("READY").replace("healthDescription: The runtime does not answer.\n", ""),
        SUSPENDED.replace("SUSPENDED", "ACTIVE"),
        "NAME  ZONE           MACHINE_TYPE   STATUS\nvm-1  us-central1-b  e2-standard-4  TERMINATED",
        "The states are CREATING, READY, STOPPED and PREEMPTED.",
    ],
)
def test_what_is_well_and_what_is_no_tpu_has_no_finding(text: str) -> None:
    assert found_in(text) == []
