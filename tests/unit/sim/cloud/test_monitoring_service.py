"""The simulated Cloud Monitoring, asked by the real client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api import metric_pb2
from google.api_core import exceptions
from google.cloud import monitoring_v3
from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

from tests.unit.sim.cloud.servers import DEADLINE, PROJECT, ZONE
from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.metadata_tree import instance_id
from tpuwatch.sim.cloud.monitoring_samples import IDLE, INFRA_HEALTH
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

NAME = f"projects/{PROJECT}"
CUSTOM = "custom.googleapis.com/tpuwatch/verdict"
START = 1_790_000_040.0  # a whole minute


class Monitoring:
    """A world with one node, the service over it, and the client."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.world = World(self.clock)
        self.node = self.add("train-1")
        self.service = MonitoringService(self.world)
        self.server = CloudServer(self.world, services=[self.service.handler()])
        self.channel = grpc.insecure_channel(self.server.address)
        self.client = monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=self.channel))

    def add(self, name: str, **fields: Any) -> SimNode:
        return self.world.add(SimNode(**{"project": PROJECT, "zone": ZONE, "name": name, **fields}))

    def enter(self, phase: WorkloadPhase, worker: int = 0) -> None:
        self.node.workloads[worker] = Workload(phase, since=self.clock.time())

    def list(self, metric: str, rest: str = "", *, seconds: float = 3600, **request: Any) -> list[Any]:
        now = self.clock.time()
        interval = {"start_time": stamp(now - seconds), "end_time": stamp(now)}
        asked = {"name": NAME, "filter": f'metric.type = "{metric}"{rest}', "interval": interval, **request}
        return list(self.client.list_time_series(request=asked, timeout=DEADLINE))

    def write(self, *batch: Any) -> None:
        self.client.create_time_series(name=NAME, time_series=batch, timeout=DEADLINE)

    def close(self) -> None:
        self.channel.close()
        self.server.stop()


@pytest.fixture
def monitoring() -> Iterator[Monitoring]:
    running = Monitoring()
    try:
        yield running
    finally:
        running.close()


def stamp(at: float) -> dict[str, int]:
    return {"seconds": int(at), "nanos": round(at % 1 * 1e9)}


def times(series: Any) -> list[float]:
    return [point.interval.end_time.timestamp() - START for point in series.points]


def series(at: float, value: float = 1.0, **changes: Any) -> Any:
    """A series of one point as tpuwatch may write it."""
    labels = {"project_id": PROJECT, "location": ZONE, "namespace": "tpu", "job": "train-1", "task_id": "0"}
    return monitoring_v3.TimeSeries(
        **{
            "metric": {"type": CUSTOM, "labels": {"verdict": "healthy"}},
            "resource": {"type": "generic_task", "labels": labels},
            "points": [{"interval": {"end_time": stamp(at)}, "value": {"double_value": value}}],
            **changes,
        }
    )


# Reading


def test_idle_time_is_sampled_each_minute_and_seen_three_minutes_later(monitoring: Monitoring) -> None:
    monitoring.enter(WorkloadPhase.STUCK)
    monitoring.clock.advance(179)
    assert monitoring.list(IDLE) == []
    monitoring.clock.advance(331)  # 510 seconds from the start
    found = monitoring.list(IDLE)
    assert [one.metric.labels["chip"] for one in found] == ["0", "1", "2", "3"]
    assert dict(found[0].resource.labels) == {
        "project_id": PROJECT,
        "zone": ZONE,
        "node_id": "train-1",
        "worker_id": "0",
    }
    assert found[0].resource.type == "tpu_worker"
    assert times(found[0]) == [300, 240, 180, 120, 60, 0]
    assert [point.value.int64_value for point in found[0].points] == [300, 240, 180, 120, 60, 0]
    assert times(monitoring.list(IDLE, seconds=300)[0]) == [300, 240]


