"""Faults of the Cloud TPU API and of the way there, and what they must not leave behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins.runtime_server import listening, turn_away
from tests.unit.signals.cloud_watcher import Watcher
from tests.unit.signals.test_cloud import listed
from tests.unit.sim.cloud.servers import ZONE, Cloud
from tpuwatch.model.answers import Problem
from tpuwatch.sim.cloud.faults import InjectedFault


def test_one_zone_in_trouble_does_not_blank_another(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.add("far-1", zone="europe-west4-b")
    watcher = watch(nodes=("europe-west4-b/far-1", "nowhere-9/x"))
    answer = watcher.ask()
    assert answer.problem is Problem.NOT_FOUND
    assert "zone nowhere-9 in project lab" in answer.detail
    assert {node.name for node in answer.value or ()} == {"train-1", "far-1"}
    assert watcher.answer().problem is None
    assert watcher.answer("europe-west4-b/far-1").problem is None
    assert watcher.answer("nowhere-9/x").problem is Problem.NOT_FOUND
    cloud.world.faults.set(InjectedFault(method="ListNodes", code="UNAVAILABLE", resource="*europe-west4-b"))
    for _ in range(8):
        watcher.next()
    assert watcher.answer().problem is None
    assert watcher.answer("europe-west4-b/far-1").problem is Problem.SERVER


@pytest.mark.slow
def test_half_open_connections_cost_the_deadline_and_are_given_up(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch(timeout_seconds=2.0, poll_seconds=5.0)
    assert watcher.ask().problem is None
    before = watcher.node()
    cloud.world.faults.set(InjectedFault(half_open=True))
    cloud.server.advance()
    answer = watcher.next()
    assert answer.problem is Problem.TIMEOUT
    assert "within 2 s. It is tried again" in answer.detail
    assert watcher.node() == before  # what was last known
    assert watcher.next().problem is Problem.TIMEOUT  # by a new connection
    cloud.world.faults.clear()
    cloud.server.advance()
    cleared = cloud.clock.time()
    assert watcher.next().problem is None
    assert cloud.clock.time() - cleared <= 5.0
    assert watcher.counts == {("GetNode", "OK"): 2, ("GetNode", "DEADLINE_EXCEEDED"): 2}


def test_retry_after_holds_back_this_zone_only(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.add("far-1", zone="europe-west4-b")
    fault = InjectedFault(
        method="ListNodes", code="RESOURCE_EXHAUSTED", retry_after_seconds=100, resource="*europe-west4-b"
    )
    cloud.world.faults.set(fault)
    watcher = watch(nodes=("europe-west4-b/far-1",))
    began = cloud.clock.time()
    assert watcher.ask().problem is Problem.THROTTLED
    watcher.ask()  # asked for from outside, before any zone is due
    while cloud.clock.time() < began + 130:
        watcher.next()
    calls = [call for call in cloud.world.calls if call.method == "ListNodes"]
    held = [call.time - began for call in calls if call.resource.endswith("europe-west4-b")]
    assert held[0] == 0
    assert held[1] >= 100
    assert len([call for call in calls if call.resource.endswith(ZONE) and call.time < began + 100]) >= 4
    cloud.world.faults.clear()
    while cloud.clock.time() < began + 240:
        watcher.next()
    assert watcher.answer("europe-west4-b/far-1").problem is None


def test_throttled_without_a_time_waits_an_interval_at_least(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(method="GetNode", code="RESOURCE_EXHAUSTED"))
    watcher = watch()
    assert watcher.ask().problem is Problem.THROTTLED
    assert watcher.signal.due_in >= 30.0


def test_the_breaker_opens_makes_single_trials_and_closes(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(method="GetNode", code="UNAVAILABLE"))
    watcher = watch()
    watcher.ask()
    assert watcher.signal.breaker_notice == ""
    for _ in range(4):
        watcher.next()
    assert "circuit breaker is open" in watcher.signal.breaker_notice
    assert "circuit breaker is open" in watcher.answer().detail
    before = len(listed(cloud, "GetNode"))
    for _ in range(5):
        watcher.ask()  # not due: held back
    assert len(listed(cloud, "GetNode")) == before
    watcher.next()
    assert len(listed(cloud, "GetNode")) == before + 1
    cloud.world.faults.clear()
    assert watcher.signal.due_in <= 30.0
    assert watcher.next().problem is None
    assert watcher.signal.breaker_notice == ""


def threads() -> set[threading.Thread]:
    """All but the simulator's own."""
    return {thread for thread in threading.enumerate() if "sim-cloud" not in thread.name}


def connections(cloud: Cloud) -> int:
    """How many the server has now, that both sides keep."""
    port, established = f":{cloud.server.port:04X}", "01"
    text = "".join(Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
    rows = (line.split() for line in text.splitlines())
    return sum(local.endswith(port) and state == established for _, local, _, state, *_ in rows)


@pytest.mark.parametrize(("poll", "stays"), [(30.0, False), (5.0, True)], ids=["seldom", "often"])
def test_over_a_long_rest_no_connection_is_kept(cloud: Cloud, watch: Any, poll: float, stays: bool) -> None:
    cloud.add()
    watcher = watch(poll_seconds=poll)
    for _ in range(3):
        assert watcher.next().problem is None
        wait_for(lambda: (connections(cloud) > 0) is stays, f"connections to be kept: {stays}")  # others close them


def test_ten_minutes_of_every_fault_leave_nothing_behind(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch(nodes=("trian-2",))  # never listed
    watcher.ask()
    before = threads()
    codes = [code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
    began, asked, last = cloud.clock.time(), 0, 0.0
    while cloud.clock.time() < began + 600:
        cloud.world.faults.clear()
        cloud.world.faults.set(InjectedFault(method="ListNodes", code=codes[asked % len(codes)]))
        asked += 1
        problem = watcher.next().problem
        assert problem not in (None, Problem.GONE)
        assert watcher.answer().problem is watcher.answer("trian-2").problem is problem
        assert watcher.node().state == "READY"  # what was last known stays
        last = cloud.clock.time()
    assert asked >= len(codes)
    cloud.world.faults.clear()
    assert watcher.next().problem is None
    assert cloud.clock.time() - last <= 60.0  # an interval, and as much for who was throttled
    assert threads() <= before
    wait_for(lambda: connections(cloud) == 0, "connections that were given up to be closed")  # by other threads


def test_a_request_that_is_turned_away_is_not_repeated_by_grpc(cloud: Cloud) -> None:
    with listening(turn_away) as port:
        watcher = Watcher(f"127.0.0.1:{port}", cloud.clock, timeout_seconds=2.0)
        answer = watcher.ask()
        watcher.signal.close()
    assert answer.problem is Problem.SERVER  # not TIMEOUT: it would have gone on until the deadline
    assert "GOAWAY" in answer.detail


def test_a_server_that_comes_back_is_reached_at_once(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch()
    watcher.ask()
    port = cloud.server.port
    cloud.server.stop()
    for _ in range(3):
        assert watcher.next().problem is Problem.UNREACHABLE
    with_server = type(cloud.server)(cloud.world, port=port)
    try:
        assert watcher.next().problem is None
    finally:
        with_server.stop()


def test_no_thread_and_no_socket_outlives_close(cloud: Cloud, watch: Any) -> None:
    cloud.add()
    watcher = watch()
    watcher.ask()
    before = threads()
    other = Watcher(cloud.server.address, cloud.clock)
    for _ in range(5):
        other.next()
        other.signal.close()
    assert threads() <= before
