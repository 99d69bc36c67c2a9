"""What the configuration needs, and which of it the credentials have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.buckets import storage_running
from tests.standins.doctor_machine import ManualClock, Place, described, serving
from tests.standins.storage import BUCKET
from tests.unit.doctor.checks.test_cloud import PROJECT, config, pages
from tests.unit.sim.cloud.servers import ZONE, Cloud, cloud_running
from tpuwatch.google.errors import ApiError, ApiFault
from tpuwatch.model import Problem
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTING = {"restart": {"mode": "act", "restart_node": True}}
WATCH = ("tpu.nodes.get", "tpu.nodes.list")
ACT = ("tpu.operations.get", "tpu.operations.list", "tpu.nodes.stop", "tpu.nodes.start")
ADMIN = f"gcloud projects add-iam-policy-binding {PROJECT} --member=serviceAccount:ACCOUNT --role=roles/tpu.admin"


class Manager:
    """The Cloud Resource Manager: what it holds, or why it does not say."""

    def __init__(self, *held: str, fault: ApiFault | None = None) -> None:
        self.fault, self._held = fault, frozenset(held)
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def test(self, project: str, names: Any, _seconds: float) -> frozenset[str]:
        self.asked.append((project, tuple(names)))
        if self.fault is not None:
            raise ApiError(self.fault)
        return self._held & frozenset(names)


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    with cloud_running() as cloud:
        cloud.add("train-1")
        yield cloud


def said(place: Place, server: Cloud, manager: Manager | None, **settings: Any) -> list[str]:
    settings = {**config(server.server.address), **settings}
    environ = {"GCE_METADATA_HOST": "127.0.0.1:9", "HOME": "/home/me"}
    return described("permissions", place.environment(config=settings, environ=environ, permissions=manager))


def test_one_call_asks_for_what_the_configuration_uses(place: Place, server: Cloud) -> None:
    settings = {
        "restart": {"mode": "act", "restart_node": True, "reset_queued_resource": True},
        "monitoring": {"export": True},
    }
    manager = Manager()
    said(place, server, manager)
    assert manager.asked == [(PROJECT, WATCH)]
    everything = Manager(*WATCH, *ACT, "tpu.nodes.reset", "monitoring.timeSeries.create")
    (line,) = said(place, server, everything, **settings)
    assert everything.asked == [(PROJECT, (*WATCH, *ACT, "tpu.nodes.reset", "monitoring.timeSeries.create"))]
    assert line.startswith("ok: tpu.nodes.get, ")


def test_what_is_missing_comes_with_the_command_that_grants_it(place: Place, server: Cloud) -> None:
    manager = Manager(*WATCH, *ACT[:2], "tpu.nodes.stop")
    lines = said(place, server, manager, **ACTING, monitoring={"export": True})
    assert lines[0] == f"wrong: The account lacks tpu.nodes.start. | {ADMIN}"
    assert lines[1].startswith("wrong: The account lacks monitoring.timeSeries.create. | ")
    assert lines[1].endswith("--role=roles/monitoring.metricWriter")
    assert lines[2].startswith("ok: tpu.nodes.get, tpu.nodes.list, ")
    assert lines[2].endswith("and tpu.nodes.stop are granted. | ")


def test_what_a_request_has_shown_counts_for_more(place: Place, server: Cloud) -> None:
    assert said(place, server, Manager("tpu.nodes.get"))[-1].startswith("ok: tpu.nodes.get and tpu.nodes.list are")


def test_it_is_unknown_where_google_cannot_be_asked(place: Place, server: Cloud) -> None:
    fault = ApiFault(Problem.DISABLED, "PERMISSION_DENIED", "The Cloud Resource Manager API is not enabled.")
    lines = said(place, server, Manager(fault=fault), **ACTING)
    assert lines[0].startswith("ok: tpu.nodes.list is granted")
    assert lines[1].startswith("unknown: Whether tpu.nodes.get, ")
    assert "is not enabled" in lines[1]
    assert lines[1].endswith(f"| gcloud services enable cloudresourcemanager.googleapis.com --project={PROJECT}")

    fault = ApiFault(Problem.TIMEOUT, "DEADLINE_EXCEEDED", "It did not return.")
    assert said(place, server, Manager(fault=fault))[1].endswith("It did not return. | ")


def test_of_another_server_only_requests_tell(place: Place, server: Cloud) -> None:
    lines = said(place, server, None, **ACTING)
    assert lines == ["ok: tpu.nodes.list is granted. | "]


def test_the_bucket_of_the_ledger(place: Place, server: Cloud) -> None:
    with storage_running(ManualClock()) as storage:
        ledger = {"kind": "gcs", "bucket": BUCKET, "endpoint": storage.address, "insecure": True}
        assert said(place, server, None, ledger=ledger)[1].startswith(f"ok: The ledger's bucket {BUCKET} can be read")
        storage.permissions -= {"storage.objects.create", "storage.objects.delete"}
        (_, line) = said(place, server, None, ledger=ledger)
        assert line == (
            f"wrong: The account lacks storage.objects.create and storage.objects.delete on bucket {BUCKET}, which has "
            f"the ledger. | gcloud storage buckets add-iam-policy-binding gs://{BUCKET} "
            "--member=serviceAccount:ACCOUNT --role=roles/storage.objectUser"
        )
        (_, line) = said(place, server, None, ledger={**ledger, "bucket": "elsewhere"})
        assert line.startswith("wrong: There is no bucket elsewhere")
        assert "gcloud storage buckets create gs://elsewhere" in line
        storage.faults.set(InjectedFault(code="UNAVAILABLE", message="down"))
        assert said(place, server, None, ledger=ledger)[1].startswith(f"unknown: The permissions on bucket {BUCKET}")


def test_the_permission_to_read_monitoring_is_tried(place: Place) -> None:
    world = World(ManualClock())
    world.add(SimNode(project=PROJECT, zone=ZONE, name="train-1"))
    monitoring = CloudServer(world, services=[MonitoringService(world).handler()])
    try:
        settings = {**config(monitoring.address), "monitoring": {"read": True, "endpoint": monitoring.address}}
        with serving(pages()) as address:
            variables = {"GCE_METADATA_HOST": address}
            (line,) = described("permissions", place.environment(config=settings, environ=variables))
            assert line.startswith("ok: tpu.nodes.list and monitoring.timeSeries.list are granted")
            world.faults.set(InjectedFault(method="ListTimeSeries", code="PERMISSION_DENIED", message="no"))
            (line, *_) = described("permissions", place.environment(config=settings, environ=variables))
    finally:
        monitoring.stop()
    assert line.startswith("wrong: tpu@lab.iam.gserviceaccount.com lacks monitoring.timeSeries.list")
    assert "--member=serviceAccount:tpu@lab.iam.gserviceaccount.com --role=roles/monitoring.viewer" in line
