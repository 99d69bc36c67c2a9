"""tpuwatch's main metrics as custom metrics of Cloud Monitoring, for those who have no Prometheus.

One series for each metric, node and worker, written in batches, a point each. Node and worker are labels of the
monitored resource (generic_task: job and task_id), so that metrics have no labels of their own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import Pacing
from tpuwatch.google import ApiFault, MonitoringConnection, explain, monitoring_call
from tpuwatch.model import BAD, Problem

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from tpuwatch.config import MonitoringConfig
    from tpuwatch.core import Clock
    from tpuwatch.model import Host, Identity, JudgedNode, Runtime, Snapshot

PREFIX: Final = "custom.googleapis.com/tpuwatch/"
BATCH: Final = 200  # series in one call, as the service allows
NAMESPACE: Final = "tpuwatch"
_CREATE: Final = "CreateTimeSeries"
_WRITING: Final = ("monitoring.timeSeries.create", "roles/monitoring.metricWriter")
_MAX_PAUSE_SECONDS: Final = 600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of one worker."""

    metric: str  # without PREFIX
    value: float
    node: str
    zone: str
    worker: str


def samples(posted: Snapshot, nodes: Sequence[JudgedNode]) -> list[Sample]:
    """The samples of now. What is unknown has no sample.

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
    """Writes samples at an interval. For one thread; times in seconds."""

    def __init__(
        self,
        monitoring: MonitoringConfig,
        read_samples: Callable[[], Sequence[Sample]],
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        rng: random.Random,
        on_call: Callable[[str, str], None],
        insecure: bool,
        timeout_seconds: float,
    ) -> None:
        """`read_samples` returns what to write; `on_call` is called with the method and the code of each call."""
        self.problem = ""  # why the last write failed, and what to do; "" if it did not
        self._read_samples = read_samples
        self._identity = identity
        self._clock = clock
        self._on_call = on_call
        self._endpoint = monitoring.endpoint
        self._connection = MonitoringConnection(
            monitoring.endpoint, insecure=insecure, clock=clock, timeout_seconds=timeout_seconds
        )
        self._timeout = timeout_seconds
        self._pacing = Pacing(monitoring.export_seconds, clock=clock, rng=rng, max_pause=_MAX_PAUSE_SECONDS)
        self._min_seconds = monitoring.export_seconds
        self._closed = False

    def turn(self) -> float:
        """Write the current samples; returns the seconds until the next turn."""
        project, now = self._identity().project.value, int(self._clock.time())
        current = self._read_samples() if project else ()
        fault = None
        for start in range(0, len(current), BATCH):
            if not self._closed:
                fault = self._write(project, current[start : start + BATCH], now) or fault
        self._connection.close()
        if self._closed:
            return self._min_seconds
        # What failed is not written later: its time would be older than the next one's.
        self._report(fault)
        if fault is None:
            self._pacing.succeeded()
        else:
            self._pacing.failed(fault.retry_after)
        return max(self._min_seconds, self._pacing.due_in)  # jitter and retries make it later, never sooner

    def close(self) -> None:
        """Cancel the call under way, close the connection and write no more. May be called from any thread."""
        self._closed = True
        self._connection.close()

    def _write(self, project: str, batch: Sequence[Sample], now: int) -> ApiFault | None:
        try:
            request = {"name": f"projects/{project}", "time_series": [_series(project, one, now) for one in batch]}
            self._connection.client().create_time_series(request=request, timeout=self._timeout, retry=None)
        except Exception as error:  # noqa: BLE001 # whatever Google's packages raise is explained, and counted
            what = f"custom metrics of project {project}"
            fault = explain(error, monitoring_call(what, project, self._endpoint, self._timeout, _WRITING))
            self._on_call(_CREATE, fault.code)
            if fault.problem is Problem.CREDENTIALS:
                self._connection.forget()
            return fault
        self._on_call(_CREATE, "OK")
        return None

    def _report(self, fault: ApiFault | None) -> None:
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
