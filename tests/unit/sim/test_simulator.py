"""A whole simulator, asked by the clients that people use."""

from __future__ import annotations

import http.client
import os
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import tomli
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.standins.runtime_server import is_open
from tpuwatch.config import load_config
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.libtpu import metrics_proto
from tpuwatch.sim.client import Client
from tpuwatch.sim.directory import CONFIG, SimulatorDirectory, read_info
from tpuwatch.sim.scenario.file import Scenario
from tpuwatch.sim.simulator import Simulator, toml_text

DEADLINE = 30.0
ZONE = "projects/sim-project/locations/us-central2-b"

SCENARIO: dict[str, Any] = {
    "title": "A test",
    "machine": "train-2",
    "nodes": [{"name": "train-{number}", "count": 3, "phase": "training"}, {"name": "other", "zone": "z"}],
    "steps": [
        {"do": "set", "node": "train-3", "health": "TIMEOUT"},
        {"at": 3600.0, "do": "vanish", "node": "train-1"},
        {"at": 7200.0, "do": "tell", "say": "The end."},
    ],
}


def simulate(directory: Path, speed: float = 1.0, **changes: Any) -> Simulator:
    return Simulator(Scenario.model_validate({**SCENARIO, **changes}), SimulatorDirectory(directory), speed=speed)


@pytest.fixture
def told() -> queue.SimpleQueue[tuple[float, str]]:
    return queue.SimpleQueue()


@pytest.fixture
def running(tmp_path: Path, told: queue.SimpleQueue[tuple[float, str]]) -> Iterator[Simulator]:
    """One in real time: its steps after the first are far away."""
    with simulate(tmp_path) as simulator:
        simulator.start(lambda at, what: told.put((at, what)))
        yield simulator
    simulator.directory.close()


def nodes(simulator: Simulator, timeout: float = DEADLINE) -> dict[str, str]:
    """The own zone's nodes and their health, as the unmodified client lists them."""
    own = [("grpc.use_local_subchannel_pool", 1)]  # a new channel is a new connection
    with grpc.insecure_channel(simulator.cloud.address, options=own) as channel:
        client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        found = client.list_nodes(request={"parent": ZONE}, timeout=timeout, retry=None)
        return {node.name.rpartition("/")[2]: node.health.name for node in found}


