"""Restarts by the daemon, as its operators meet them: real processes over a simulated cloud, with one ledger."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_in_cloud import IN_FORCE, DaemonInCloud
from tests.daemon_process import SECONDS, wait_for
from tests.node.runtime_server import listening
from tests.restart.listener import Listener, listener
from tests.simulated import NOBODY, Site, simulated
from tpuwatch.sim.cloud.world import SimNode, Timing

# All that takes minutes on a real node takes no time here.
QUICK: dict[str, Any] = {
    "confirm_seconds": 0.0,
    "confirm_polls": 1,
    "startup_seconds": 0.0,
    "settle_seconds": 0.0,
    "poll_seconds": 0.05,
    "storm_nodes": 100,
}
ACT: dict[str, Any] = {**QUICK, "mode": "act", "restart_node": True}
LATER_SECONDS = 60.0  # until the node counts as stuck; until the cloud's word on it is no old one any more
BEGUN = 'tpuwatch_restarts_begun_total{action="restart_node"}'
DONE = 'tpuwatch_restarts_total{action="restart_node",result="done"}'


class Fleet:
    """train-1 with its own daemon, and a machine outside whose daemon watches train-1."""

    def __init__(self, root: Path, site: Site, listener: Listener, port: int) -> None:
        self.site = site
        self.listener = listener
        self.ledger = root / "ledger"
        self.ledger.mkdir()
        self._root = root
        self._port = port  # of a runtime that takes connections and never answers
        self.daemons: list[DaemonInCloud] = []

    def inside(self, **restart: Any) -> DaemonInCloud:
        """The daemon on train-1, whose guest is dead but for that daemon."""
        daemon = self._daemon("inside", {})
        daemon.machine.process(4242, files=("/dev/vfio/0",))
        self._configure(daemon, restart, cloud={"nodes": []}, runtime={"ports": [self._port]})
        return daemon.start()

    def outside(self, name: str = "outside", **restart: Any) -> DaemonInCloud:
        """A daemon elsewhere, where no metadata server is."""
        daemon = self._daemon(name, {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY})
        self._configure(daemon, restart, cloud={"nodes": ["train-1"]}, runtime={"enabled": False})
        return daemon.start()

    @property
    def node(self) -> SimNode:
        return next(node for node in self.site.world.nodes.values() if node.name == "train-1")

    def state(self) -> str:
        """Of train-1, now."""
        with self.site.world.lock:
            self.site.world.advance()
            return self.node.state

    def happened(self, *what: str) -> list[str]:
        """These of the things that have happened to train-1, by the cloud's own log."""
        return [one.what for one in list(self.site.world.history) if one.node == self.node.path and one.what in what]

    def die(self) -> None:
        """train-1 hangs, and the cloud knows it at once."""
        self.site.do("hang")
        wait_for(lambda: self.node.health == "TIMEOUT", "the cloud to know it")

    def phase(self, daemon: DaemonInCloud) -> str:
        """How far the restart of train-1 has come, by what the daemon shows."""
        return next((one["phase"] for one in daemon.api("restarts")["restarts"]), "")

    def again(self, daemon: DaemonInCloud, **restart: Any) -> None:
        """Let the daemon outside take another configuration into force."""
        before = daemon.said().count(IN_FORCE)
        self._configure(daemon, restart, cloud={"nodes": ["train-1"]}, runtime={"enabled": False})
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: daemon.said().count(IN_FORCE) > before, "the configuration")

    def _daemon(self, name: str, environ: dict[str, str]) -> DaemonInCloud:
        daemon = DaemonInCloud(self._root / name, self.site, environ={"no_proxy": "127.0.0.1", **environ})
        self.daemons.append(daemon)
        return daemon

    def _configure(self, daemon: DaemonInCloud, restart: dict[str, Any], **more: dict[str, Any]) -> None:
        daemon.watch(
            restart={**restart, "webhook_url": self.listener.url},
            ledger={"dir": str(self.ledger), "lease_seconds": 10.0},
            health={"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            **more,
        )


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with simulated(tmp_path / "sim") as site, listener() as heard, listening() as port:
        site.world.timing = Timing(stop=0.5, start=0.5, timeout=0.0)
        fleet = Fleet(tmp_path, site, heard, port)
        try:
            yield fleet
        finally:
            for daemon in fleet.daemons:
                daemon.__exit__(None, None, None)


def audited(daemon: DaemonInCloud) -> list[tuple[str, str, str | None]]:
    """What the daemon has noted: what it was about, what came of it, and why not."""
    try:
        lines = (daemon.state / "audit.jsonl").read_text().splitlines()
    except OSError:
        return []
    return [(one["decision"], one["result"], one["blocked"]) for one in map(json.loads, lines)]


def later(daemon: DaemonInCloud, look: Callable[[], bool], what: str) -> None:
    """Let minutes pass until it is so. A jump ends the call that is in flight: then they may have to pass again."""
    for jumps_left in (3, 2, 1, 0):
        daemon.skip(LATER_SECONDS)
        try:
            wait_for(look, what, SECONDS / 4)
        except AssertionError:
            if not jumps_left:
                raise
        else:
            return


def restarted(fleet: Fleet, daemon: DaemonInCloud) -> None:
    """The daemon brings the restart that is under way to its end, which was one stop and one start."""
    wait_for(lambda: fleet.phase(daemon) == "verifying", "the node to run again")
    later(daemon, lambda: daemon.counted(DONE) == 1, "the end of the restart")
    assert fleet.happened("stop", "start") == ["stop", "start"]
    assert (fleet.node.state, fleet.node.health, fleet.node.boots) == ("READY", "HEALTHY", 2)


def test_a_dead_node_asks_and_is_restarted_once_by_who_watches_it(fleet: Fleet) -> None:
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT)
    outside.judged("train-1", "healthy")
    assert outside.metric(BEGUN) == outside.metric(DONE) == 0
    assert not list(fleet.ledger.iterdir())  # while nothing is wrong, nothing is written
    fleet.die()
    inside.judged("train-1", "unknown", "node_stuck")
    inside.skip(LATER_SECONDS)
    restarted(fleet, outside)

    assert inside.metric("tpuwatch_restart_requests_total") == 1
    assert inside.metric('tpuwatch_restarts_blocked_total{reason="own_node"}') >= 1
    assert inside.metric(BEGUN) == 0
    assert "StopNode" not in inside.ask("/metrics")[1]  # not one call that changes something
    assert ("restart_node", "requested", None) in audited(inside)
    assert ("restart_node", "blocked", "own_node") in audited(inside)

    assert outside.metric(BEGUN) == 1
    acts = [one for one in audited(outside) if one[1] in ("begun", "done")]
    assert acts == [("restart_node", "begun", None), ("restart_node", "done", None)]
    wait_for(lambda: fleet.phase(outside) == "done", "the end to be shown")
    document = outside.api("restarts")
    (record,) = document["restarts"]
    assert (document["mode"], record["stops"], record["open"]) == ("act", 1, False)
    assert "cloud" in record["witnesses"]
    assert len(record["witnesses"]) > 1
    assert any(one.startswith("request of tpuwatch@") for one in record["evidence"])
    assert not document["breaker"]["open"]
    assert outside.stop() == inside.stop() == 0
    assert "Traceback" not in inside.said() + outside.said()


