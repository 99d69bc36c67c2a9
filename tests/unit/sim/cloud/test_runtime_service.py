"""libtpu's runtime metrics on a simulated worker, asked over a plain gRPC channel."""

from __future__ import annotations

import importlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from tests.standins.runtime_server import is_open
from tpuwatch.core.clock import ManualClock
from tpuwatch.libtpu import metrics_proto
from tpuwatch.libtpu.metrics_values import total
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import GIB, SimNode, Workload, WorkloadPhase, shape_of
from tpuwatch.sim.cloud.runtime_metrics import DUTY_CYCLE, GROWTH, HBM_TOTAL, HBM_USED, HLO_QUEUE, HLO_TIMING, IDLE
from tpuwatch.sim.cloud.runtime_service import RuntimeService
from tpuwatch.sim.cloud.world import World

DEADLINE = 60.0  # of a call that is to succeed: long, for none should need it
SOON = 0.3  # of a call that is to hang


class Site:
    """A world with one node, and the runtime metrics of its first worker."""

    def __init__(self, **fields: Any) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.node = self.world.add(SimNode(**{"project": "lab", "zone": "us-east5-a", "name": "train-1", **fields}))
        self.service = RuntimeService(self.world, self.node.path)

    def enter(self, phase: WorkloadPhase) -> None:
        self.node.workloads[0] = Workload(phase, since=self.clock.time())
        self.service.advance()

    def ask(self, name: str, *, timeout: float = DEADLINE) -> Any:
        """By a connection of its own: one that another channel has may be cut by the port at any moment."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.service.ports[0]}", options) as channel:
            return metric_of(channel, name, timeout)

    def listens(self) -> bool:
        return is_open(f"127.0.0.1:{self.service.ports[0]}")


def metric_of(channel: grpc.Channel, name: str, timeout: float = DEADLINE) -> Any:
    call = channel.unary_unary(
        metrics_proto.GET_METRIC,
        request_serializer=metrics_proto.MetricRequest.SerializeToString,
        response_deserializer=metrics_proto.MetricResponse.FromString,
    )
    return call(metrics_proto.MetricRequest(metric_name=name), timeout=timeout).metric


@contextmanager
def site(**fields: Any) -> Iterator[Site]:
    running = Site(**fields)
    try:
        yield running
    finally:
        running.service.close()


def doubles(metric: Any) -> list[float]:
    return [one.gauge.as_double for one in metric.metrics]


def integers(metric: Any) -> list[int]:
    return [one.gauge.as_int for one in metric.metrics]


def code(ask: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failed:
        ask()
    return failed.value.code()


@pytest.mark.parametrize("phase", [WorkloadPhase.NONE, WorkloadPhase.STARTING])
def test_nobody_listens_until_the_metrics_are_up(phase: WorkloadPhase) -> None:
    with site() as here:
        here.enter(phase)
        assert not here.listens()
        assert code(lambda: here.ask(IDLE)) is grpc.StatusCode.UNAVAILABLE


def test_training() -> None:
    with site(hbm_bytes=16 * GIB) as here:
        here.enter(WorkloadPhase.TRAINING)
        here.clock.advance(100)
        duty = doubles(here.ask(DUTY_CYCLE))
        assert len(duty) == 4
        assert all(90 < one < 94 for one in duty)
        assert len(set(duty)) > 1
        assert all(0 <= one < 1 for one in doubles(here.ask(IDLE)))
        assert integers(here.ask(HBM_TOTAL)) == [16 * GIB] * 4
        assert integers(here.ask(HBM_USED)) == [int(0.6 * 16 * GIB)] * 4
        assert integers(here.ask(HLO_QUEUE)) == [2] * 4
        timing = here.ask(HLO_TIMING).metrics[0].distribution
        assert (timing.count, timing.mean) == (200, pytest.approx(460_000, rel=0.01))
        assert here.ask(DUTY_CYCLE).metrics[0].timestamp.seconds == int(here.clock.time())


def device(attribute: Any) -> int:
    """The device of an entry as Google's tpu-info finds it: of a list, the pair that names it; no list, no entry."""
    (named,) = [each.value for each in attribute.value.kvlist_attr.attributes if each.key == "device_ordinal"]
    return int(named.string_attr) if named.WhichOneof("attr") == "string_attr" else int(named.int_attr)


