"""What operations do to nodes: they begin, and end or fail when their time has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.sim.cloud.operations import Error, SimOperation
from tpuwatch.sim.cloud.responses import not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.cloud.faults import InjectedFault
    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World

MAX_OPERATIONS: Final = 10_000  # the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Work:
    """What an operation does to its nodes, which are in the state `during` until it ends ("": they stay in theirs)."""

    nodes: list[SimNode]
    during: str
    seconds: float
    end: Callable[[float], Error | None]  # does it, or returns the error with which it fails
    undo: Callable[[], None] | None = None  # after a failure; by default the nodes are again as they were


def begin(world: World, method: str, api: str, target: str, work: Work) -> SimOperation:
    """Begin an operation. It fails when something else has come over a node by its end. Call it under the lock."""
    now = world.advance()
    fault = world.faults.take(f"{method}Operation", target)
    operation = SimOperation(_name(world, target, now), _verb(method), target, api, now)
    undo = work.undo or _restoring(work.nodes)
    for node in work.nodes:
        node.operation = operation.name
        if work.during:
            node.state, node.health, node.health_description = work.during, "", ""
    world.operations[operation.name] = operation
    while len(world.operations) > MAX_OPERATIONS:
        del world.operations[next(iter(world.operations))]
    if fault is None or not fault.black_hole:
        due = now + work.seconds + (fault.latency_seconds if fault is not None else 0.0)
        world.schedule(due, lambda at: _finish(world, operation, work, fault, undo, at))
    world.advance()
    return operation


def _finish(
    world: World, operation: SimOperation, work: Work, fault: InjectedFault | None, undo: Callable[[], None], at: float
) -> None:
    operation.ended = at
    ours = [node for node in work.nodes if world.contains(node) and node.operation == operation.name]
    for node in ours:
        node.operation = ""
    if len(ours) < len(work.nodes):
        operation.error = Error("ABORTED", "The node changed while the operation was under way.")
    elif fault is not None and fault.code:
        operation.error = Error(fault.code, fault.message or f"The operation failed: {fault.code}.")
        undo()
        for node in ours:
            world.record_event(node, "failed", at)
    else:
        operation.error = work.end(at)
    if operation.error is None and len(ours) == 1:
        operation.node = replace(ours[0], health="", health_description="")


def _restoring(nodes: list[SimNode]) -> Callable[[], None]:
    before = [(node, node.state, node.health, node.health_description) for node in nodes]

    def restore() -> None:
        for node, state, health, description in before:
            node.state, node.health, node.health_description = state, health, description

    return restore


def find(world: World, name: str) -> SimOperation:
    """The operation of that name. Raises ServiceError."""
    operation = world.operations.get(name)
    if operation is None:
        raise not_found(name)
    return operation


def _name(world: World, target: str, now: float) -> str:
    parent = "/".join(target.split("/")[:4])
    tail = f"{world.rng.getrandbits(52):013x}-{world.rng.getrandbits(32):08x}"
    return f"{parent}/operations/operation-{now * 1000:.0f}-{tail}"


def _verb(method: str) -> str:
    for end in ("Node", "QueuedResource"):
        method = method.removesuffix(end)
    return method[:1].lower() + method[1:]