def test_as_it_comes_it_says_what_it_would_do_and_does_nothing(fleet: Fleet) -> None:
    inside, outside = fleet.inside(**QUICK), fleet.outside(**QUICK)
    outside.judged("train-1", "healthy")
    fleet.die()
    inside.judged("train-1", "unknown", "node_stuck")
    inside.skip(LATER_SECONDS)
    wait_for(lambda: ("restart_node", "blocked", "own_node") in audited(inside), "the decision inside")
    wait_for(lambda: ("ask", "nothing", None) in audited(outside), "the decision outside")
    called = wait_for(lambda: [one for one in fleet.listener.heard if one["blocked"] is None], "a call for a person")
    assert called[0]["event"] == "person_needed"
    assert "train-1 (us-central2-b): Nothing that tpuwatch does would help: ask a person." in called[0]["text"]
    assert fleet.happened("stop", "start", "reset") == []
    assert not list(fleet.ledger.iterdir())
    for daemon in (inside, outside):
        assert daemon.metric(BEGUN) == daemon.metric("tpuwatch_restart_requests_total") == 0
        assert daemon.stop() == 0
        assert "StopNode" not in daemon.ask("/metrics")[1]
        assert fleet.listener.url not in daemon.said()
        assert "secret" not in daemon.said() + daemon.command("config", "show")[1].replace("(secret)", "")


def test_who_is_killed_between_stop_and_start_is_followed_by_one_who_only_observes(fleet: Fleet) -> None:
    fleet.site.world.timing.stop = 3600.0
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT)
    outside.judged("train-1", "healthy")
    fleet.die()
    inside.judged("train-1", "unknown", "node_stuck")
    inside.skip(LATER_SECONDS)
    wait_for(lambda: fleet.phase(outside) == "stopping", "the stop")
    outside.kill()
    inside.kill()
    fleet.site.finish()
    wait_for(lambda: fleet.state() == "STOPPED", "the node to be stopped")
    assert fleet.happened("start") == []
    restarted(fleet, after := fleet.outside("after", **QUICK))
    assert after.metric(BEGUN) == 0
    assert [one[1] for one in audited(after) if one[0] == "restart_node"][:1] == ["taken_up"]


def test_what_is_under_way_is_shown_and_outlives_an_end_and_another_configuration(fleet: Fleet) -> None:
    fleet.site.do("fault", method="StartNode", code="RESOURCE_EXHAUSTED", message="There is no more capacity.")
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT, capacity_tries=1)
    outside.judged("train-1", "healthy")
    fleet.die()
    inside.judged("train-1", "unknown", "node_stuck")
    inside.skip(LATER_SECONDS)
    wait_for(lambda: outside.metric("tpuwatch_restarts_waiting_for_capacity") == 1, "the start to be refused")
    assert outside.metric('tpuwatch_restarts_open{phase="stopped"}') == 1
    assert outside.series("tpuwatch_restart_phase_timestamp_seconds").keys() == {'{node="train-1",phase="stopped"}'}
    loud = wait_for(
        lambda: [one for one in fleet.listener.heard if one["event"] == "restart_hindered"], "a call for a person"
    )
    assert "capacity" in loud[0]["text"]
    wait_for(lambda: fleet.phase(outside) == "stopped", "it to be shown")
    assert "train-1: restart node is about to start the node" in outside.command("status")[1]
    assert "is about to start the node" in outside.ask("/")[1]

    fleet.again(outside, **QUICK, capacity_tries=2)
    wait_for(lambda: fleet.phase(outside) == "stopped", "it to be taken up again")
    assert outside.stop() == 0
    assert fleet.happened("stop", "start") == ["stop"]
    fleet.site.do("clear")
    outside.start()
    outside.skip(LATER_SECONDS)  # the next start is due
    restarted(fleet, outside)
