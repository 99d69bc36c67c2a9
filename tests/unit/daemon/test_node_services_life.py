"""What the node side leaves behind when its configuration changes, and how long its loops may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.config import Config
from tpuwatch.config.schema import CloudConfig, MonitoringConfig, RuntimeConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.daemon.node_services import NodeServices
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.signals import Chip, Maintenance, Notices, RuntimePort
from tpuwatch.model.signals import Runtime as RuntimeAnswer
from tpuwatch.store import EventStore

Make = Callable[..., NodeServices]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(loops=[], refusals=[])


@pytest.fixture
def make(tmp_path: Path, metrics: Metrics) -> Iterator[Make]:
    clock = ManualClock()
    store = EventStore.open(tmp_path, clock)
    made: list[NodeServices] = []

    def new(**tables: Any) -> NodeServices:
        node = NodeServices(
            Config(**{"state": {"dir": tmp_path}, **tables}),
            store=store,
            metrics=metrics,
            clock=clock,
            boot_id="boot",
            on_event=lambda _: None,
            on_turn=lambda *_: None,
        )
        made.append(node)
        return node

    yield new
    for node in made:
        node.stop()
    store.close()


def test_nothing_stays_behind_of_signals_that_are_switched_off(make: Make, metrics: Metrics) -> None:
    metrics.node.set_runtime(RuntimeAnswer((RuntimePort(8431, (Chip("0", 1, 2, 0.5, 1.0),), 0),)))
    metrics.node.set_notices(
        Notices("TERMINATE_ON_HOST_MAINTENANCE", True, Maintenance("SCHEDULED", "PENDING", 5.0, None))
    )
    metrics.node.set_api_breaker(True)
    make(cloud=CloudConfig(enabled=False), runtime=RuntimeConfig(enabled=False))
    lines = metrics.exposition()[0].decode().splitlines()
    assert not [line for line in lines if line.startswith("tpuwatch_hbm_used_bytes{")]
    for name in ("maintenance_notice", "maintenance_start_timestamp_seconds", "preemption_notice", "api_breaker_open"):
        assert f"tpuwatch_{name} 0.0" in lines


@pytest.mark.parametrize("seconds", [10.0, 120.0])
def test_a_loop_may_wait_for_every_answer_that_it_asks_for(make: Make, seconds: float) -> None:
    zones = ("a/one", "a/two", "b/one", "c/*")
    limits = make(
        cloud=CloudConfig(nodes=zones, timeout_seconds=seconds, poll_seconds=1),
        monitoring=MonitoringConfig(read=True, export=True),
    ).loops.limits()
    assert limits["cloud"] > 4 * 2 * seconds  # nodes and queued resources of four zones
    assert limits["monitoring"] > 2 * seconds
    assert limits["export"] > seconds
