"""Queued resources: what a node was asked for by. They live as long as one of their nodes does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.sim.cloud.refusal import not_found

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World


@dataclass(frozen=True, slots=True)
class QueuedResource:
    """A queued resource, as its nodes make it."""

    path: str  # projects/P/locations/Z/queuedResources/Q
    nodes: list[SimNode]

    @property
    def created(self) -> float:
        """When its first node was."""
        return min(node.created for node in self.nodes)

    @property
    def spot(self) -> bool:
        """Whether its capacity can be taken back."""
        return any(node.spot or node.preemptible for node in self.nodes)

    @property
    def state(self) -> str:
        """SUSPENDED when a node was preempted, PROVISIONING while one is created, else ACTIVE."""
        states = {node.state for node in self.nodes}
        if "PREEMPTED" in states:
            return "SUSPENDED"
        return "PROVISIONING" if "CREATING" in states else "ACTIVE"


def find(world: World, path: str) -> QueuedResource:
    """The queued resource of that name. Raises Refusal."""
    parent, _, name = path.partition("/queuedResources/")
    nodes = [node for node in world.nodes.values() if node.queued_resource == name and node.parent == parent]
    if not name or not nodes:
        raise not_found(path)
    return QueuedResource(path, nodes)


def all_in(world: World, within: str) -> dict[str, QueuedResource]:
    """All whose resource name begins so, by name."""
    found: dict[str, QueuedResource] = {}
    for node in world.nodes.values():
        path = f"{node.parent}/queuedResources/{node.queued_resource}"
        if node.queued_resource and path.startswith(within):
            found.setdefault(path, QueuedResource(path, [])).nodes.append(node)
    return found
