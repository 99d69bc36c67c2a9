"""A machine that watches a node and may restart it: what goes wrong with restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import ACT, Fleet, running_fleet
from tests.proof.monitoring.stack import replaced
from tests.standins.peer_server import PeerServer, peer_server, status
from tests.standins.simulated import NOBODY, ZONE

NODE: Final = "train-1"
# One failure opens the breaker, and nothing waits for long.
HASTY: Final[dict[str, Any]] = {
    **ACT,
    "wait_seconds": 1.0,
    "verify_seconds": 2.0,
    "breaker_failures": 1,
    "backoff_seconds": 1.0,
    "cooldown_seconds": 0.0,
    "same_cause_seconds": 0.0,
    "node_max": 16,
    "fleet_percent": 100.0,
}
WAITING: Final = "tpuwatch_restarts_waiting_for_capacity"


class Restarts:
    """The daemon `outside` watches train-1, asks the tpuwatch on it, and restarts it."""

    def __init__(self, fleet: Fleet, its_own: PeerServer) -> None:
        self.fleet = fleet
        self._its_own = its_own
        self.outside: DaemonInCloud = fleet.daemon("outside", {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY})
        fleet.configure(
            self.outside,
            HASTY,
            cloud={"nodes": [NODE]},
            runtime={"enabled": False},
            **{
                "peers": {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0},
                "peers.addresses": {NODE: its_own.url},
            },
        )

    @contextmanager
    def _stuck(self) -> Iterator[None]:
        """The node is dead, and its own tpuwatch asks for a restart."""
        self.fleet.die()
        self._its_own.reply = status(NODE, "node_stuck", "restart_node", sources=["kernel", "runtime"])
        yield
        self._its_own.reply = status(NODE, "healthy")

    # -- what goes wrong, and is over at the end of each

    @contextmanager
    def refused_stop(self) -> Iterator[None]:
        """The service refuses to stop the node, and the webhook to take the message of it."""
        self.fleet.site.do("fault", method="StopNode", code="PERMISSION_DENIED", message="Not you.")
        self.fleet.listener.answers = [(404, {})] * 1000
        with self._stuck():
            yield
        self.fleet.site.do("restore", NODE)
        self.fleet.site.do("clear")
        self.fleet.listener.answers = []
        assert self.outside.command("restarts", "reset-breaker")[0] == 0

    @contextmanager
    def no_capacity(self) -> Iterator[None]:
        self.fleet.site.world.capacity[ZONE] = 0
        with self._stuck():
            yield
        del self.fleet.site.world.capacity[ZONE]

    def wait_for_stockout(self) -> None:
        """Until the start was refused."""
        wait_for(lambda: self.outside.metric(WAITING) == 1, "a refused start")

    @contextmanager
    def no_ledger(self) -> Iterator[None]:
        """A file is in the place of its directory: not even root can write below that."""
        with replaced(self.fleet.ledger):
            yield


@contextmanager
def restarts(root: Path) -> Iterator[Restarts]:
    """With its daemon, which has seen the node well."""
    root.mkdir()
    with ExitStack() as started:
        its_own = started.enter_context(peer_server())
        its_own.reply = status(NODE, "healthy")
        made = Restarts(started.enter_context(running_fleet(root)), its_own)
        made.outside.start()
        made.outside.judged(NODE, "healthy")
        yield made
