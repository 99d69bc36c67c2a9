"""What befalls simulated nodes by the clock, without any server."""

from __future__ import annotations

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.nodes import GIB, SimNode, Workload, WorkloadPhase, shape_of
from tpuwatch.sim.cloud.world import World


@pytest.fixture
def world() -> World:
    return World(ManualClock())


def pass_time(world: World, seconds: float) -> None:
    world.clock.advance(seconds)
    world.advance()


def train(world: World) -> SimNode:
    return world.add(SimNode("lab", "us-east5-a", "train-1", workloads=[Workload(WorkloadPhase.TRAINING)]))


def test_steps_happen_in_the_order_in_which_they_are_due_with_their_own_time(world: World) -> None:
    begun, seen = world.clock.time(), []
    world.schedule(begun + 20, lambda at: seen.append(("b", at - begun)))
    world.schedule(begun + 10, lambda _: world.schedule(begun + 15, lambda at: seen.append(("a", at - begun))))
    pass_time(world, 14)
    assert seen == []
    pass_time(world, 100)
    assert seen == [("a", 15), ("b", 20)]


def test_a_boot_takes_back_a_hang_and_what_would_have_come_of_it(world: World) -> None:
    node = train(world)
    world.hang(node)
    world.boot(node, world.clock.time())
    pass_time(world, 300)
    assert (node.alive, node.health) == (True, "HEALTHY")
    world.hang(node)  # and the first hang's deadline does not count for this one
    pass_time(world, 299)
    assert node.health == "HEALTHY"


def test_a_maintenance_is_announced_begins_and_ends_with_a_boot(world: World) -> None:
    node = train(world)
    world.maintain(node, in_seconds=600, lasts_seconds=1800)
    assert (node.maintenance.status, node.notice, node.health) == ("PENDING", "NONE", "HEALTHY")
    pass_time(world, 600)
    assert node.maintenance.status == "ONGOING"
    assert node.notice == "TERMINATE_ON_HOST_MAINTENANCE"
    assert (node.state, node.health) == ("READY", "UNHEALTHY_MAINTENANCE")
    assert node.workloads[0].phase == WorkloadPhase.TRAINING  # seen on real nodes: it steps on
    pass_time(world, 1800)
    assert (node.maintenance, node.notice) == (None, "NONE")
    assert (node.state, node.health, node.boots) == ("READY", "HEALTHY", 2)
    assert node.workloads[0].phase == WorkloadPhase.NONE


def test_nothing_befalls_a_node_that_has_been_replaced(world: World) -> None:
    old = train(world)
    world.hang(old)
    world.preempt(old)
    world.maintain(old, in_seconds=10)
    new = train(world)
    pass_time(world, 10_000)
    assert (new.state, new.health, new.maintenance) == ("READY", "HEALTHY", None)
    assert (old.state, old.maintenance.status) == ("READY", "PENDING")


@pytest.mark.parametrize(
    ("kind", "hosts", "chips", "gib"),
    [
        ("v2-8", 1, 4, 16),
        ("v4-256", 32, 4, 32),
        ("v5p-16", 2, 4, 95),
        ("v5litepod-8", 1, 8, 16),
        ("v5litepod-16", 4, 4, 16),
        ("v6e-256", 64, 4, 32),
        ("tpu7x-8", 1, 4, 192),
        ("tpu7x-256", 32, 4, 192),
    ],
)
def test_the_accelerator_s_type_shows_hosts_and_chips(kind: str, hosts: int, chips: int, gib: int) -> None:
    assert shape_of(kind) == (hosts, chips, gib * GIB)


@pytest.mark.parametrize("kind", ["v4-x", "v4-0", "gpu-8", "v4-99999999"])
def test_other_types_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=kind):
        shape_of(kind)
