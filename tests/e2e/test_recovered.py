"""A node that recovers between the decision and the stop is left alone. Real daemons over a simulated cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import ACT, BEGUN, Fleet, later
from tests.standins.peer_server import PeerServer, peer_server, status
from tests.standins.simulated import NOBODY

CANCELLED = 'tpuwatch_restarts_total{action="restart_node",result="cancelled"}'
RETRY_SECONDS = 70.0  # a refused stop may be called again by then


@pytest.fixture
def its_own() -> Iterator[PeerServer]:
    """The tpuwatch on train-1."""
    with peer_server() as server:
        server.reply = status("train-1", "healthy")
        yield server


def watcher(fleet: Fleet, its_own: PeerServer, **restart: Any) -> DaemonInCloud:
    """A daemon elsewhere that watches train-1 by the cloud's word and that of its own tpuwatch."""
    daemon = fleet.daemon("outside", {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY})
    peers = {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0}
    fleet.configure(
        daemon,
        restart,
        cloud={"nodes": ["train-1"]},
        runtime={"enabled": False},
        **{"peers": peers, "peers.addresses": {"train-1": its_own.url}},
    )
    daemon.start()
    daemon.judged("train-1", "healthy")
    return daemon


def stops(fleet: Fleet) -> list[str]:
    """The codes of all calls of StopNode."""
    return [call.code for call in list(fleet.site.world.calls) if call.method == "StopNode"]


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"])
def test_a_node_that_recovers_after_a_refused_stop_is_not_stopped(fleet: Fleet, its_own: PeerServer, code: str) -> None:
    fleet.site.do("fault", method="StopNode", code=code, message="Not now.")
    outside = watcher(fleet, its_own, **ACT)
    fleet.die()
    its_own.reply = status("train-1", "node_stuck", "restart_node", sources=["kernel", "runtime"])
    # It comes by itself. A jump of the clocks between the decision and the call would make what is known of the node
    # too old at once: the restart would be withdrawn, and begun once more.
    wait_for(lambda: stops(fleet), "the first stop")
    its_own.reply = status("train-1", "idle")  # first: with this word and a healthy node it would be decided again
    fleet.site.do("set", health="HEALTHY")
    outside.judged("train-1", "idle")
    fleet.site.do("clear", method="StopNode")
    later(outside, lambda: outside.counted(CANCELLED) == 1, "the end of the restart", RETRY_SECONDS)
    assert set(stops(fleet)) == {code}
    assert fleet.happened("stop", "start") == []
    assert outside.metric(BEGUN) == 1
    assert [one for one in outside.audited() if one[1] in ("begun", "cancelled")] == [
        ("restart_node", "begun", None),
        ("restart_node", "cancelled", None),
    ]
    wait_for(lambda: fleet.phase(outside) == "cancelled", "the end to be shown")
    (record,) = outside.api("restarts")["restarts"]
    assert "It was node_stuck when that was decided" in record["note"]
    # Whichever is seen first: the verdict, the word of its own tpuwatch, or what the API shows.
    assert any(one in record["note"] for one in ("is idle now", "is healthy now", "calls it idle now", "HEALTHY now"))
    assert "Traceback" not in outside.said()
