"""Old answers: what the services show is as it was some time ago, and what they do is done now."""

from __future__ import annotations

import pytest
from google.api_core import exceptions

from tests.unit.sim.cloud.servers import DEADLINE, PARENT, Cloud
from tpuwatch.sim.cloud.faults import InjectedFault

PATH = f"{PARENT}/nodes/train-1"


def state(cloud: Cloud) -> str:
    return str(cloud.tpu.get_node(name=PATH, timeout=DEADLINE).state.name)


def states(cloud: Cloud) -> dict[str, str]:
    return {
        node.name.rpartition("/")[2]: node.state.name for node in cloud.tpu.list_nodes(parent=PARENT, timeout=DEADLINE)
    }


def listed(cloud: Cloud) -> list[bool]:
    return [one.done for one in cloud.operations.list_operations(PARENT, "", timeout=DEADLINE)]


def stop(cloud: Cloud) -> None:
    cloud.tpu.stop_node(request={"name": PATH}, timeout=DEADLINE)


def test_nodes_and_operations_are_shown_as_they_were(cloud: Cloud) -> None:
    cloud.world.timing.stop = 60
    cloud.add()
    cloud.world.faults.set(InjectedFault(stale_seconds=20))
    stop(cloud)
    seen = []
    for seconds in (0, 19, 1, 59, 1):
        cloud.pass_time(seconds)
        seen.append((state(cloud), states(cloud)["train-1"], listed(cloud)))
    assert seen == [
        ("READY", "READY", []),
        ("READY", "READY", []),
        ("STOPPING", "STOPPING", [False]),
        ("STOPPING", "STOPPING", [False]),
        ("STOPPED", "STOPPED", [True]),
    ]


def test_only_looks_are_old(cloud: Cloud) -> None:
    cloud.add()
    cloud.world.faults.set(InjectedFault(stale_seconds=3600))
    stop(cloud)
    assert state(cloud) == "READY"
    with pytest.raises(exceptions.FailedPrecondition):
        stop(cloud)  # that it is STOPPING is known where it is stopped
    assert cloud.happened() == ["stop"]
    cloud.world.faults.clear()
    assert state(cloud) == "STOPPING"


def test_before_the_fault_was_set_nothing_is_remembered(cloud: Cloud) -> None:
    cloud.add()
    stop(cloud)
    cloud.world.faults.set(InjectedFault(stale_seconds=3600))
    assert state(cloud) == "STOPPING"
    cloud.pass_time(600)
    assert state(cloud) == "STOPPING"
    cloud.world.faults.clear()
    assert state(cloud) == "STOPPED"
    cloud.world.faults.set(InjectedFault(stale_seconds=3600))
    assert state(cloud) == "STOPPED"
