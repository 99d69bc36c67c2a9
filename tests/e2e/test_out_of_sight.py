"""A daemon that may not list the nodes any more: what was bad stays as last known, for one cause; nothing is well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.standins.simulated import ZONE, Site, simulated

LAST_KNOWN = "tpuwatch_verdict_last_known_timestamp_seconds"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated(tmp_path / "sim") as site:
        yield site


@pytest.fixture
def daemon(site: Site, tmp_path: Path) -> Iterator[DaemonInCloud]:
    with DaemonInCloud(tmp_path / "daemon", site) as daemon:
        daemon.machine.process(4242, files=("/dev/vfio/0",))
        yield daemon


def out_of_sight(daemon: DaemonInCloud, node: str) -> Any:
    def look() -> Any:
        found = daemon.nodes().get(node)
        return found if found and found["last_known"] else None

    return wait_for(look, f"{node} to be out of sight")


def verdicts(daemon: DaemonInCloud) -> set[str]:
    return set(daemon.series("tpuwatch_verdict"))


def test_a_revoked_permission_is_one_problem_and_no_all_clear(site: Site, daemon: DaemonInCloud) -> None:
    daemon.watch(cloud={"nodes": ["train-2", "train-3"]})
    daemon.start()
    daemon.judged("train-3", "healthy")
    site.do("preempt", "train-2")
    seen = daemon.judged("train-2", "preempted")
    site.do("fault", method="ListNodes", code="PERMISSION_DENIED")

    lost = out_of_sight(daemon, "train-2")
    assert (lost["verdict"], lost["since_epoch"]) == ("preempted", seen["since_epoch"])
    assert (lost["unseen"]["signal"], lost["unseen"]["problem"]) == ("cloud", "denied")
    daemon.judged("train-3", "unknown")
    series = f'{{node="train-2",zone="{ZONE}"}}'
    assert f'{{node="train-2",verdict="preempted",zone="{ZONE}"}}' in verdicts(daemon)
    wait_for(lambda: daemon.series(LAST_KNOWN).get(series) == lost["judged_epoch"], "the metric of its age")
    status = wait_for(lambda: _settled(daemon), "the status")
    assert status["problem_counts"] == {"node": 1, "finding": 0, "daemon": 0, "signal": 1, "queued_resource": 0}
    (spot,) = status["blind_spots"]
    assert (spot["signal"], spot["problem"], spot["last_known"], spot["unknown"]) == ("cloud", "denied", 1, 1)
    assert daemon.command("status")[0] == daemon.command("nodes", "train-2")[0] == 1

    daemon.stop()
    daemon.start()  # without sight: the store knows what it was
    again = out_of_sight(daemon, "train-2")
    assert (again["verdict"], again["judged_epoch"]) == ("preempted", lost["judged_epoch"])
    daemon.judged("train-3", "unknown")

    daemon.reload(cloud={"nodes": ["train-3"]})
    wait_for(lambda: "train-2" not in daemon.nodes(), "the node that is not watched any more to go")
    site.do("clear")
    daemon.judged("train-3", "healthy")
    wait_for(lambda: not any(daemon.api("status")["problem_counts"].values()), "all to be well")
    assert daemon.series(LAST_KNOWN) == {}


def _settled(daemon: DaemonInCloud) -> Any:
    status = daemon.api("status")
    return status if status["unknown_nodes"] == 1 and status["blind_spots"] else None
