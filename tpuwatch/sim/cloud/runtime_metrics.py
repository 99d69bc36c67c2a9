"""What libtpu's runtime metrics say of a simulated workload, and the gRPC handler that says it.

The values follow the workload's phase and the world's clock alone: the same moment gives the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc

from tpuwatch.libtpu import metrics_proto
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase
from tpuwatch.sim.cloud.responses import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.cloud.world import World

STEP_SECONDS: Final = 0.5  # of a training step
LOADED: Final = frozenset(
    {WorkloadPhase.TRAINING, WorkloadPhase.STUCK, WorkloadPhase.HUNG}
)  # phases in which a program is on the chips
RESERVED: Final = 0.02  # share of the HBM that the runtime itself takes
HBM_USED: Final = "tpu.runtime.hbm.memory.usage.bytes"
HBM_TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
DUTY_CYCLE: Final = "tpu.runtime.tensorcore.dutycycle.percent"
IDLE: Final = "tpu.runtime.tensorcore.idle_duration.seconds"
HLO_QUEUE: Final = "hlo.queue.size.gauge"
HLO_TIMING: Final = "hlo.execution.timing.distribution.microseconds"


def duty_cycle(workload: Workload, chip: int, now: float) -> float:
    """The share of the time that a chip computes, 0 to 1; while training it moves by one part in a hundred."""
    if workload.phase is not WorkloadPhase.TRAINING:
        return 0.0
    return min(1.0, max(0.0, workload.duty_cycle + 0.01 * math.sin(now / 7 + chip)))


def idle_seconds(workload: Workload, now: float) -> float:
    """Seconds since a program last ran on the chips; since the phase began where none has."""
    since = max(0.0, now - workload.since)
    return since % STEP_SECONDS * (1 - workload.duty_cycle) if workload.phase is WorkloadPhase.TRAINING else since


def hbm_used(node: SimNode, workload: Workload) -> int:
    """Bytes of a chip's memory that are taken."""
    return int(node.hbm_bytes * (workload.hbm_used if workload.phase in LOADED else RESERVED))


def hlo_queue(workload: Workload) -> int:
    """Programs that wait for a core."""
    return {WorkloadPhase.TRAINING: 2, WorkloadPhase.STUCK: 8, WorkloadPhase.HUNG: 8}.get(workload.phase, 0)


def _timing(workload: Workload, now: float) -> dict[str, float]:
    """The times of the programs that have run in this phase, in microseconds."""
    if workload.phase is not WorkloadPhase.TRAINING:
        return {"count": 0}
    mean = STEP_SECONDS * workload.duty_cycle * 1e6
    steps = int(max(0.0, now - workload.since) / STEP_SECONDS)
    return {"count": steps, "mean": mean, "min": 0.9 * mean, "max": 1.3 * mean} if steps else {"count": 0}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A metric: what it is, and the fields of its measure for one chip."""

    description: str
    measure: Callable[[SimNode, Workload, int, float], dict[str, Any]]


_KINDS: Final = {
    HBM_USED: _Kind("HBM in use", lambda node, work, _chip, _now: {"gauge": {"as_int": hbm_used(node, work)}}),
    HBM_TOTAL: _Kind("HBM of the chip", lambda node, _work, _chip, _now: {"gauge": {"as_int": node.hbm_bytes}}),
    DUTY_CYCLE: _Kind(
        "TensorCore duty cycle",
        lambda _node, work, chip, now: {"gauge": {"as_double": 100 * duty_cycle(work, chip, now)}},
    ),
    IDLE: _Kind(
        "Time since the TensorCore last ran a program",
        lambda _node, work, _chip, now: {"gauge": {"as_double": idle_seconds(work, now)}},
    ),
    HLO_QUEUE: _Kind("Programs that wait", lambda _node, work, _chip, _now: {"gauge": {"as_int": hlo_queue(work)}}),
    HLO_TIMING: _Kind("Times of programs", lambda _node, work, _chip, now: {"distribution": _timing(work, now)}),
}
METRICS: Final = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class Version:
    """How a version of libtpu words its answers."""

    key: str = "device_ordinal"  # the attribute with the chip's number; "device-id" has been seen too
    text: bool = False  # its value is a string, as of newer versions
    metrics: tuple[str, ...] = METRICS  # the ones that it knows


def handler(world: World, node: str, worker: int, chips: range, version: Version = Version()) -> grpc.GenericRpcHandler:
    """The RuntimeMetricService of one process, for a grpc server with the Interceptor.

    `node` is a resource name, `chips` are the process's.
    """
    service = _Service(world, node, worker, chips, version)
    return grpc.method_handlers_generic_handler(
        metrics_proto.SERVICE,
        {
            "GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(
                service.get,
                request_deserializer=metrics_proto.MetricRequest.FromString,
                response_serializer=metrics_proto.MetricResponse.SerializeToString,
            ),
            "ListSupportedMetrics": grpc.unary_unary_rpc_method_handler(
                service.list,
                request_deserializer=metrics_proto.ListSupportedMetricsRequest.FromString,
                response_serializer=metrics_proto.ListSupportedMetricsResponse.SerializeToString,
            ),
        },
    )


class _Service:
    def __init__(self, world: World, node: str, worker: int, chips: range, version: Version) -> None:
        self._world = world
        self._node = node
        self._worker = worker
        self._chips = chips
        self._version = version

    def get(self, request: Any, _: Any) -> Any:
        name = request.metric_name
        if name not in self._version.metrics:
            raise ServiceError("NOT_FOUND", f"The metric {name[:200]!r} is not supported.")
        node, workload, now = self._state()
        if node is None:
            raise ServiceError("UNAVAILABLE", "The machine is gone.")
        kind = _KINDS[name]
        metrics = [self._metric(kind.measure(node, workload, chip, now), chip, now) for chip in self._chips]
        return metrics_proto.MetricResponse(metric={"name": name, "description": kind.description, "metrics": metrics})

    def list(self, request: Any, _: Any) -> Any:
        names = [name for name in self._version.metrics if request.filter in name]
        return metrics_proto.ListSupportedMetricsResponse(supported_metric=[{"metric_name": name} for name in names])

    def _metric(self, measure: dict[str, Any], chip: int, now: float) -> dict[str, Any]:
        seconds = math.floor(now)
        value = {"string_attr": str(chip)} if self._version.text else {"int_attr": chip}
        return {
            "attribute": {"key": self._version.key, "value": value},
            "timestamp": {"seconds": seconds, "nanos": int((now - seconds) * 1e9)},
            **measure,
        }

    def _state(self) -> tuple[Any, Workload, float]:
        """The node (None: it has vanished), its workload as it is now, and the time."""
        with self._world.lock:
            now = self._world.advance()
            node = self._world.nodes.get(self._node)
            return node, replace(node.workloads[self._worker]) if node else Workload(), now
