"""Reading Cloud Monitoring: the unmodified client against the simulated service."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.auth.exceptions import RefreshError

from tests.standins.runtime_server import listening, turn_away
from tests.unit.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.config import Config
from tpuwatch.core.clock import Clock, ManualClock, SystemClock
from tpuwatch.google.credentials import BoundedRequest
from tpuwatch.google.monitoring import MonitoringConnection
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Identity, Known
from tpuwatch.signals.monitoring import MonitoringSignal
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.metadata_tree import instance_id
from tpuwatch.sim.cloud.monitoring_service import MonitoringService
from tpuwatch.sim.cloud.nodes import SimNode, Workload, WorkloadPhase
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

HERE = Identity(project=Known("p", "config"), node=Known("n", "config"))


def signal_of(
    identity: Callable[[], Identity], clock: Clock, calls: list[tuple[str, str]], endpoint: str = "", **cloud: Any
) -> MonitoringSignal:
    config = Config.model_validate(
        {"monitoring": {"endpoint": endpoint}, "cloud": {"insecure": bool(endpoint), **cloud}}
    )

    def on_call(method: str, code: str) -> None:
        calls.append((method, code))

    return MonitoringSignal(config, identity, clock=clock, rng=random.Random(1), on_call=on_call)


class Site:
    """A world with one node, Cloud Monitoring over it, and the signal."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.node = self.world.add(SimNode(PROJECT, ZONE, "train-1"))
        self.service = MonitoringService(self.world)
        self.server = CloudServer(self.world, services=[self.service.handler()])
        self.calls: list[tuple[str, str]] = []
        self.identity = Identity(
            project=Known(PROJECT, "metadata"),
            zone=Known(ZONE, "metadata"),
            node=Known("train-1", "metadata"),
            worker=Known("0", "metadata"),
            instance=Known(str(instance_id(self.node, 0)), "metadata"),
        )
        self.signal = signal_of(lambda: self.identity, self.clock, self.calls, self.server.address)

    def work(self, phase: WorkloadPhase) -> None:
        self.node.workloads[0] = Workload(phase, self.clock.time())
        self.service.look()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.service.look()

    def close(self) -> None:
        self.signal.close()
        self.server.stop()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def test_the_newest_samples_are_reported_with_their_times(site: Site) -> None:
    site.work(WorkloadPhase.STUCK)
    site.pass_time(900)
    answer = site.signal.ask()
    assert answer.problem is None
    assert answer.value is not None
    assert answer.value.infra_healthy is True
    assert answer.value.idle_at is not None
    assert 180 <= site.clock.time() - answer.value.idle_at < 240  # visible that late
    assert answer.value.idle_seconds == pytest.approx(900 - (site.clock.time() - answer.value.idle_at), abs=1)
    assert site.calls == [("ListTimeSeries", "OK")] * 2


def test_without_samples_nothing_is_known(site: Site) -> None:
    answer = site.signal.ask()
    assert answer.problem is None
    assert answer.value is not None
    assert (answer.value.idle_seconds, answer.value.infra_healthy) == (None, None)


def test_a_sick_infrastructure_is_reported(site: Site) -> None:
    site.node.health = "UNHEALTHY_MAINTENANCE"
    site.service.look()
    site.pass_time(900)
    value = site.signal.ask().value
    assert value is not None
    assert value.infra_healthy is False


def test_a_machine_without_a_node_is_not_asked_for(site: Site) -> None:
    site.identity = Identity()
    answer = site.signal.ask()
    assert answer.problem is Problem.UNCONFIGURED
    assert site.calls == []


@pytest.mark.parametrize(
    ("code", "problem", "named"),
    [
        ("PERMISSION_DENIED", Problem.DENIED, "monitoring.timeSeries.list"),
        ("UNAVAILABLE", Problem.SERVER, ""),
        ("RESOURCE_EXHAUSTED", Problem.THROTTLED, ""),
    ],
)
def test_a_fault_keeps_the_last_answer_and_names_the_cause(site: Site, code: str, problem: Problem, named: str) -> None:
    before = site.signal.ask()
    site.world.faults.set(InjectedFault(method="ListTimeSeries", code=code))
    answer = site.signal.ask()
    assert (answer.problem, answer.value, answer.at) == (problem, before.value, before.at)
    assert "Cloud Monitoring API" in answer.detail
    assert named in answer.detail
    assert site.calls[-1] == ("ListTimeSeries", code)
    site.world.faults.clear()
    assert site.signal.ask().problem is None