def metadata(simulator: Simulator, path: str) -> str:
    connection = http.client.HTTPConnection(simulator.metadata.address, timeout=DEADLINE)
    try:
        connection.request("GET", f"/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def duty_cycle(simulator: Simulator) -> float:
    """Of the first chip, in percent, as libtpu's metrics tell it. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"127.0.0.1:{simulator.runtime.ports[0]}") as channel:
        ask = channel.unary_unary(
            metrics_proto.GET_METRIC,
            request_serializer=metrics_proto.MetricRequest.SerializeToString,
            response_deserializer=metrics_proto.MetricResponse.FromString,
        )
        request = metrics_proto.MetricRequest(metric_name="tpu.runtime.tensorcore.dutycycle.percent")
        return float(ask(request, timeout=DEADLINE).metric.metrics[0].gauge.as_double)


def test_one_world_is_seen_from_all_sides(running: Simulator, told: queue.SimpleQueue[tuple[float, str]]) -> None:
    assert nodes(running) == {"train-1": "HEALTHY", "train-2": "HEALTHY", "train-3": "TIMEOUT"}
    rest = tpu_v2.TpuClient(
        transport="rest",
        client_options=ClientOptions(api_endpoint=running.info()["rest"]),
        credentials=AnonymousCredentials(),
    )
    assert len(list(rest.list_nodes(parent=ZONE, timeout=DEADLINE))) == 3
    assert "NODE_ID: 'train-2'" in metadata(running, "instance/attributes/tpu-env")
    assert f"TPU_RUNTIME_METRICS_PORTS: '{running.runtime.ports[0]}'" in metadata(
        running, "instance/attributes/tpu-env"
    )
    assert duty_cycle(running) == pytest.approx(92, abs=2)
    assert told.get(timeout=DEADLINE) == (0.0, "train-3: health TIMEOUT")


def test_what_is_done_shows_at_once(running: Simulator) -> None:
    client = Client(running.directory.path)
    assert client.node("train-2", {"do": "workload", "phase": "stuck"}) == "train-2: its workload is stuck"
    assert duty_cycle(running) == 0
    client.node("train-2", {"do": "workload", "phase": "none"})
    assert not is_open(f"127.0.0.1:{running.runtime.ports[0]}")
    client.node("train-1", {"do": "vanish"})
    assert set(nodes(running)) == {"train-2", "train-3"}
    client.node("train-2", {"do": "preempt"})
    assert metadata(running, "instance/preempted") == "TRUE"


def test_faults_strike_each_service(running: Simulator) -> None:
    client = Client(running.directory.path)
    client.fault({"method": "ListNodes", "code": "UNAVAILABLE", "times": 1})
    with pytest.raises(Exception, match="UNAVAILABLE"):
        nodes(running)
    assert len(nodes(running)) == 3
    client.fault({"method": "GetRuntimeMetric", "code": "INTERNAL"})
    with pytest.raises(grpc.RpcError):
        duty_cycle(running)
    client.fault({"method": "metadata", "code": "UNAVAILABLE", "message": "no luck"})
    assert metadata(running, "instance/preempted") == "no luck"
    assert client.clear() == "no more faults"
    assert metadata(running, "instance/preempted") == "FALSE"


def test_connections_to_the_cloud_become_half_open_and_are_mended(running: Simulator) -> None:
    client = Client(running.directory.path)
    assert len(nodes(running)) == 3
    assert client.fault({"half_open": True}) == "*: half-open connections to the cloud"
    with pytest.raises(exceptions.DeadlineExceeded):
        nodes(running, timeout=0.5)
    assert metadata(running, "instance/preempted") == "FALSE"
    assert duty_cycle(running) > 0
    assert client.clear() == "no more faults"
    assert len(nodes(running)) == 3


def test_the_state_says_how_it_stands(running: Simulator) -> None:
    client = Client(running.directory.path)
    client.fault({"method": "StopNode", "code": "ABORTED"})
    nodes(running)
    state = client.state()
    assert state["scenario"] == "A test"
    assert state["steps"]["played"] == 1
    assert state["steps"]["total"] == 3
    assert 0 < state["steps"]["next_in_seconds"] <= 3600
    assert [fault["method"] for fault in state["faults"]] == ["StopNode"]
    assert state["calls"] == {"ListNodes OK": 1}
    assert (state["nodes_total"], state["states"]) == (4, {"READY HEALTHY": 3, "READY TIMEOUT": 1})
    assert state["nodes"][0]["workloads"] == {"training": 1}


def test_many_nodes_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    many = [{"name": "n-{number}", "count": 3000}]
    with simulate(tmp_path, nodes=many, machine="", steps=[]) as simulator:
        state = simulator.state()
    assert (state["nodes_total"], len(state["nodes"])) == (3000, 100)
    simulator.directory.close()


def test_the_configuration_is_one_and_leads_here(running: Simulator) -> None:
    config = load_config(running.directory.path / CONFIG, {})
    assert config.cloud.endpoint == running.cloud.address == config.monitoring.endpoint
    assert config.cloud.insecure
    assert (config.cloud.project, config.cloud.zone) == ("sim-project", "us-central2-b")
    assert config.cloud.nodes == ("us-central2-b/*", "z/*")
    assert config.runtime.ports == running.runtime.ports
    assert config.state.dir.parent == config.logs.paths[0].parent == running.directory.path
    more = tomli.loads(running.config(http={"listen": "127.0.0.1:0"}, cloud={"poll_seconds": 1.0}))
    assert (more["http"]["listen"], more["cloud"]["poll_seconds"]) == ("127.0.0.1:0", 1.0)
    assert more["cloud"]["endpoint"] == running.cloud.address


def test_the_environment_leads_to_our_metadata_server_past_any_proxy(running: Simulator) -> None:
    script = (
        "import google.auth, grpc, sys\n"
        "from google.cloud import tpu_v2\n"
        "from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport\n"
        "channel = grpc.insecure_channel(sys.argv[1])\n"
        "client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))\n"
        "found = client.list_nodes(request={'parent': sys.argv[2]}, timeout=20, retry=None)\n"
        "print(len(list(found)), google.auth.default()[1])\n"
    )
    proxy = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", script, running.cloud.address, ZONE],
        env={**running.environment(), **proxy, "PATH": os.defpath, "CLOUDSDK_CONFIG": str(running.directory.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["3", "sim-project"], done.stderr


def test_proxies_are_passed_by_for_us_as_well_as_for_whom_they_were(
    running: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert running.environment()["no_proxy"] == "127.0.0.1"
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert running.environment()["no_proxy"] == "example.com,127.0.0.1"


def test_time_runs_as_fast_as_it_is_reported(tmp_path: Path, told: queue.SimpleQueue[tuple[float, str]]) -> None:
    with simulate(tmp_path, speed=10_000.0) as simulator:
        simulator.start(lambda at, what: told.put((at, what)))
        happened = [told.get(timeout=DEADLINE) for _ in range(3)]
        assert happened[1:] == [(3600.0, "train-1: vanished"), (7200.0, "The end.")]
        assert "train-1" not in nodes(simulator)
    simulator.directory.close()


def test_everything_is_closed_in_the_end(tmp_path: Path) -> None:
    with simulate(tmp_path) as simulator:
        simulator.start()
        note = read_info(tmp_path)
        addresses = [note[name] for name in ("control", "tpu", "metadata")] + [f"127.0.0.1:{note['runtime_ports'][0]}"]
        assert all(map(is_open, addresses))
        simulator.executor.launch(Scenario.model_validate({**SCENARIO, "steps": [LAUNCH]}).steps[0])  # type: ignore[arg-type]
    assert not any(map(is_open, addresses))
    simulator.directory.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "jobs",
        "machine",
        "sim.lock",
        "state",
        "tpu_logs",
        CONFIG,
    ]


LAUNCH = {"do": "launch", "launch": "slow-init"}  # takes a minute if nobody ends it


def test_a_port_that_is_taken_is_said_and_nothing_stays_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, SimulatorDirectory(tmp_path) as directory:
        scenario = Scenario.model_validate(SCENARIO)
        with pytest.raises(TpuwatchError, match=r"[Cc]annot listen on"):
            Simulator(scenario, directory, listen=("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(TpuwatchError, match="Cannot serve REST on"):
            Simulator(scenario, directory, rest=("127.0.0.1", taken.getsockname()[1]))


def test_toml_text_is_toml() -> None:
    tables = {"a": {"x": 'q"\\\n', "y": [1, 2], "z": True}, "b": {"s": ["ż"], "f": 1.5}}
    assert tomli.loads(toml_text(tables)) == tables
