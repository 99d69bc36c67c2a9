"""Queued resources: what the simulated cloud says of those that its nodes were asked for by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.sim.cloud.responses import not_found

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import QueuedRequest, SimNode
    from tpuwatch.sim.cloud.world import World


@dataclass(frozen=True, slots=True)
class SimulatedQueuedResource:
    """A queued resource. Without a request of its own it exists as long as one of its nodes."""

    path: str  # projects/P/locations/Z/queuedResources/Q
    nodes: list[SimNode]
    request: QueuedRequest | None = None

    @property
    def created(self) -> float:
        """When it was, or its first node."""
        return self.request.created if self.request else min(node.created for node in self.nodes)

    @property
    def spot(self) -> bool:
        """Whether its capacity can be taken back."""
        return any(node.spot for node in self.nodes) or bool(self.request and self.request.spot)

    @property
    def state(self) -> str:
        """That of its request; else SUSPENDED when a node was preempted, PROVISIONING while one is created, or
        ACTIVE."""
        if self.request is not None:
            return self.request.state
        states = {node.state for node in self.nodes}
        if "PREEMPTED" in states:
            return "SUSPENDED"
        return "PROVISIONING" if "CREATING" in states else "ACTIVE"


def find_queued_resource(world: World, path: str) -> SimulatedQueuedResource:
    """Return the queued resource of that name. Raises ServiceError."""
    found = list_queued_resources(world, path).get(path)
    if found is None:
        raise not_found(path)
    return found


def list_queued_resources(world: World, within: str) -> dict[str, SimulatedQueuedResource]:
    """Return the queued resources whose resource names begin with `within`, by name."""
    found: dict[str, SimulatedQueuedResource] = {}
    for path, request in world.requests.items():
        if path.startswith(within):
            awaited = [node for node in request.awaited if node.path not in world.nodes]
            found[path] = SimulatedQueuedResource(path, awaited, request)
    for node in world.nodes.values():
        path = f"{node.parent}/queuedResources/{node.queued_resource}"
        if node.queued_resource and path.startswith(within):
            found.setdefault(path, SimulatedQueuedResource(path, [])).nodes.append(node)
    return found