def test_infra_health_turns_false_under_a_node_that_lies_and_ends_with_the_machine(monitoring: Monitoring) -> None:
    number = instance_id(monitoring.node, 0)
    monitoring.clock.advance(90)
    monitoring.world.hang(monitoring.node, lies=True)
    monitoring.service.look()
    monitoring.clock.advance(330)
    (health,) = monitoring.list(INFRA_HEALTH, f' AND resource.labels.instance_id = "{number}"')
    assert health.resource.type == "gce_instance"
    assert [point.value.bool_value for point in health.points] == [False, False, False, True, True]
    assert monitoring.list(IDLE)[0].points[0].interval.end_time.timestamp() == START + 60  # its guest is silent
    monitoring.node.hangs, monitoring.node.state = False, "STOPPED"
    monitoring.service.look()
    monitoring.clock.advance(600)
    (health,) = monitoring.list(INFRA_HEALTH)
    assert times(health)[0] == 360  # the last before it was seen to be stopped, at 420


def test_series_are_filtered_by_resource_and_project(monitoring: Monitoring) -> None:
    monitoring.add("train-2", hosts=2)
    monitoring.add("train-1", project="other")
    monitoring.clock.advance(300)
    assert len(monitoring.list(IDLE)) == 3 * 4
    one = monitoring.list(IDLE, ' AND resource.labels.node_id = "train-2" AND resource.labels.worker_id = "1"')
    assert {dict(found.resource.labels)["worker_id"] for found in one} == {"1"}
    assert len(one) == 4
    assert monitoring.list(IDLE, ' AND resource.labels.node_id = "train-3"') == []


