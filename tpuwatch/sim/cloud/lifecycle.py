"""Operations on nodes that clients request from the Cloud TPU API, by the service's rules.

Each function checks what the service checks, raises ServiceError or begins an operation, and lets it run by the world's
clock. `api` is the version that the caller speaks. All are called under the world's lock, after `advance`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tpuwatch.sim.cloud.nodes import shape_of
from tpuwatch.sim.cloud.operations import Error, SimOperation
from tpuwatch.sim.cloud.responses import ServiceError, not_found
from tpuwatch.sim.cloud.work import Work, begin

if TYPE_CHECKING:
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World

_NODE_ID: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def find(world: World, path: str) -> SimNode:
    """The node of that resource name. Raises ServiceError."""
    check_parent(world, "/".join(path.split("/")[:4]))
    node = world.nodes.get(path)
    if node is None:
        raise not_found(path)
    return node


def check_parent(world: World, parent: str) -> None:
    """Raises ServiceError unless projects/P/locations/Z is one that there is; "-" stands for all zones.

    The real service does not distinguish a missing location from one that the caller may not use.
    """
    parts = parent.split("/")
    if len(parts) != 4 or (parts[0], parts[2]) != ("projects", "locations"):
        raise ServiceError("INVALID_ARGUMENT", f"Invalid resource name: {parent}")
    project, zone = parts[1], parts[3]
    if project not in world.projects:
        raise ServiceError(
            "PERMISSION_DENIED", f"Permission denied on resource project {project}.", reason="CONSUMER_INVALID"
        )
    if zone not in world.zones and zone != "-":
        raise ServiceError("PERMISSION_DENIED", f"Location {zone} is not found or access is unauthorized.")


def stop(world: World, path: str, api: str) -> SimOperation:
    """READY → STOPPING → STOPPED. The node's capacity is given away. Only for nodes of one host."""
    node = find(world, path)
    if node.hosts > 1:
        raise ServiceError(
            "FAILED_PRECONDITION", f"Node {node.name} has {node.hosts} hosts: only single-host nodes can be stopped."
        )
    _require(node, "stop", "READY", "UNKNOWN")
    world.record_event(node, "stop")

    def end(at: float) -> None:
        node.state = "STOPPED"
        world.record_event(node, "stopped", at)

    return begin(world, "StopNode", api, path, Work([node], "STOPPING", world.timing.stop, end))


def start(world: World, path: str, api: str) -> SimOperation:
    """STOPPED → STARTING → READY; without capacity in the zone the operation fails and the node is STOPPED again."""
    node = find(world, path)
    if node.state == "PREEMPTED":
        raise ServiceError(
            "FAILED_PRECONDITION", f"Node {node.name} was preempted: it cannot be started, only recreated."
        )
    _require(node, "start", "STOPPED")
    world.record_event(node, "start")

    def end(at: float) -> Error | None:
        if not _take_capacity(world, node.zone):
            node.state = "STOPPED"
            world.record_event(node, "stockout", at)
            return _stockout(node.zone)
        world.boot(node, at)
        return None

    return begin(world, "StartNode", api, path, Work([node], "STARTING", world.timing.start, end))


def delete(world: World, path: str, api: str) -> SimOperation:
    """Any state → DELETING → gone."""
    node = find(world, path)
    if node.state == "DELETING":
        raise _wrong_state(node, "delete")
    node.operation = ""  # a deletion comes over whatever else was under way
    world.record_event(node, "delete")

    def end(at: float) -> None:
        world.remove(node.path)
        world.record_event(node, "deleted", at)

    return begin(world, "DeleteNode", api, path, Work([node], "DELETING", world.timing.delete, end))


def create(world: World, node: SimNode, api: str) -> SimOperation:
    """CREATING → READY; without capacity in the zone the operation fails and there is no node."""
    check_parent(world, node.parent)
    if not _NODE_ID.fullmatch(node.name):
        raise ServiceError("INVALID_ARGUMENT", f"Invalid node id: {node.name!r}")
    if node.path in world.nodes:
        raise ServiceError("ALREADY_EXISTS", f"Resource '{node.path}' already exists", resource=node.path)
    try:
        node.hosts, node.chips_per_host, node.hbm_bytes = shape_of(node.accelerator_type)
    except ValueError:
        raise ServiceError("INVALID_ARGUMENT", f"Unknown accelerator type: {node.accelerator_type!r}") from None
    node.boots = 0
    world.add(node)
    world.record_event(node, "create")

    def end(at: float) -> Error | None:
        if not _take_capacity(world, node.zone):
            world.remove(node.path)
            world.record_event(node, "stockout", at)
            return _stockout(node.zone)
        world.boot(node, at)
        return None

    work = Work([node], "CREATING", world.timing.create, end, undo=lambda: world.remove(node.path))
    return begin(world, "CreateNode", api, node.path, work)


def reset(world: World, path: str, api: str, nodes: list[SimNode]) -> SimOperation:
    """All hosts of a queued resource's nodes boot: READY → RESTARTING → READY. Disks and places are kept."""
    for node in nodes:
        _require(node, "reset", "READY", "UNKNOWN")
    for node in nodes:
        world.record_event(node, "reset")

    def end(at: float) -> None:
        for node in nodes:
            world.boot(node, at)

    return begin(world, "ResetQueuedResource", api, path, Work(nodes, "RESTARTING", world.timing.reset, end))


def _require(node: SimNode, verb: str, *states: str) -> None:
    """Raises ServiceError unless the node is in one of `states`, if given, and no operation is under way."""
    if (states and node.state not in states) or node.operation:
        raise _wrong_state(node, verb)


def _wrong_state(node: SimNode, verb: str) -> ServiceError:
    under_way = ", and an operation on it is under way" if node.operation else ""
    return ServiceError("FAILED_PRECONDITION", f"Cannot {verb} node {node.name}: its state is {node.state}{under_way}.")


def _take_capacity(world: World, zone: str) -> bool:
    places = world.capacity.get(zone)
    if places is None:
        return True
    world.capacity[zone] = max(0, places - 1)
    return places > 0


def _stockout(zone: str) -> Error:
    return Error("RESOURCE_EXHAUSTED", f'There is no more capacity in the zone "{zone}"; try another zone, or later.')
