"""What Google's own agents write to Cloud Monitoring about simulated TPUs: a sample a minute, seen three minutes later.

The world holds only the present, so a `Recorder` samples what each worker does. A phase keeps the time of its
beginning, so that only phases that start and end between two samples are lost.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from google.cloud import monitoring_v3

from tpuwatch.sim.cloud.metadata_tree import instance_id
from tpuwatch.sim.cloud.nodes import SERVING, SimNode, Workload
from tpuwatch.sim.cloud.runtime_metrics import duty_cycle, hbm_used, idle_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.sim.cloud.world import World

SAMPLE_SECONDS: Final = 60
DELAY_SECONDS: Final = 180
KEPT: Final = 32  # states kept per worker
IDLE: Final = "tpu.googleapis.com/tpu/tensorcore/idle_duration"
DUTY_CYCLE: Final = "tpu.googleapis.com/accelerator/duty_cycle"
MEMORY_USED: Final = "tpu.googleapis.com/accelerator/memory_used"
MEMORY_TOTAL: Final = "tpu.googleapis.com/accelerator/memory_total"
INFRA_HEALTH: Final = "compute.googleapis.com/instance/tpu/infra_health"
_BAD_HEALTH: Final = frozenset({"TIMEOUT", "UNHEALTHY_MAINTENANCE"})

TimeSeries: Final[Any] = monitoring_v3.TimeSeries.pb()


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker from a time on."""

    since: float
    up: bool  # the VM is there
    answers: bool  # and so does its guest
    healthy: bool  # as infra_health has it
    workload: Workload


@dataclass(frozen=True, slots=True)
class _Metric:
    unit: str
    value_type: str
    label: str  # of the metric, with the chip's number; "" for one series per worker
    value: Callable[[SimNode, WorkerState, int, float], Any]  # None: no sample


def _of_runtime(
    value: Callable[[SimNode, Workload, int, float], Any],
) -> Callable[[SimNode, WorkerState, int, float], Any]:
    def sample(node: SimNode, state: WorkerState, chip: int, at: float) -> Any:
        reports = state.answers and state.workload.phase in SERVING
        return value(node, state.workload, chip, at) if reports else None

    return sample


METRICS: Final = {
    IDLE: _Metric(
        "s",
        "INT64",
        "chip",
        lambda _node, state, _chip, at: int(idle_seconds(state.workload, at)) if state.answers else None,
    ),
    DUTY_CYCLE: _Metric(
        "%",
        "DOUBLE",
        "accelerator_id",
        _of_runtime(lambda _node, work, chip, at: 100 * duty_cycle(work, chip, at)),
    ),
    MEMORY_USED: _Metric(
        "By", "INT64", "accelerator_id", _of_runtime(lambda node, work, _chip, _at: hbm_used(node, work))
    ),
    MEMORY_TOTAL: _Metric("By", "INT64", "accelerator_id", _of_runtime(lambda node, _work, _chip, _at: node.hbm_bytes)),
    INFRA_HEALTH: _Metric(
        "",
        "BOOL",
        "",
        lambda _node, state, _chip, _at: state.healthy if state.up else None,
    ),
}


class Recorder:
    """Records the states of a world's workers and returns them as series. Call it under the world's lock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._states: dict[tuple[str, int], deque[WorkerState]] = {}

    def record(self) -> None:
        """Record what has changed since the last call."""
        now = self._world.advance()
        gone = self._states.keys() - {
            (path, worker) for path, node in self._world.nodes.items() for worker in range(node.hosts)
        }
        for key in gone:
            del self._states[key]
        for path, node in self._world.nodes.items():
            for worker, workload in enumerate(node.workloads):
                _record_state(self._states.setdefault((path, worker), deque(maxlen=KEPT)), node, workload, now)

    def series(
        self, metric_type: str, project: str, start: float, end: float, wanted: Callable[[Any], bool]
    ) -> Iterator[Any]:
        """The wanted built-in series of a metric, with their points from `start` to `end`, the newest first."""
        metric = METRICS.get(metric_type)
        if metric is None:
            return
        newest = int(min(end, self._world.clock.time() - DELAY_SECONDS) // SAMPLE_SECONDS) * SAMPLE_SECONDS
        times = range(newest, math.ceil(start) - 1, -SAMPLE_SECONDS)
        for path, node in self._world.nodes.items():
            if node.project != project:
                continue
            for worker in range(node.hosts):
                states = self._states.get((path, worker), ())
                for chip in range(node.chips_per_host if metric.label else 1):
                    series = _series(metric_type, metric, node, worker, chip)
                    if wanted(series):
                        _fill(series, metric, node, states, chip, times)
                        yield series


def _record_state(states: deque[WorkerState], node: SimNode, workload: Workload, now: float) -> None:
    state = WorkerState(
        since=now,
        up=node.alive or node.hangs,
        answers=node.alive,
        healthy=not node.hangs and node.health not in _BAD_HEALTH,
        workload=replace(workload),
    )
    if not states:
        states.append(replace(state, since=max(workload.since, node.created)))
    elif states[-1].workload != workload:  # a workload has its own start time
        states.append(replace(state, since=max(workload.since, states[-1].since)))
    elif replace(states[-1], since=now) != state:
        states.append(state)


def _fill(series: Any, metric: _Metric, node: SimNode, states: Any, chip: int, times: range) -> None:
    field = f"{metric.value_type.lower()}_value"
    for at in times:
        state = next((state for state in reversed(states) if state.since <= at), None)
        value = None if state is None else metric.value(node, state, chip, at)
        if value is not None:
            interval = {"start_time": {"seconds": at}, "end_time": {"seconds": at}}
            series.points.add(interval=interval, value={field: value})


def _series(metric_type: str, metric: _Metric, node: SimNode, worker: int, chip: int) -> Any:
    labels = {"project_id": node.project, "zone": node.zone}
    if metric_type == INFRA_HEALTH:
        resource = {"type": "gce_instance", "labels": {**labels, "instance_id": str(instance_id(node, worker))}}
    else:
        resource = {"type": "tpu_worker", "labels": {**labels, "node_id": node.name, "worker_id": str(worker)}}
    return TimeSeries(
        metric={"type": metric_type, "labels": {metric.label: str(chip)} if metric.label else {}},
        resource=resource,
        metric_kind="GAUGE",
        value_type=metric.value_type,
        unit=metric.unit,
    )
