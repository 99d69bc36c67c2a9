"""The tpuwatch on each node of the second stand-in, as other machines see it: it answers how its node really is."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final

from tests.proof.chaos.command_nest import PARENT, PROJECT, ZONE
from tests.standins.peer_server import status
from tests.standins.tpu_nodes import RefusalError, State
from tpuwatch.sim.serving import LocalServer

if TYPE_CHECKING:
    from tests.standins.tpu_nodes import TpuNodes

SILENT_SECONDS: Final = 5.0  # of real time: longer than anybody waits


class NodePeers(LocalServer):
    """Serves /NODE/api/v1/peer for all nodes."""

    def __init__(self, nodes: TpuNodes) -> None:
        """Binds a free port at once; requests are answered after `start`."""
        self.silent: set[str] = set()  # nodes whose tpuwatch takes connections and says nothing
        self._nodes = nodes
        super().__init__(_Handler, "sim-peers", max_connections=256)

    def status(self, node: str) -> dict[str, Any] | None:
        """What the tpuwatch on the node tells; None while the node is not up."""
        path = f"{PARENT}/nodes/{node}"
        try:
            shown, truth = self._nodes.get(path), self._nodes.truth(path)
        except RefusalError:
            return None
        if shown.state != State.READY:
            return None
        several = len(shown.network_endpoints) > 1
        verdict = "healthy" if truth.well else "runtime_stuck"
        action = "none" if truth.well else "reset_queued_resource" if several else "restart_node"
        known = {"project": PROJECT, "zone": ZONE, "node": node}
        return {
            **status(node, verdict, action, sources=["runtime"], project=PROJECT, zone=ZONE),
            "identity": {name: {"value": value, "source": "metadata"} for name, value in known.items()},
            "host": {"boot_id": f"{node}-{shown.id}-{truth.boots}"},
        }


class _Handler(BaseHTTPRequestHandler):
    server: NodePeers

    def do_GET(self) -> None:
        """The status."""
        node = self.path.split("/")[1]
        if node in self.server.silent:
            self.server.stopping.wait(SILENT_SECONDS)
        elif (document := self.server.status(node)) is not None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""
