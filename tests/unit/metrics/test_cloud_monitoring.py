"""Writing custom metrics: the unmodified client against the simulated service and its limits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from google.cloud import monitoring_v3

from tests.unit.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.config.schema import MonitoringConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.google.monitoring import MonitoringConnection
from tpuwatch.metrics.cloud_monitoring import BATCH, PREFIX, CloudMonitoringExport, Sample, samples
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.signals import Chip, Host, Identity, Known, Runtime, RuntimePort, Snapshot
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

SECONDS = 60.0
IDENTITY = Identity(project=Known(PROJECT, "metadata"), zone=Known(ZONE, "metadata"), worker=Known("3", "metadata"))


class Site:
    """Cloud Monitoring, and the export that writes to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.world.add(SimNode(PROJECT, ZONE, "train-1"))
        self.server = CloudServer(self.world, services=[MonitoringService(self.world).handler()])
        self.client = MonitoringConnection(
            self.server.address, insecure=True, clock=self.clock, timeout_seconds=SECONDS
        ).client()
        self.current: Sequence[Sample] = [Sample("node_bad", 1.0, "train-1", ZONE, "3")]
        self.identity = IDENTITY
        self.calls: list[tuple[str, str]] = []
        self.export = CloudMonitoringExport(
            MonitoringConfig(export=True, export_seconds=SECONDS, endpoint=self.server.address),
            lambda: self.current,
            lambda: self.identity,
            clock=self.clock,
            rng=random.Random(1),
            on_call=lambda method, code: self.calls.append((method, code)),
            insecure=True,
            timeout_seconds=10.0,
        )

    def stored(self) -> list[monitoring_v3.TimeSeries]:
        now = int(self.clock.time())
        found = self.client.list_time_series(
            request={
                "name": f"projects/{PROJECT}",
                "filter": f'metric.type = "{PREFIX}node_bad"',
                "interval": {"start_time": {"seconds": now - 3600}, "end_time": {"seconds": now + 1}},
            },
            timeout=20,
            retry=None,
        )
        return list(found)

    def close(self) -> None:
        self.export.close()
        self.client.transport.close()
        self.server.stop()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def test_a_point_of_each_series_comes_at_each_turn(site: Site) -> None:
    due = site.export.turn()
    assert due >= SECONDS
    site.clock.advance(due)
    site.export.turn()
    (series,) = site.stored()
    assert len(series.points) == 2
    assert dict(series.resource.labels) == {
        "project_id": PROJECT,
        "location": ZONE,
        "namespace": "tpuwatch",
        "job": "train-1",
        "task_id": "3",
    }
    assert dict(series.metric.labels) == {}
    assert site.calls == [("CreateTimeSeries", "OK")] * 2
    assert site.export.problem == ""


def test_many_series_go_in_batches(site: Site) -> None:
    site.current = [Sample("node_bad", 0.0, f"n{number}", ZONE, "0") for number in range(2 * BATCH + 1)]
    site.export.turn()
    assert len(site.calls) == 3
    assert len(site.stored()) == 2 * BATCH + 1


def test_without_a_project_nothing_is_written(site: Site) -> None:
    site.identity = Identity()
    assert site.export.turn() >= SECONDS
    assert site.calls == []


def test_a_fault_is_logged_once_and_what_failed_is_not_written_later(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.world.faults.set(InjectedFault(method="CreateTimeSeries", code="PERMISSION_DENIED"))
    for _ in range(3):
        site.clock.advance(site.export.turn())
    assert "monitoring.timeSeries.create" in site.export.problem
    assert caplog.text.count("monitoring.timeSeries.create") == 1
    site.world.faults.clear()
    site.export.turn()
    assert site.export.problem == ""
    assert "again" in caplog.text
    (series,) = site.stored()
    assert len(series.points) == 1


def test_credentials_that_are_refused_are_found_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(site.export._connection, "forget", lambda: forgotten.append(site.calls[-1][1]))
    for code in ("UNAVAILABLE", "UNAUTHENTICATED"):
        site.world.faults.set(InjectedFault(method="CreateTimeSeries", code=code))
        site.clock.advance(site.export.turn())
    assert forgotten == ["UNAUTHENTICATED"]


def test_it_is_never_faster_than_the_interval_whatever_fails(site: Site) -> None:
    site.world.faults.set(InjectedFault(method="CreateTimeSeries", code="UNAVAILABLE", share=0.5))
    for _ in range(20):
        due = site.export.turn()
        assert due >= SECONDS
        site.clock.advance(due)


def status(verdict: Verdict, *, own: bool = False) -> JudgedNode:
    judgement = Judgement("n", verdict, 0.0, Confidence.MEDIUM, Action.MANUAL, "It is so.")
    return JudgedNode("n", PROJECT, ZONE, own, judgement, None)


def test_samples_are_of_this_worker_and_leave_out_what_is_unknown() -> None:
    chips = (Chip("0", 10, 100, 0.5, 3.0), Chip("1", 20, 100, None, 1.0))
    posted = Snapshot(
        identity=IDENTITY,
        runtime=Answer(Runtime((RuntimePort(8431, chips),)), 0.0, None),
        host=Answer(Host("boot", None, memory_available_bytes=7), 0.0, None),
    )
    nodes = [status(Verdict.HEALTHY, own=True), status(Verdict.GONE), status(Verdict.UNKNOWN)]
    exported = samples(posted, nodes)
    assert {one.metric: one.value for one in exported} == {
        "node_bad": 0.0,
        "watched_nodes_bad": 1.0,
        "hbm_used_bytes": 30,
        "hbm_total_bytes": 200,
        "tensorcore_duty_cycle_ratio": 0.5,
        "tensorcore_idle_seconds": 1.0,
        "host_memory_available_bytes": 7,
    }
    assert {(one.node, one.zone, one.worker) for one in exported} == {("n", ZONE, "3")}


def test_answers_of_a_failed_signal_are_not_exported() -> None:
    posted = Snapshot(runtime=Answer(Runtime((RuntimePort(8431, (Chip("0", 1, 2),)),)), 0.0, Problem.ABSENT))
    exported = samples(posted, [status(Verdict.JOB_STUCK, own=True)])
    assert {one.metric: one.value for one in exported} == {"node_bad": 1.0, "watched_nodes_bad": 0.0}
    assert samples(posted, []) == []