def percentile(distribution: Any, share: float) -> float:
    """The value below which that share of a distribution's counts is, within a bucket by its place."""
    buckets = distribution.bucket_options.exponential_buckets
    assert len(distribution.bucket_counts) == buckets.num_finite_buckets + 2
    assert sum(distribution.bucket_counts) == distribution.count
    above = int(distribution.count * share)
    for number, count in enumerate(distribution.bucket_counts):
        if above < count:
            low = buckets.scale * buckets.growth_factor ** (number - 1)
            return float(low * (1 + above / count * (buckets.growth_factor - 1)))
        above -= count
    raise AssertionError(distribution)


def test_the_queue_and_the_times_of_programs_name_device_and_core_in_a_list() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.clock.advance(100)
        for name in (HLO_QUEUE, HLO_TIMING):
            entries = here.ask(name).metrics
            assert [device(each.attribute) for each in entries] == [0, 1, 2, 3]
            for each in entries:
                pairs = {pair.key: pair.value.string_attr for pair in each.attribute.value.kvlist_attr.attributes}
                assert pairs["core_type"] == "TENSOR_CORE"
        assert [one.attribute.value.int_attr for one in here.ask(HBM_USED).metrics] == [0, 1, 2, 3]
        assert total(here.ask(HLO_QUEUE)) == 8


def test_the_times_of_programs_are_counted_in_exponential_buckets() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.clock.advance(100)
        timing = here.ask(HLO_TIMING).metrics[0].distribution
        assert timing.min < timing.mean < timing.max
        step = GROWTH  # a bucket is that much wider than what is in it
        assert timing.min / step < percentile(timing, 0.1) < timing.min * step
        assert timing.mean / step < percentile(timing, 0.6) < timing.mean * step
        assert timing.max / step < percentile(timing, 0.999) < timing.max * step


def test_a_chip_of_tpu7x_is_two_devices() -> None:
    hosts, chips, hbm = shape_of("tpu7x-8")
    with site(accelerator_type="tpu7x-8", hosts=hosts, chips_per_host=chips, hbm_bytes=hbm) as here:
        here.enter(WorkloadPhase.TRAINING)
        here.clock.advance(100)
        assert integers(here.ask(HBM_TOTAL)) == [96 * GIB] * 8
        assert integers(here.ask(HBM_USED)) == [int(0.6 * 96 * GIB)] * 8
        assert len(doubles(here.ask(DUTY_CYCLE))) == 8
        assert [device(each.attribute) for each in here.ask(HLO_QUEUE).metrics] == list(range(8))


def test_googles_tpu_info_reads_all_of_it() -> None:
    metrics = pytest.importorskip("tpu_info.metrics", reason="tpu-info is not installed: pip install tpu-info")
    chips = importlib.import_module("tpu_info.device").TpuChip
    with site(hbm_bytes=16 * GIB) as here:
        here.enter(WorkloadPhase.TRAINING)
        here.clock.advance(100)
        address = f"localhost:{here.service.ports[0]}"
        usage = metrics.get_chip_usage(chips.V5E, address)
        assert [(one.device_id, one.total_memory) for one in usage] == [(chip, 16 * GIB) for chip in range(4)]
        assert all(90 < one.duty_cycle_pct < 94 for one in usage)
        assert [tuple(one) for one in metrics.get_hlo_queue_size(chips.V5E, address)] == [(n, 2) for n in range(4)]
        timings = metrics.get_hlo_exec_timing(chips.V5E, address)
        assert [one.device_id for one in timings] == [0, 1, 2, 3]
        assert all(300_000 < one.p50 <= one.p90 <= one.p999 < 800_000 for one in timings)
    hosts, per_host, hbm = shape_of("tpu7x-8")
    with site(accelerator_type="tpu7x-8", hosts=hosts, chips_per_host=per_host, hbm_bytes=hbm) as here:
        here.enter(WorkloadPhase.TRAINING)
        usage = metrics.get_chip_usage_new(chips.V7X, f"localhost:{here.service.ports[0]}")
        assert [(one.device_id, one.total_memory) for one in usage] == [(chip, 96 * GIB) for chip in range(8)]


