"""Queued resources: what the simulated cloud says of those that its nodes were asked for by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.sim.cloud.responses import not_found

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World


@dataclass(frozen=True, slots=True)
class SimulatedQueuedResource:
    """A queued resource. It exists as long as one of its nodes."""

    path: str  # projects/P/locations/Z/queuedResources/Q
    nodes: list[SimNode]

    @property
    def created(self) -> float:
        """When its first node was."""
        return min(node.created for node in self.nodes)

    @property
    def spot(self) -> bool:
        """Whether its capacity can be taken back."""
        return any(node.spot for node in self.nodes)

    @property
    def state(self) -> str:
        """SUSPENDED when a node was preempted, PROVISIONING while one is created, else ACTIVE."""
        states = {node.state for node in self.nodes}
        if "PREEMPTED" in states:
            return "SUSPENDED"
        return "PROVISIONING" if "CREATING" in states else "ACTIVE"


def find_queued_resource(world: World, path: str) -> SimulatedQueuedResource:
    """Return the queued resource of that name. Raises ServiceError."""
    parent, _, name = path.partition("/queuedResources/")
    nodes = [node for node in world.nodes.values() if node.queued_resource == name and node.parent == parent]
    if not name or not nodes:
        raise not_found(path)
    return SimulatedQueuedResource(path, nodes)


def list_queued_resources(world: World, within: str) -> dict[str, SimulatedQueuedResource]:
    """Return the queued resources whose resource names begin with `within`, by name."""
    found: dict[str, SimulatedQueuedResource] = {}
    for node in world.nodes.values():
        path = f"{node.parent}/queuedResources/{node.queued_resource}"
        if node.queued_resource and path.startswith(within):
            found.setdefault(path, SimulatedQueuedResource(path, [])).nodes.append(node)
    return found