class TokenHolder:
    """Credentials whose tokens a server at this address gives out; once `broken`, it does not."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.valid = False
        self.broken = False
        self.asked = 0

    def refresh(self, request: Any) -> None:
        self.asked += 1
        if self.broken:
            raise RefreshError("there is no such account")
        request(self.url)


def test_between_two_polls_no_connection_is_kept_and_the_credentials_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    asked: list[Any] = []

    def create_channel(server: str, *, credentials: Any, options: Any) -> Any:
        made.append((server, credentials))
        assert ("grpc.enable_retries", 0) in options
        return grpc.insecure_channel(server)

    class Client:
        def __init__(self, **_: Any) -> None:
            self.transport = self
            self.closed = False

        def list_time_series(self, **_: Any) -> list[Any]:
            assert not self.closed
            return []

        def close(self) -> None:
            self.closed = True

    credentials = TokenHolder("http://127.0.0.1:9")
    credentials.valid = True

    def default(**given: Any) -> tuple[TokenHolder, str]:
        asked.append(given)
        return credentials, "project"

    transport = "google.cloud.monitoring_v3.services.metric_service.transports.MetricServiceGrpcTransport"
    monkeypatch.setattr(f"{transport}.create_channel", create_channel)
    monkeypatch.setattr("google.cloud.monitoring_v3.MetricServiceClient", Client)
    monkeypatch.setattr("google.auth.default", default)
    signal = signal_of(lambda: HERE, ManualClock(), [])
    for _ in range(3):
        assert signal.ask().problem is None
    assert made == [("monitoring.googleapis.com:443", credentials)] * 3
    assert len(asked) == 1
    assert "https://www.googleapis.com/auth/cloud-platform" in asked[0]["scopes"]
    assert isinstance(asked[0]["request"], BoundedRequest)
    credentials.valid, credentials.broken = False, True
    answer = signal.ask()
    assert answer.problem is Problem.CREDENTIALS
    credentials.valid = True
    assert signal.ask().problem is None
    assert len(asked) == 2  # there may have been others by then


def test_a_token_that_has_expired_since_is_renewed_before_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = TokenHolder("http://127.0.0.1:9")
    credentials.valid = True
    transport = "google.cloud.monitoring_v3.services.metric_service.transports.MetricServiceGrpcTransport"
    monkeypatch.setattr(f"{transport}.create_channel", lambda server, **_: grpc.insecure_channel(server))
    monkeypatch.setattr("google.auth.default", lambda **_: (credentials, "project"))
    connection = MonitoringConnection("", insecure=False, clock=ManualClock(), timeout_seconds=1.0)
    client = connection.client()
    assert connection.client() is client
    assert credentials.asked == 0
    credentials.valid, credentials.broken = False, True
    with pytest.raises(RefreshError):
        connection.client()
    connection.close()


def test_where_tokens_are_given_out_silence_costs_the_deadline_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    with listening() as port:
        credentials = TokenHolder(f"http://127.0.0.1:{port}/token")
        monkeypatch.setattr("google.auth.default", lambda **_: (credentials, "project"))
        signal = signal_of(lambda: HERE, SystemClock(), calls, timeout_seconds=0.5)
        answer = signal.ask()
    assert answer.problem is Problem.TIMEOUT
    assert "issues access tokens" in answer.detail
    assert calls == [("ListTimeSeries", "DEADLINE_EXCEEDED")]
    assert credentials.asked == 1
    signal.close()


def test_a_request_that_is_turned_away_is_not_repeated_by_grpc(site: Site) -> None:
    with listening(turn_away) as port:
        signal = signal_of(lambda: site.identity, site.clock, [], f"127.0.0.1:{port}", timeout_seconds=2.0)
        answer = signal.ask()
        signal.close()
    assert answer.problem is Problem.SERVER  # not TIMEOUT: it would have gone on until the deadline
    assert "GOAWAY" in answer.detail
