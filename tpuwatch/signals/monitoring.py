"""The signal of Cloud Monitoring: idle time and infrastructure health, minutes late.

Samples are taken every 60 s and seen up to 180 s later: they confirm, and never detect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import Pacing
from tpuwatch.google import MonitoringConnection, explain, monitoring_call
from tpuwatch.model import Answer, Monitoring, Problem, Signal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import Identity
    from tpuwatch.signals.sources import SignalSources

POLL_SECONDS: Final = 60.0  # there is no more than one sample in that time
WINDOW_SECONDS: Final = 600  # how far back a sample may lie
IDLE: Final = "tpu.googleapis.com/tpu/tensorcore/idle_duration"  # of resource tpu_worker: int64 seconds, one per core
INFRA_HEALTH: Final = "compute.googleapis.com/instance/tpu/infra_health"  # of resource gce_instance: bool
_LIST: Final = "ListTimeSeries"
_MAX_SERIES: Final = 1000
_READING: Final = ("monitoring.timeSeries.list", "roles/monitoring.viewer")
_UNKNOWN: Final = (
    "Cloud Monitoring is not asked, since project or node is unknown: it knows TPU VMs that the Cloud TPU API made."
)


class MonitoringSignal:
    """Reads the own worker's latest samples. Not for several threads at once; times in seconds."""

    def __init__(
        self,
        config: Config,
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        rng: random.Random,
        on_call: Callable[[str, str], None],
    ) -> None:
        """`on_call` is called with the method and the code's name of each call."""
        self._identity = identity
        self._clock = clock
        self._on_call = on_call
        self._endpoint, self.timeout_seconds = config.monitoring.endpoint, config.cloud.timeout_seconds
        self._connection = MonitoringConnection(
            self._endpoint, insecure=config.cloud.insecure, clock=clock, timeout_seconds=self.timeout_seconds
        )
        self._pacing = Pacing(POLL_SECONDS, clock=clock, rng=rng, max_pause=10 * POLL_SECONDS)
        self._closed = False
        self._last: Answer[Monitoring] = Answer()

    @property
    def due_in(self) -> float:
        """Seconds until it wants to be asked again."""
        return self._pacing.due_in

    def ask(self) -> Answer[Monitoring]:
        """The latest samples of this machine's worker; takes little more than three timeouts at most."""
        try:
            return self._ask(self._clock.time(), self._identity())
        finally:
            self._connection.close()

    def _ask(self, now: float, identity: Identity) -> Answer[Monitoring]:
        if not (identity.project.value and identity.node.value):
            self._pacing.succeeded()
            return self._without(Problem.UNCONFIGURED, _UNKNOWN, now)
        try:
            idle = self._latest(IDLE, identity, now)
            health = self._latest(INFRA_HEALTH, identity, now) if identity.instance.value else []
        except Exception as error:  # noqa: BLE001 # whatever Google's packages raise is explained, and counted there
            what = f"the samples of node {identity.node.value}"
            project = identity.project.value
            fault = explain(error, monitoring_call(what, project, self._endpoint, self.timeout_seconds, _READING))
            self._on_call(_LIST, fault.code)
            if fault.problem is Problem.CREDENTIALS:
                self._connection.forget()
            self._pacing.failed(fault.retry_after)
            return self._without(fault.problem, fault.sentence, now)
        self._pacing.succeeded()
        # The node is as idle as its busiest core, and as healthy as its sickest part.
        idle_at, idle_seconds = min(idle, key=lambda sample: sample[1]) if idle else (None, None)
        infra_at, healthy = min(health, key=lambda sample: sample[1]) if health else (None, None)
        self._last = Answer(Monitoring(idle_seconds, idle_at, healthy, infra_at), now, None, "", now)
        return self._last

    def close(self) -> None:
        """Cancel calls in progress, close the connection, and make no more. May be called from any thread.

        The thread that is asking calls this once more when it is done.
        """
        self._closed = True
        self._connection.close()

    def _without(self, problem: Problem, detail: str, now: float) -> Answer[Monitoring]:
        self._last = Answer(self._last.value, self._last.at, problem, detail, now)
        return self._last

    def _latest(self, metric: str, identity: Identity, now: float) -> list[tuple[float, Any]]:
        """The time and value of the newest point of each series."""
        if self._closed:
            raise ConnectionAbortedError("tpuwatch is being stopped")
        reply = self._connection.client().list_time_series(
            request={
                "name": f"projects/{identity.project.value}",
                "filter": _filter(metric, identity),
                "interval": {
                    "start_time": {"seconds": int(now) - WINDOW_SECONDS},
                    "end_time": {"seconds": int(now)},
                },
            },
            timeout=self.timeout_seconds,
            retry=None,
        )
        self._on_call(_LIST, "OK")
        return list(_newest_points(reply))


def _filter(metric: str, identity: Identity) -> str:
    # All of it comes from an identity, whose values are names and numbers: nothing is to be escaped.
    wanted = {"resource.labels.zone": identity.zone.value}
    if metric == INFRA_HEALTH:
        wanted["resource.labels.instance_id"] = identity.instance.value
    else:
        wanted |= {"resource.labels.node_id": identity.node.value, "resource.labels.worker_id": identity.worker.value}
    return " AND ".join(
        [f'metric.type = "{metric}"', *(f'{key} = "{value}"' for key, value in wanted.items() if value)]
    )


def _newest_points(reply: Any) -> Iterator[tuple[float, Any]]:
    for _, series in zip(range(_MAX_SERIES), reply, strict=False):
        if series.points:  # the newest comes first
            point = series.points[0]
            kind = type(point.value).pb(point.value).WhichOneof("value")
            if kind in ("bool_value", "int64_value", "double_value"):
                yield point.interval.end_time.timestamp(), getattr(point.value, kind)


def start(sources: SignalSources) -> None:
    """Add the source that asks Cloud Monitoring for this machine's samples."""
    source = MonitoringSignal(
        sources.config,
        sources.identity,
        clock=sources.clock,
        rng=sources.rng,
        on_call=sources.metrics.node.count_api_request,
    )
    calls = 3 * sources.config.cloud.timeout_seconds  # the token, and a list of each metric
    post = partial(sources.post, Signal.MONITORING)
    sources.add("monitoring", source, POLL_SECONDS, post, after="identity", calls=calls)
