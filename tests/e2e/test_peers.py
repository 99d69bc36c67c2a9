"""A node whose machine is dead can ask nobody: its watcher restarts it by the cloud's word and the silence of its own
daemon. Real processes over a simulated cloud."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import ACT, BEGUN, DONE, NOT_VERIFIED, Fleet, restarted
from tests.standins.simulated import NOBODY, ZONE

SILENT_SECONDS = 10.0


def beside(fleet: Fleet, inside: DaemonInCloud, **restart: Any) -> DaemonInCloud:
    """A daemon elsewhere that watches train-1, and asks the one on it."""
    daemon = fleet.daemon("outside", {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY})
    peers = {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0, "silent_seconds": SILENT_SECONDS}
    fleet.configure(
        daemon,
        restart,
        cloud={"nodes": ["train-1"]},
        runtime={"enabled": False},
        **{"peers": peers, "peers.addresses": {"train-1": f"http://{inside.address}"}},
    )
    daemon.start()
    wait_for(lambda: daemon.counted(f'tpuwatch_peer_up{{node="train-1",zone="{ZONE}"}}') == 1, "its answer")
    return daemon


def peer(daemon: DaemonInCloud) -> Any:
    """What it knows of the daemon on train-1."""
    return daemon.nodes().get("train-1", {}).get("peer") or {"verdict": None}


VERIFY_SECONDS = 900.0


@pytest.mark.parametrize("alive", [True, False], ids=["boots", "stays dead"])
def test_a_dead_machine_is_restarted_by_its_watcher_once(fleet: Fleet, alive: bool) -> None:
    inside = fleet.inside()
    outside = beside(fleet, inside, **ACT)
    wait_for(lambda: peer(outside)["verdict"], "its word")
    fleet.die()
    inside.process.send_signal(signal.SIGSTOP)  # its kernel takes connections, and nobody answers
    wait_for(lambda: outside.counted('tpuwatch_peers{state="silent"}') == 1, "its silence")
    assert outside.metric(BEGUN) == 0
    outside.skip(2 * SILENT_SECONDS)
    wait_for(fleet.is_well_again, "the node to run again")
    if alive:
        inside.machine.write("proc/sys/kernel/random/boot_id", "another-boot\n")
        inside.process.send_signal(signal.SIGCONT)
        wait_for(lambda: (peer(outside) or {}).get("boot_id") == "another-boot", "its answer")
    result = "done" if alive else "not_verified"
    restarted(fleet, outside, DONE if alive else NOT_VERIFIED, 2 * SILENT_SECONDS if alive else VERIFY_SECONDS)
    begun = [one for one in outside.audited() if one[1] in ("begun", "done", "not_verified")]
    assert begun == [("restart_node", "begun", None), ("restart_node", result, None)]
    (record,) = outside.api("restarts")["restarts"]
    assert sorted(record["signals"]) == ["cloud", "peer"]
    assert any("Its own tpuwatch, which answered until" in one for one in record["evidence"])
    assert "tpuwatch_restart_requests_total 1" not in outside.ask("/metrics")[1]
    assert "Traceback" not in outside.said()


def test_silence_alone_and_a_daemon_that_was_ended_restart_nothing(fleet: Fleet) -> None:
    inside = fleet.inside()
    outside = beside(fleet, inside, **ACT)
    inside.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: outside.counted('tpuwatch_peers{state="silent"}') == 1, "its silence")
    outside.skip(2 * SILENT_SECONDS)
    outside.judged("train-1", "unknown")
    wait_for(lambda: outside.nodes()["train-1"]["action"] == "manual", "the call for a person")
    inside.process.send_signal(signal.SIGCONT)
    wait_for(lambda: outside.counted('tpuwatch_peers{state="answering"}') == 1, "its answer")
    assert inside.stop() == 0
    wait_for(lambda: outside.counted('tpuwatch_peers{state="refused"}') == 1, "its end")
    fleet.die()
    outside.skip(2 * SILENT_SECONDS)
    wait_for(lambda: "does not run on it any more" in str(outside.nodes()["train-1"]["missing"]), "the verdict")
    node = outside.judged("train-1", "node_stuck")
    assert node["action"] == "manual"
    assert outside.metric(BEGUN) == 0
    assert fleet.happened("stop", "start") == []