def test_pages_are_of_points(monitoring: Monitoring) -> None:
    monitoring.clock.advance(480)
    whole = {one.metric.labels["chip"]: times(one) for one in monitoring.list(IDLE)}
    paged: dict[str, list[float]] = {}
    now = monitoring.clock.time()
    pages = monitoring.client.list_time_series(
        request={
            "name": NAME,
            "filter": f'metric.type = "{IDLE}"',
            "interval": {"start_time": stamp(START - 1), "end_time": stamp(now)},
            "page_size": 5,
        },
        timeout=DEADLINE,
    ).pages
    for page in pages:
        assert sum(len(one.points) for one in page.time_series) <= 5
        for one in page.time_series:
            paged.setdefault(one.metric.labels["chip"], []).extend(times(one))
    assert paged == whole
    assert all(len(points) == 6 for points in whole.values())


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"filter": 'metric.type = "tpu.googleapis.com/nothing"'}, exceptions.NotFound),
        ({"filter": 'resource.type = "tpu_worker"'}, exceptions.InvalidArgument),
        ({"interval": {"start_time": stamp(START)}}, exceptions.InvalidArgument),
        ({"interval": {"start_time": stamp(START), "end_time": stamp(START - 1)}}, exceptions.InvalidArgument),
        ({"aggregation": {"alignment_period": {"seconds": 60}}}, exceptions.InvalidArgument),
        ({"name": "organizations/1"}, exceptions.InvalidArgument),
        ({"name": "projects/nowhere"}, exceptions.PermissionDenied),
    ],
)
def test_requests_that_are_refused(monitoring: Monitoring, request_: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        monitoring.list(IDLE, **request_)


# Writing


def test_what_is_written_is_given_back_at_once(monitoring: Monitoring) -> None:
    monitoring.write(series(START, 1.0))
    monitoring.clock.advance(10)
    monitoring.write(series(START + 10, 2.0))
    (found,) = monitoring.list(CUSTOM, ' AND resource.labels.job = "train-1"')
    assert [point.value.double_value for point in found.points] == [2.0, 1.0]
    assert times(found) == [10, 0]
    assert found.resource.labels["task_id"] == "0"
    assert found.value_type == metric_pb2.MetricDescriptor.DOUBLE
    assert monitoring.list(CUSTOM, ' AND resource.labels.job = "train-2"') == []


def failure_of(monitoring: Monitoring, *batch: Any) -> tuple[str, Any]:
    """The message and the summary of a call that fails."""
    with pytest.raises(exceptions.InvalidArgument) as failed:
        monitoring.write(*batch)
    summary = monitoring_v3.CreateTimeSeriesSummary.pb()()
    for detail in failed.value.details:
        assert detail.Unpack(summary)
    return failed.value.message, summary


def test_a_call_that_fails_in_part_writes_the_rest_and_shows(monitoring: Monitoring) -> None:
    good = series(START, metric={"type": CUSTOM, "labels": {"verdict": "idle"}})
    message, summary = failure_of(monitoring, series(START), series(START, 2.0), good)
    assert message.startswith("One or more TimeSeries could not be written: ")
    assert "timeSeries[1]" in message
    assert "Duplicate TimeSeries encountered" in message
    assert (summary.total_point_count, summary.success_point_count) == (3, 2)
    assert [(one.status.code, one.point_count) for one in summary.errors] == [(3, 1)]
    assert {one.metric.labels["verdict"] for one in monitoring.list(CUSTOM)} == {"healthy", "idle"}


@pytest.mark.parametrize(
    ("later", "word"),
    [(0, "must be written in order"), (-5, "must be written in order"), (4.9, "more frequently"), (5, "")],
)
def test_order_and_rate_of_a_series(monitoring: Monitoring, later: float, word: str) -> None:
    monitoring.write(series(START))
    monitoring.clock.advance(60)
    if not word:
        monitoring.write(series(START + later))
        return
    message, _ = failure_of(monitoring, series(START + later))
    assert word in message
    assert times(monitoring.list(CUSTOM)[0]) == [0]


def task(**labels: str) -> dict[str, Any]:
    return {"resource": {"type": "generic_task", "labels": labels}}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"points": []}, "points"),
        ({"metric": {"type": "tpu.googleapis.com/accelerator/duty_cycle"}}, "metric.type"),
        ({"metric": {"type": CUSTOM, "labels": {"not-a-name": "x"}}}, "metric.labels"),
        ({"metric": {"type": CUSTOM, "labels": {"verdict": "x" * 1025}}}, "too long"),
        ({"resource": {"type": "tpu_worker", "labels": {"node_id": "a", "zone": "b"}}}, "resource.type"),
        (task(location="a", namespace="b", job="c"), "resource.labels"),
        (task(project_id="other", location="a", namespace="b", job="c", task_id="d"), "resource.labels"),
        ({"points": [{"interval": {}, "value": {"double_value": 1}}]}, "end_time"),
        ({"points": [{"interval": {"end_time": stamp(START)}}]}, "value"),
        ({"points": [{"interval": {"end_time": stamp(START + 301)}, "value": {"double_value": 1}}]}, "end_time"),
        ({"points": [{"interval": {"end_time": stamp(START - 90_001)}, "value": {"double_value": 1}}]}, "end_time"),
        (
            {
                "points": [
                    {
                        "interval": {"start_time": stamp(START - 1), "end_time": stamp(START)},
                        "value": {"double_value": 1},
                    }
                ]
            },
            "start_time",
        ),
    ],
)
def test_series_that_are_refused(monitoring: Monitoring, changes: dict[str, Any], word: str) -> None:
    message, summary = failure_of(monitoring, series(START, **changes))
    assert word in message
    assert (summary.total_point_count, summary.success_point_count) == (1, 0)
    with pytest.raises(exceptions.NotFound):  # nor has it made the metric known
        monitoring.list(CUSTOM)


def test_a_metric_keeps_its_kind_and_value_type(monitoring: Monitoring) -> None:
    monitoring.write(series(START))
    monitoring.clock.advance(60)
    whole = [{"interval": {"end_time": stamp(START + 60)}, "value": {"int64_value": 1}}]
    assert "DOUBLE, not INT64" in failure_of(monitoring, series(START, points=whole))[0]
    counted = [{"interval": {"start_time": stamp(START), "end_time": stamp(START + 60)}, "value": {"double_value": 1}}]
    assert "metric_kind" in failure_of(monitoring, series(START, points=counted, metric_kind="CUMULATIVE"))[0]


@pytest.mark.parametrize("count", [201, 0])
def test_at_most_200_series_in_a_call(monitoring: Monitoring, count: int) -> None:
    batch = [series(START, metric={"type": CUSTOM, "labels": {"verdict": str(at)}}) for at in range(count)]
    assert "timeSeries" in failure_of(monitoring, *batch)[0]
