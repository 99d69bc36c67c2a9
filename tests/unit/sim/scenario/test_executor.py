from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.model.signals import QUEUED_STATES
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.nodes import SimNode, WorkloadPhase
from tpuwatch.sim.cloud.world import World
from tpuwatch.sim.host.launches import Launches
from tpuwatch.sim.scenario.actions import ADAPTER, SetFault
from tpuwatch.sim.scenario.executor import ActionExecutor, ActionFailedError
from tpuwatch.sim.scenario.file import Scenario


class Stage:
    """A executor over a small scenario, with a clock of ours."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.world = World(self.clock)
        self.changes = 0
        self.held = False  # the world's lock was, by the one that told of a change
        self.others = ThreadPoolExecutor(1)
        scenario = Scenario.model_validate(
            {
                "machine": "train-2",
                "nodes": [
                    {"name": "train-{number}", "count": 3, "phase": "training", "phase_seconds": 60.0},
                    {"name": "slice", "accelerator": "v5litepod-16"},
                ],
            }
        )
        self.launches = Launches(root / "logs", root / "jobs", pace=0)
        self.executor = ActionExecutor(self.world, scenario, self.launches, changed=self._changed)

    def _changed(self) -> None:
        """The simulator takes locks of its own, before the world's: the caller must not hold that."""
        self.changes += 1
        self.held |= not self.others.submit(self._lock_is_free).result()

    def _lock_is_free(self) -> bool:
        free = self.world.lock.acquire(blocking=False)
        if free:
            self.world.lock.release()
        return free

    def do(self, what: str, node: str = "", **fields: Any) -> str:
        return self.executor.execute(
            ADAPTER.validate_python({"do": what, **({"node": node} if node else {}), **fields})
        )

    def node(self, name: str) -> SimNode:
        return self.world.nodes[f"projects/sim-project/locations/us-central2-b/nodes/{name}"]

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.world.advance()


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made = Stage(tmp_path)
    yield made
    made.launches.close()
    made.others.shutdown()


def test_a_node_that_hangs_is_found_out_and_one_that_lies_is_not(stage: Stage) -> None:
    assert stage.do("hang", "train-1") == "train-1: hangs"
    assert stage.do("lie", "train-2") == "train-2: hangs, and the API still reports READY and HEALTHY"
    stage.later(3600)
    assert (stage.node("train-1").hangs, stage.node("train-1").health) == (True, "TIMEOUT")
    assert (stage.node("train-2").hangs, stage.node("train-2").health) == (True, "HEALTHY")
    assert stage.changes == 2


def test_preemption_maintenance_and_vanishing(stage: Stage) -> None:
    stage.do("preempt", "train-1")
    assert stage.do("maintain", "train-2", in_seconds=60.0, lasts_seconds=30.0) == "train-2: maintenance in 60 s"
    assert stage.do("vanish", "train-3") == "train-3: vanished"
    assert stage.node("train-1").preempted
    assert stage.node("train-2").maintenance.status == "PENDING"  # type: ignore[union-attr]
    stage.later(60)
    assert stage.node("train-1").state == "PREEMPTED"
    assert stage.node("train-2").health == "UNHEALTHY_MAINTENANCE"
    assert "train-3" not in {node.name for node in stage.world.nodes.values()}
    stage.later(30)
    assert (stage.node("train-2").health, stage.node("train-2").maintenance) == ("HEALTHY", None)


def test_a_node_is_restored_as_it_was_with_one_boot_more(stage: Stage) -> None:
    stage.do("lie", "train-1")
    stage.do("vanish", "train-3")
    assert stage.do("restore", "train-?") == "3 nodes train-?: as it was at the beginning"
    node = stage.node("train-1")
    assert (node.hangs, node.lies, node.boots) == (False, False, 2)
    assert node.workloads[0].phase is WorkloadPhase.TRAINING
    assert stage.node("train-3").state == "READY"


def test_what_befell_a_node_before_it_was_restored_does_not_come_back(stage: Stage) -> None:
    stage.do("preempt", "train-1")
    stage.do("restore", "train-1")
    stage.later(3600)
    assert stage.node("train-1").state == "READY"


def test_workloads_change_for_one_worker_or_all(stage: Stage) -> None:
    assert stage.do("workload", "slice", phase="stuck", worker=2, for_seconds=90.0) == (
        "slice: the workload of worker 2 is stuck, for 90 s already"
    )
    work = stage.node("slice").workloads
    assert [one.phase.value for one in work] == ["none", "none", "stuck", "none"]
    assert work[2].since == stage.clock.time() - 90
    assert stage.do("workload", "slice", phase="training") == "slice: its workload is training"
    assert {one.phase for one in stage.node("slice").workloads} == {WorkloadPhase.TRAINING}


def test_what_the_api_says_can_be_set(stage: Stage) -> None:
    told = stage.do("set", "slice", state=42, health="", health_description="odd", symptom="LOW_MEMORY", worker=3)
    assert told == 'slice: state 42, health unset, "odd", symptom LOW_MEMORY of worker 3'
    node = stage.node("slice")
    assert (node.state, node.health, node.health_description) == (42, "", "odd")
    assert [(one.kind, one.worker, one.at) for one in node.symptoms] == [("LOW_MEMORY", "3", stage.clock.time())]
    assert stage.do("set", "slice") == "slice: nothing to set"
    assert node.state == 42


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"what": "hang", "node": "train-9"}, "there is no node train-9; did you mean train-3?"),
        ({"what": "hang", "node": "zz*"}, r"there is no node zz\*; known are train-1, train-2, train-3, slice"),
        ({"what": "workload", "node": "slice", "phase": "none", "worker": 4}, "slice has no worker 4; give a number b"),
    ],
)
def test_what_does_not_fit_is_refused(stage: Stage, fields: dict[str, Any], answer: str) -> None:
    with pytest.raises(ActionFailedError, match=answer):
        stage.do(**fields)
    assert stage.changes == 0


