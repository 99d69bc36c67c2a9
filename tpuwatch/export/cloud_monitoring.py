"""tpuwatch's main metrics as custom metrics of Cloud Monitoring, for those who have no Prometheus.

One series for each metric, node and worker, written in batches, a point each. Node and worker are labels of the
monitored resource (generic_task: job and task_id), so that metrics have no labels of their own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.evidence import Problem
from tpuwatch.health.verdict import BAD
from tpuwatch.node.apifaults import Fault, explain
from tpuwatch.node.monitoring import Connection, asked
from tpuwatch.node.pacing import Pacing

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config.schema import Monitoring
    from tpuwatch.export.view import NodeStatus
    from tpuwatch.health.evidence import Host, Identity, Runtime
    from tpuwatch.node.board import Posted

PREFIX: Final = "custom.googleapis.com/tpuwatch/"
BATCH: Final = 200  # series in one call, as the service allows
NAMESPACE: Final = "tpuwatch"
_CREATE: Final = "CreateTimeSeries"
_WRITING: Final = ("monitoring.timeSeries.create", "roles/monitoring.metricWriter")
_LONGEST_PAUSE: Final = 600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """A number that is told of a worker."""

    metric: str  # without PREFIX
    value: float
    node: str
    zone: str
    worker: str


def samples(posted: Posted, nodes: Sequence[NodeStatus]) -> list[Sample]:
    """What is worth a series now. Of what is unknown there is no sample.

    All of it is this worker's: of a node that several watch there would be several writers to one series.
    """
    if not nodes:
        return []
    own, identity = nodes[0], posted.identity
    runtime = None if posted.runtime.problem else posted.runtime.value
    host = None if posted.host.problem else posted.host.value
    values = [
        ("node_bad", float(own.judgement.verdict in BAD)),
        ("watched_nodes_bad", float(sum(status.judgement.verdict in BAD for status in nodes[1:]))),
        *_of_runtime(runtime),
        *_of_host(host),
    ]
    zone, worker = identity.zone.value or own.zone, identity.worker.value or "0"
    return [Sample(metric, value, own.node, zone, worker) for metric, value in values]


def _of_runtime(runtime: Runtime | None) -> Iterator[tuple[str, float]]:
    chips = runtime.chips if runtime else ()
    if used := [chip.hbm_used_bytes for chip in chips if chip.hbm_used_bytes is not None]:
        yield "hbm_used_bytes", sum(used)
    if total := [chip.hbm_total_bytes for chip in chips if chip.hbm_total_bytes is not None]:
        yield "hbm_total_bytes", sum(total)
    if duty := [chip.duty_cycle for chip in chips if chip.duty_cycle is not None]:
        yield "tensorcore_duty_cycle_ratio", sum(duty) / len(duty)
    if idle := [chip.idle_seconds for chip in chips if chip.idle_seconds is not None]:
        yield "tensorcore_idle_seconds", min(idle)


def _of_host(host: Host | None) -> Iterator[tuple[str, float]]:
    if host is not None and host.memory_available_bytes is not None:
        yield "host_memory_available_bytes", host.memory_available_bytes
    if host is not None and host.oom_kills is not None:
        yield "host_oom_kills", host.oom_kills


class CloudMonitoringExport:
    """Writes samples now and then. For one thread; times in seconds."""

    def __init__(
        self,
        monitoring: Monitoring,
        told: Callable[[], Sequence[Sample]],
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        dice: random.Random,
        counted: Callable[[str, str], None],
        insecure: bool = False,
        timeout_seconds: float = 10.0,
    ) -> None:
        """`told` gives what is to be written; `counted` is told the method and the code's name of each call."""
        self.problem = ""  # why the last write failed, and what to do; "" if it did not
        self._told = told
        self._identity = identity
        self._clock = clock
        self._counted = counted
        self._endpoint = monitoring.endpoint
        self._connection = Connection(
            monitoring.endpoint, insecure=insecure, clock=clock, timeout_seconds=timeout_seconds
        )
        self._timeout = timeout_seconds
        self._pacing = Pacing(monitoring.export_seconds, clock=clock, dice=dice, longest=_LONGEST_PAUSE)
        self._least = monitoring.export_seconds
        self._closed = False

    def turn(self) -> float:
        """Write what there is now; returns the seconds until the next time."""
        project, now = self._identity().project.value, int(self._clock.time())
        told = self._told() if project else ()
        fault = None
        for start in range(0, len(told), BATCH):
            if not self._closed:
                fault = self._write(project, told[start : start + BATCH], now) or fault
        self._connection.let_go()
        if self._closed:
            return self._least
        # What failed is not written later: its time would be older than the next one's.
        self._say(fault)
        if fault is None:
            self._pacing.succeeded()
        else:
            self._pacing.failed(fault.retry_after)
        return max(self._least, self._pacing.due_in)  # jitter and retries make it later, never sooner

    def close(self) -> None:
        """Break off what is under way, let the connection go, and write no more. May be called from any thread."""
        self._closed = True
        self._connection.let_go()

    def _write(self, project: str, batch: Sequence[Sample], now: int) -> Fault | None:
        try:
            request = {"name": f"projects/{project}", "time_series": [_series(project, one, now) for one in batch]}
            self._connection.client().create_time_series(request=request, timeout=self._timeout, retry=None)
        except Exception as error:  # noqa: BLE001 # whatever Google's packages raise is explained, and counted
            what = f"custom metrics of project {project}"
            fault = explain(error, asked(what, project, self._endpoint, self._timeout, _WRITING))
            self._counted(_CREATE, fault.code)
            if fault.problem is Problem.CREDENTIALS:
                self._connection.forget()
            return fault
        self._counted(_CREATE, "OK")
        return None

    def _say(self, fault: Fault | None) -> None:
        problem = fault.sentence if fault else ""
        if problem != self.problem:
            _log.warning("%s", problem or "Metrics are written to Cloud Monitoring again.")
        self.problem = problem


def _series(project: str, sample: Sample, now: int) -> dict[str, Any]:
    return {
        "metric": {"type": PREFIX + sample.metric},
        "resource": {
            "type": "generic_task",
            "labels": {
                "project_id": project,
                "location": sample.zone or "global",
                "namespace": NAMESPACE,
                "job": sample.node,
                "task_id": sample.worker,
            },
        },
        "points": [{"interval": {"end_time": {"seconds": now}}, "value": {"double_value": float(sample.value)}}],
    }
