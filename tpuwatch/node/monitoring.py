"""Cloud Monitoring as a witness: idle time and infrastructure health, minutes late.

Samples are taken every 60 s and seen up to 180 s later: they confirm, and never detect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.evidence import Answer, Monitoring, Problem
from tpuwatch.node.apifaults import Asked, explain
from tpuwatch.node.pacing import Pacing

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tpuwatch.clock import Clock
    from tpuwatch.health.evidence import Identity
    from tpuwatch.node.tokens import Tokens

POLL_SECONDS: Final = 60.0  # there is no more than one sample in that time
WINDOW_SECONDS: Final = 600  # how far back a sample may lie
SERVER: Final = "monitoring.googleapis.com:443"
IDLE: Final = "tpu.googleapis.com/tpu/tensorcore/idle_duration"  # of resource tpu_worker: int64 seconds, one per core
INFRA_HEALTH: Final = "compute.googleapis.com/instance/tpu/infra_health"  # of resource gce_instance: bool
_LIST: Final = "ListTimeSeries"
_MAX_SERIES: Final = 1000
_READING: Final = ("monitoring.timeSeries.list", "roles/monitoring.viewer")
_UNKNOWN: Final = (
    "Cloud Monitoring is not asked, since project or node is unknown: it knows TPU VMs that the Cloud TPU API made."
)


class MonitoringWitness:
    """Reads the own worker's latest samples. Not for several threads at once; times in seconds."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        dice: random.Random,
        counted: Callable[[str, str], None],
        endpoint: str = "",
        insecure: bool = False,
        timeout_seconds: float = 10.0,
    ) -> None:
        """`counted` is told the method and the code's name of each call; `endpoint` "" is Google's own."""
        self._identity = identity
        self._clock = clock
        self._counted = counted
        self._endpoint = endpoint
        self._connection = Connection(endpoint, insecure=insecure, clock=clock, timeout_seconds=timeout_seconds)
        self.timeout_seconds = timeout_seconds
        self._pacing = Pacing(POLL_SECONDS, clock=clock, dice=dice, longest=10 * POLL_SECONDS)
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
            self._connection.let_go()

    def _ask(self, now: float, identity: Identity) -> Answer[Monitoring]:
        if not (identity.project.value and identity.node.value):
            self._pacing.succeeded()
            return self._without(Problem.UNCONFIGURED, _UNKNOWN, now)
        try:
            idle = self._latest(IDLE, identity, now)
            health = self._latest(INFRA_HEALTH, identity, now) if identity.instance.value else []
        except Exception as error:  # noqa: BLE001 # whatever Google's packages raise is explained, and counted there
            what = f"the samples of node {identity.node.value}"
            fault = explain(error, asked(what, identity.project.value, self._endpoint, self.timeout_seconds, _READING))
            self._counted(_LIST, fault.code)
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
        """Break off what is under way, let the connection go, and ask no more. May be called from any thread.

        If one that asks is in the middle of it, it calls this once more afterwards.
        """
        self._closed = True
        self._connection.let_go()

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
        self._counted(_LIST, "OK")
        return list(_newest_points(reply))


class Connection:
    """Google's client of Cloud Monitoring: Google's own server where `endpoint` is "", or any other.

    Connects when it is used, and again after it was let go; the credentials stay. Between two polls it is let go:
    gRPC's threads wake several times a second while a connection is open, which costs more than a new one.
    """

    def __init__(self, endpoint: str, *, insecure: bool, clock: Clock, timeout_seconds: float) -> None:
        """Access tokens are asked for within `timeout_seconds`."""
        self._endpoint = endpoint
        self._insecure = insecure
        self._clock = clock
        self._timeout = timeout_seconds
        self._tokens: Tokens | None = None
        self._client: Any = None

    def client(self) -> Any:
        """The client, with a token that is good for a call. Raises what google.auth raises, and TokenTimeout."""
        client = self._client
        if client is None:
            client = self._client = self._connected()
        elif self._tokens is not None:
            self._tokens.renew(self._timeout)
        return client

    def forget(self) -> None:
        """Find credentials anew the next time. For the thread that asks."""
        self._tokens = None

    def let_go(self) -> None:
        """Close the connection; breaks off what is under way. May be called from any thread."""
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()

    def _connected(self) -> Any:
        from google.cloud import monitoring_v3
        from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

        from tpuwatch.node.cloudclient import CHANNEL_OPTIONS, insecure_channel

        if self._insecure and self._endpoint:
            channel = insecure_channel(self._endpoint)
        else:
            from tpuwatch.node.tokens import Tokens

            if self._tokens is None:
                self._tokens = Tokens(MetricServiceGrpcTransport.AUTH_SCOPES, self._clock)
            channel = MetricServiceGrpcTransport.create_channel(
                self._endpoint or SERVER, credentials=self._tokens.renew(self._timeout), options=CHANNEL_OPTIONS
            )
        return monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=channel))


def asked(what: str, project: str, endpoint: str, seconds: float, needs: tuple[str, str]) -> Asked:
    """What is asked of Cloud Monitoring, for a fault's sentence; `needs` are a permission and a role that has it."""
    permission, role = needs
    return Asked(
        what=what,
        place=f"project {project}",
        project=project,
        server=endpoint or SERVER,
        seconds=seconds,
        api="Cloud Monitoring API",
        service="monitoring.googleapis.com",
        permission=permission,
        role=role,
        table="monitoring",
    )


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
