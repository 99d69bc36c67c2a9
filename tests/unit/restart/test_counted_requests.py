"""What the daemon counts of what it asks of Cloud Storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.buckets import BUCKET, storage_running
from tests.unit.restart.records import NOW, record
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.signals import Snapshot
from tpuwatch.restart.service import RestartService
from tpuwatch.sim.cloud.faults import InjectedFault

REQUESTS = "tpuwatch_api_requests_total"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def requests(metrics: Metrics) -> dict[str, float]:
    """The series of requests to Cloud Storage that are not 0, by their labels."""
    lines = metrics.exposition()[0].decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith(REQUESTS) and "storage." in line)
    return {labels.removeprefix(REQUESTS): float(value) for labels, _, value in pairs if float(value)}


def test_requests_to_cloud_storage_are_counted(clock: ManualClock, tmp_path: Path) -> None:
    metrics = Metrics(loops=["restart"], refusals=[])
    with storage_running(clock) as server:
        ledger = {"kind": "gcs", "bucket": BUCKET, "endpoint": server.address, "insecure": True}
        config = Config.model_validate({"ledger": ledger, "state": {"dir": tmp_path}})
        service = RestartService(
            config,
            nodes=lambda: (),
            snapshot=Snapshot,
            metrics=metrics,
            clock=clock,
            watching_since=NOW,
            progress=lambda *_: None,
            ask_peer=lambda _: None,
        )
        try:
            assert requests(metrics) == {}
            service._ledger.read()
            assert service._starter.write(record(), 0)
            assert not service._starter.write(record(), 0)  # another one has written it
            server.faults.set(InjectedFault(method="ListObjects", code="PERMISSION_DENIED"))
            service._ledger.read()
            assert service._ledger.problem
        finally:
            service._ledger.close()
    assert requests(metrics) == {
        '{code="OK",method="storage.objects.get"}': 3,  # the fleet twice; what the refused write came upon
        '{code="OK",method="storage.objects.insert"}': 1,
        '{code="FAILED_PRECONDITION",method="storage.objects.insert"}': 1,
        '{code="OK",method="storage.objects.list"}': 1,
        '{code="PERMISSION_DENIED",method="storage.objects.list"}': 1,
    }