def test_faults_are_set_and_cleared(stage: Stage) -> None:
    assert stage.do("fault", method="ListNodes", code="UNAVAILABLE", share=0.5, times=2, for_seconds=10.0) == (
        "ListNodes: UNAVAILABLE, 50% of the calls, 2 times, for 10 s"
    )
    assert stage.world.faults.active == (
        InjectedFault("ListNodes", "UNAVAILABLE", share=0.5, times=2, until=stage.clock.time() + 10),
    )
    stage.later(11)
    assert stage.world.faults.active == ()
    assert stage.do("fault", code="PERMISSION_DENIED", reason="SERVICE_DISABLED") == (
        "*: PERMISSION_DENIED SERVICE_DISABLED"
    )
    stage.do("clear")
    stage.do("fault", method="metadata", black_hole=True)
    stage.do("fault", drop=["health"])
    assert stage.do("clear", method="metadata") == "no more faults of metadata"
    assert [fault.drop for fault in stage.world.faults.active] == [("health",)]
    assert stage.do("clear") == "no more faults"
    assert stage.world.faults.active == ()


def test_a_queued_resource_makes_its_nodes_when_it_becomes_active(tmp_path: Path) -> None:
    clock, launches = ManualClock(), Launches(tmp_path / "logs", tmp_path / "jobs", pace=0)
    world = World(clock)
    nodes = [{"name": "train-1"}, {"name": "next-{number}", "count": 2, "queued_resource": "q-1", "exists": False}]
    queued = [{"name": "q-1", "state": "PROVISIONING", "age_seconds": 60.0, "valid_for_seconds": 30.0, "spot": True}]
    executor = ActionExecutor(world, Scenario.model_validate({"nodes": nodes, "queued_resources": queued}), launches)
    (request,) = world.requests.values()
    assert (request.created, request.valid_until, request.spot) == (clock.time() - 60, clock.time() + 30, True)
    assert [node.name for node in request.awaited] == ["next-1", "next-2"]

    def become(state: str, name: str = "q-1") -> str:
        return executor.execute(ADAPTER.validate_python({"do": "queued_resource", "name": name, "state": state}))

    for state in set(QUEUED_STATES) - {"ACTIVE"}:
        assert become(state) == f"q-1: {state}"
        assert request.state == state
        assert [node.name for node in world.nodes.values()] == ["train-1"]
    clock.advance(5)
    assert become("ACTIVE") == "q-1: ACTIVE, with next-1, next-2"
    assert become("ACTIVE") == "q-1: ACTIVE"
    assert [node.name for node in world.nodes.values()] == ["train-1", "next-1", "next-2"]
    assert [node.created for node in world.nodes.values()][1:] == [clock.time()] * 2
    with pytest.raises(ActionFailedError, match="there is no queued resource q-2; did you mean q-1"):
        become("FAILED", "q-2")
    launches.close()


def test_connections_become_half_open_and_older_faults_stay_as_they_are(stage: Stage) -> None:
    stage.do("fault", method="metadata", code="UNAVAILABLE")
    assert stage.do("fault", half_open=True, for_seconds=10.0) == "*: half-open connections to the cloud, for 10 s"
    assert stage.world.faults.half_open
    struck = stage.world.faults.take("metadata")
    assert struck is not None
    assert struck.code == "UNAVAILABLE"
    assert stage.world.faults.take("ListNodes") is None
    stage.later(11)
    assert not stage.world.faults.half_open


def test_each_field_of_a_fault_can_be_set() -> None:
    ours = set(SetFault.model_fields) - {"do", "at", "say", "for_seconds"}
    assert ours == {field.name for field in dataclasses.fields(InjectedFault)} - {"until"}
    defaults = SetFault.model_validate({"do": "fault", "code": "ABORTED"}).fault(0.0)
    assert defaults == InjectedFault(code="ABORTED")


def test_a_launch_is_a_process_and_its_worker_works_as_long(stage: Stage) -> None:
    process = stage.executor.launch(ADAPTER.validate_python({"do": "launch", "launch": "hbm-oom"}))
    assert process.wait(60) == 1
    stage.launches.close()  # waits until the end has been noted
    assert stage.node("train-2").workloads[0].phase is WorkloadPhase.NONE
    assert list(stage.launches.logs.glob("*.log.ERROR.*"))
    assert "CompileTimeHbmOom" in (stage.launches.jobs / "hbm-oom.log").read_text()
    assert stage.changes == 2


def test_the_phase_of_a_launch_is_there_from_its_beginning(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.launches.pace = 100.0  # it lasts until it is ended
    assert stage.do("launch", launch="healthy", phase="starting").startswith("launch healthy, process ")
    assert stage.node("train-2").workloads[0].phase is WorkloadPhase.STARTING
    stage.do("workload", "train-2", phase="stuck")
    stage.launches.close()
    assert stage.node("train-2").workloads[0].phase is WorkloadPhase.STUCK  # the launch's end does not undo it


def test_what_changes_is_told_without_the_worlds_lock(stage: Stage) -> None:
    stage.launches.pace = 100.0  # it lasts, and nobody else wants the lock
    stage.do("launch", launch="healthy")
    stage.do("hang", "train-1")
    assert stage.changes == 2
    assert not stage.held


def test_no_launch_begins_after_the_end(stage: Stage) -> None:
    stage.launches.close()
    with pytest.raises(ActionFailedError, match="too many launches"):
        stage.do("launch", launch="healthy")
