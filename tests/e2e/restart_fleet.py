"""A node with its own daemon, and one outside that watches it: real processes, a simulated cloud, one ledger."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.daemon_in_cloud import IN_FORCE, DaemonInCloud
from tests.e2e.daemon_process import SECONDS, wait_for
from tests.standins.runtime_server import listening
from tests.standins.simulated import NOBODY, Site, simulated
from tests.standins.tpu_api import TpuApi
from tests.standins.tpu_nodes import Durations, Health, State
from tests.standins.webhook_listener import Listener, listener
from tpuwatch.core.clock import SystemClock
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import Timing

# All that takes minutes on a real node takes no time here.
QUICK: dict[str, Any] = {
    "confirm_seconds": 0.0,
    "confirm_polls": 1,
    "startup_seconds": 0.0,
    "settle_seconds": 0.0,
    "poll_seconds": 0.05,
    "storm_nodes": 100,
}
GRACE_SECONDS = 30.0  # from then on a runtime that does not answer counts as hung
ACT: dict[str, Any] = {**QUICK, "mode": "act", "restart_node": True}
LATER_SECONDS = 60.0  # until the node counts as stuck; until the cloud's word on it is no old one any more
BEGUN = 'tpuwatch_restarts_begun_total{action="restart_node"}'
DONE = 'tpuwatch_restarts_total{action="restart_node",result="done"}'
NOT_VERIFIED = 'tpuwatch_restarts_total{action="restart_node",result="not_verified"}'  # nothing in it can be asked


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
        daemon = self.daemon("inside", {})
        daemon.machine.process(4242, files=("/dev/vfio/0",))
        self.configure(daemon, restart, cloud={"nodes": []}, runtime={"ports": [self._port]})
        return daemon.start()

    def outside(self, name: str = "outside", **restart: Any) -> DaemonInCloud:
        """A daemon elsewhere, where no metadata server is."""
        daemon = self.daemon(name, {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY})
        self.configure(daemon, restart, cloud={"nodes": ["train-1"]}, runtime={"enabled": False})
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

    def shown(self) -> tuple[str, str, int]:
        """State and health of train-1, and how often it has booted."""
        return self.node.state, self.node.health, self.node.boots

    def die_seen(self, inside: DaemonInCloud, outside: DaemonInCloud) -> None:
        """train-1 hangs once the daemon outside has seen it well, and counts as stuck for the one inside."""
        outside.judged("train-1", "healthy")
        self.die()
        inside.judged("train-1", "unknown", "node_stuck")
        inside.skip(LATER_SECONDS)

    def phase(self, daemon: DaemonInCloud) -> str:
        """How far the restart of train-1 has come, by what the daemon shows."""
        return next((one["phase"] for one in daemon.api("restarts")["restarts"]), "")

    def is_well_again(self) -> bool:
        """Whether a driver has seen train-1 well after its restart, by the ledger."""
        return any(stored.record.well_since for stored in SqliteLedger(self.ledger, SystemClock()).records())

    def again(self, daemon: DaemonInCloud, **restart: Any) -> None:
        """Let the daemon outside take another configuration into force."""
        before = daemon.said().count(IN_FORCE)
        self.configure(daemon, restart, cloud={"nodes": ["train-1"]}, runtime={"enabled": False})
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: daemon.said().count(IN_FORCE) > before, "the configuration")

    def daemon(self, name: str, environ: dict[str, str]) -> DaemonInCloud:
        """One that is not started yet."""
        daemon = DaemonInCloud(self._root / name, self.site, environ={"no_proxy": "127.0.0.1", **environ})
        self.daemons.append(daemon)
        return daemon

    def configure(self, daemon: DaemonInCloud, restart: dict[str, Any], **more: dict[str, Any]) -> None:
        """Write its configuration: [restart], and more tables."""
        tables = daemon.site.toml(
            cloud={"timeout_seconds": 4.0, **more.pop("cloud", {})},
            restart={**restart, "webhook_url": self.listener.url},
            ledger={"dir": str(self.ledger), "lease_seconds": 20.0, "timeout_seconds": 3.0},
            health={"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            **more,
        )
        daemon.configure(more=tables, compile_grace_seconds=GRACE_SECONDS)


class SecondFleet(Fleet):
    """The same, where the nodes are those of the other stand-in for the Cloud TPU API."""

    def __init__(self, root: Path, site: Site, listener: Listener, port: int, api: TpuApi) -> None:
        super().__init__(root, site, listener, port)
        self._api = api
        self._path = api.nodes.add(self.node.path)

    def state(self) -> str:
        return State(self._api.nodes.get(self._path).state).name

    def happened(self, *what: str) -> list[str]:
        return [one.what for one in self._api.nodes.events if one.what in what]

    def die(self) -> None:
        self._api.nodes.hang(self._path)

    def shown(self) -> tuple[str, str, int]:
        return self.state(), Health(self._api.nodes.get(self._path).health).name, self._api.nodes.boots(self._path)

    def configure(self, daemon: DaemonInCloud, restart: dict[str, Any], **more: dict[str, Any]) -> None:
        cloud = {**more.pop("cloud", {}), "endpoint": self._api.address, "insecure": True}
        super().configure(daemon, restart, cloud=cloud, **more)


@contextmanager
def running_fleet(directory: Path, *, second: bool = False) -> Iterator[Fleet]:
    """A fleet whose node is stopped and started within a second; its daemons end with it.

    `second`: its Cloud TPU API is the stand-in that shares nothing with the simulator.
    """
    with (
        simulated(directory / "sim") as site,
        listener() as heard,
        listening() as port,
        TpuApi(durations=Durations(stop=0.5, start=0.5, check=0.1)).running() as api,
    ):
        site.world.timing = Timing(stop=0.5, start=0.5, timeout=0.0)
        given = (directory, site, heard, port)
        fleet = SecondFleet(*given, api) if second else Fleet(*given)
        try:
            yield fleet
        finally:
            for daemon in fleet.daemons:
                daemon.__exit__(None, None, None)


def later(daemon: DaemonInCloud, look: Callable[[], bool], what: str, seconds: float = LATER_SECONDS) -> None:
    """Let minutes pass until it is so. A jump ends the call that is in flight: then they may have to pass again."""
    *shares, last = 32, 16, 8, 4, 2  # each jump has twice the time of the one before
    for share in shares:
        daemon.skip(seconds)
        with suppress(AssertionError):
            wait_for(look, what, SECONDS / share)
            return
    daemon.skip(seconds)
    wait_for(look, what, SECONDS / last)


def restarted(fleet: Fleet, daemon: DaemonInCloud, result: str = NOT_VERIFIED, seconds: float = LATER_SECONDS) -> None:
    """The daemon brings the restart that is under way to its end, which was one stop and one start."""
    wait_for(fleet.is_well_again, "the node to be seen well again")
    later(daemon, lambda: daemon.counted(result) == 1, "the end of the restart", seconds)
    assert fleet.happened("stop", "start") == ["stop", "start"]
    assert fleet.shown() == ("READY", "HEALTHY", 2)
