"""A slice of four workers, each with its real daemon at an address of its own: each asks the others, and says who is
silent, who refuses, and who failed first. And the same of workers that the simulator plays, asked by a watcher."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import libtpu_name, wait_for
from tests.standins.simulated import ZONE, Site, simulated
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.metadata_tree import MetadataDialect, address

HOSTS = 4
SLICE: dict[str, Any] = {
    "nodes": [{"name": "train-1", "accelerator": "v5litepod-16", "played": True}, {"name": "train-2"}]
}
PEERS = {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0, "silent_seconds": 10.0}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated(tmp_path / "sim", **SLICE) as site:
        yield site


@pytest.fixture
def daemons(site: Site, tmp_path: Path) -> Iterator[list[DaemonInCloud]]:
    """One daemon for each worker, with the metadata server of that worker, in place of those that are played."""
    played = site.simulator.workers
    assert played is not None
    played.close()
    node = next(one for one in site.world.nodes.values() if one.name == "train-1")
    with ExitStack() as running:
        started = []
        for worker in range(HOSTS):
            metadata = MetadataServer(site.world, Pages(site.world, node.path, worker, MetadataDialect.TPU, ()))
            running.callback(metadata.close)
            metadata.start()
            where = {"GCE_METADATA_HOST": metadata.address, "GCE_METADATA_IP": metadata.address}
            daemon = running.enter_context(DaemonInCloud(tmp_path / f"worker-{worker}", site, environ=where))
            tables = site.toml(cloud={"nodes": []}, runtime={"enabled": False}, peers={**PEERS, "port": played.port})
            daemon.configure(listen=f"{address(node, worker)}:{played.port}", more=tables)
            started.append(daemon)
        for daemon in started:
            daemon.spawn()
        yield started


def own_slice(daemon: DaemonInCloud) -> dict[str, Any]:
    """What it knows of the workers of its own slice."""
    node = daemon.api("status")["node"] or {}
    return node.get("slice") or {"states": {}, "workers": []}


def states(daemon: DaemonInCloud) -> list[str]:
    return [one["state"] for one in own_slice(daemon)["workers"]]


def test_each_worker_says_who_is_silent_who_refuses_and_who_failed_first(daemons: list[DaemonInCloud]) -> None:
    for daemon in daemons:
        wait_for(lambda one=daemon: one.address and states(one) == ["answering"] * HOSTS, "all to answer")  # type: ignore[misc]
    now = datetime.now(timezone.utc)
    log = daemons[3].logs / libtpu_name(started=f"{now:%Y%m%d-%H%M%S}")
    log.write_text(f"E{now:%m%d %H:%M:%S.%f}  4242 tpu.cc:7] TESTEVENT 1\n")
    for daemon in daemons[:2]:
        wait_for(lambda one=daemon: own_slice(one)["first_failed"] == 3, "the one that failed first")  # type: ignore[misc]
        assert own_slice(daemon)["workers"][3]["failure"]["cause"] == "hang"
        assert f'tpuwatch_slice_culprit{{node="train-1",worker="3",zone="{ZONE}"}} 1.0' in daemon.ask("/metrics")[1]
    daemons[2].process.send_signal(signal.SIGSTOP)  # its kernel takes connections, and nobody answers
    assert daemons[1].stop() == 0
    expected = ["answering", "refused", "silent", "answering"]
    for daemon in (daemons[0], daemons[3]):
        wait_for(lambda one=daemon: states(one) == expected, "who is silent and who refuses")  # type: ignore[misc]
        daemon.skip(20.0)
        wait_for(lambda one=daemon: one.api("status")["node"]["verdict"] == "node_stuck", "the verdict")  # type: ignore[misc]
        node = daemon.api("status")["node"]
        assert node["action"] == "manual"
        assert "--worker=2" in str(node["remedy"])
        for words in (("status",), ("nodes", "train-1")):
            code, said = daemon.command(*words)
            assert code == 1
            assert "Worker 2 of 4 has been silent" in said
        series = f'tpuwatch_slice_workers{{node="train-1",state="silent",zone="{ZONE}"}}'
        assert daemon.metric(series) == 1
        assert "silent since" in daemon.ask("/")[1]
    daemons[2].process.send_signal(signal.SIGCONT)
    wait_for(lambda: states(daemons[0])[2] == "answering", "its answer")
    assert not any("Traceback" in one.said() for one in daemons)


def test_a_watcher_asks_every_worker_of_what_the_simulator_plays(site: Site, tmp_path: Path) -> None:
    played = site.simulator.workers
    assert played is not None
    peers = {**PEERS, "port": played.port}
    with DaemonInCloud(tmp_path / "watcher", site, environ={"GCE_METADATA_HOST": "127.0.0.1:9"}) as daemon:
        daemon.watch(cloud={"nodes": ["train-1"]}, runtime={"enabled": False}, peers=peers)
        site.do("workload", worker=1, cause="core_halted", for_seconds=60.0)
        daemon.start()

        def seen() -> dict[str, Any]:
            return daemon.nodes().get("train-1", {}).get("slice") or {"states": {}}

        # Worker 0 is this machine's by the scenario, so the simulator does not play it.
        wait_for(lambda: seen()["states"].get("answering") == 3, "three to answer")
        assert (seen()["first_failed"], seen()["culprit"]) == (1, 1)
        site.do("workload", worker=3, tpuwatch="silent")
        wait_for(lambda: seen()["states"]["silent"] == 1, "its silence")
        site.do("workload", worker=2, tpuwatch="refuses")
        wait_for(lambda: seen()["states"]["refused"] == 1, "its refusal")
        site.do("set", endpoints=2)
        wait_for(lambda: daemon.nodes()["train-1"]["cloud"]["addresses"][2:] == [], "fewer endpoints")
        assert seen()["hosts"] == HOSTS
        site.do("workload", worker=3, tpuwatch="answers")
        assert "Traceback" not in daemon.said()