@pytest.mark.parametrize(("phase", "used"), [(WorkloadPhase.COMPILING, 0.02), (WorkloadPhase.STUCK, 0.6)])
def test_idle_time_grows_by_the_world_s_clock(phase: WorkloadPhase, used: float) -> None:
    with site(hbm_bytes=1000) as here:
        here.enter(phase)
        here.clock.advance(90)
        assert doubles(here.ask(IDLE)) == [90.0] * 4
        here.clock.advance(1000)
        assert doubles(here.ask(IDLE)) == [1090.0] * 4
        assert doubles(here.ask(DUTY_CYCLE)) == [0.0] * 4
        assert integers(here.ask(HBM_USED)) == [int(1000 * used)] * 4
        assert here.ask(HLO_TIMING).metrics[0].distribution.count == 0


def test_a_hung_runtime_takes_connections_and_never_answers() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        with grpc.insecure_channel(f"127.0.0.1:{here.service.ports[0]}") as channel:
            assert metric_of(channel, IDLE).name == IDLE
            here.enter(WorkloadPhase.HUNG)
            assert here.listens()
            assert code(lambda: here.ask(IDLE, timeout=SOON)) is grpc.StatusCode.DEADLINE_EXCEEDED
            here.enter(WorkloadPhase.TRAINING)
            assert here.ask(IDLE).name == IDLE
            here.enter(WorkloadPhase.NONE)
            assert not here.listens()


def test_what_a_runtime_owes_when_it_begins_to_hang_is_owed_and_no_connection_breaks() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.world.faults.set(InjectedFault(method="GetRuntimeMetric", black_hole=True))
        with grpc.insecure_channel(f"127.0.0.1:{here.service.ports[0]}") as channel:
            call = channel.unary_unary(metrics_proto.GET_METRIC).future(b"", timeout=4 * SOON)
            while not here.world.calls:
                threading.Event().wait(0.005)
            here.world.hang(here.node)
            here.service.advance()
            assert call.exception(DEADLINE).code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_dead_guest_s_runtime_hangs_and_a_booted_one_has_none() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.world.hang(here.node)
        here.service.advance()
        assert code(lambda: here.ask(IDLE, timeout=SOON)) is grpc.StatusCode.DEADLINE_EXCEEDED
        here.world.boot(here.node, here.clock.time())
        here.service.advance()
        assert not here.listens()
        here.enter(WorkloadPhase.TRAINING)
        here.node.state = "STOPPED"
        here.service.advance()
        assert not here.listens()


def test_a_vanished_node_closes_its_ports() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.world.remove(here.node.path)
        assert code(lambda: here.ask(IDLE)) is grpc.StatusCode.UNAVAILABLE
        here.service.advance()
        assert not here.listens()


def test_old_chips_have_no_runtime_metrics() -> None:
    with site(accelerator_type="v3-8") as here:
        here.enter(WorkloadPhase.TRAINING)
        assert not here.listens()


def test_a_metric_that_there_is_not() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        assert code(lambda: here.ask("megascale.something")) is grpc.StatusCode.NOT_FOUND


def test_faults_strike_it_and_tokens_do_not_matter() -> None:
    with site() as here:
        here.enter(WorkloadPhase.TRAINING)
        here.world.tokens = {}
        here.world.faults.set(InjectedFault(method="GetRuntimeMetric", code="INTERNAL", times=1))
        assert code(lambda: here.ask(IDLE)) is grpc.StatusCode.INTERNAL
        assert here.ask(IDLE).name == IDLE
        here.world.faults.set(InjectedFault(method="GetRuntimeMetric", black_hole=True))
        assert code(lambda: here.ask(IDLE, timeout=SOON)) is grpc.StatusCode.DEADLINE_EXCEEDED


def test_close_ends_calls_and_threads_and_gives_the_port_back() -> None:
    here = Site()
    port = here.service.ports[0]
    here.enter(WorkloadPhase.TRAINING)
    here.world.faults.set(InjectedFault(method="GetRuntimeMetric", black_hole=True))
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(metrics_proto.GET_METRIC).future(b"", timeout=DEADLINE)
        struck = threading.Event()
        while not here.world.calls:
            struck.wait(0.005)
        here.service.close()
        assert call.exception(DEADLINE).code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(f"sim-runtime-{port}")]
    with socket.create_server(("127.0.0.1", port)):
        pass
    here.service.close()
    here.service.advance()
    assert not here.listens()
