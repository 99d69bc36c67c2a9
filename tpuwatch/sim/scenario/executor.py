"""Executes actions on the simulated cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import TpuwatchError
from tpuwatch.model import Symptom
from tpuwatch.sim.cloud.nodes import QueuedRequest, TpuwatchPlay, Workload, WorkloadPhase
from tpuwatch.sim.host.launch import LAUNCHES
from tpuwatch.sim.scenario import actions
from tpuwatch.sim.scenario.file import match_nodes
from tpuwatch.sim.scenario.validation import suggest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World
    from tpuwatch.sim.host.launches import Launches
    from tpuwatch.sim.scenario.file import NodeSpec, QueuedResourceSpec, Scenario


_PLAYED: Final = {
    TpuwatchPlay.ANSWERS: "answers",
    TpuwatchPlay.SLOW: "is slow",
    TpuwatchPlay.SILENT: "is silent",
    TpuwatchPlay.REFUSES: "refuses connections",
}


class ActionFailedError(TpuwatchError):
    """The action matches no node or worker, or is not possible now."""


class ActionExecutor:
    """Executes actions under the world's lock; safe from any thread."""

    def __init__(
        self, world: World, scenario: Scenario, launches: Launches, *, changed: Callable[[], None] = lambda: None
    ) -> None:
        """Fills the world with the scenario's nodes and zones. `changed` is called after each action."""
        self.world = world
        self.scenario = scenario
        self.launches = launches
        self.changed = changed
        self.specs: Mapping[str, NodeSpec] = {name: spec for spec in scenario.nodes for name in spec.names}
        scenario.configure(world)
        for name, spec in self.specs.items():
            if spec.exists:
                self._add_node(name)
        for request in scenario.queued_resources:
            self._add_request(request)

    @property
    def own(self) -> SimNode | None:
        """The node that this machine is a worker of, while there is one."""
        return self.world.nodes.get(self.scenario.own_path)

    def execute(self, action: actions.ScenarioAction) -> str:
        """Execute an action and return its outcome as a sentence. Raises ActionFailedError."""
        with self.world.lock:
            outcome = self._execute(action)
        self.changed()
        return outcome

    def _execute(self, action: actions.ScenarioAction) -> str:
        if isinstance(action, actions.OnNode):
            return self._execute_on_nodes(action)
        if isinstance(action, actions.StartLaunch):
            return f"launch {action.launch}, process {self._launch(action).pid}"
        if isinstance(action, actions.SetQueuedResource):
            return self._set_queued_resource(action)
        if isinstance(action, actions.SetFault):
            self.world.faults.set(action.fault(self.world.clock.time()))
            return f"{action.method}: {_describe_fault(action)}"
        if isinstance(action, actions.ClearFaults):
            self.world.faults.clear(action.method)
            return "no more faults" if action.method == "*" else f"no more faults of {action.method}"
        return action.say

    def _execute_on_nodes(self, action: actions.OnNode) -> str:
        nodes = self._nodes()
        # A node that has vanished can be restored, and nothing else.
        known = self.specs if isinstance(action, actions.Restore) else nodes
        names = match_nodes(action.node, known)
        if not names:
            raise ActionFailedError(f"there is no node {action.node}; {suggest(action.node, list(known)[:20])}")
        outcome = ""
        for name in names:
            outcome = (
                self._restore(name) if isinstance(action, actions.Restore) else self._execute_on(nodes[name], action)
            )
        return f"{names[0] if len(names) == 1 else f'{len(names)} nodes {action.node}'}: {outcome}"

    def _execute_on(self, node: SimNode, action: actions.OnNode) -> str:
        if isinstance(action, actions.SetWorkload):
            return _set_workload(node, action, self.world.clock.time())
        if isinstance(action, actions.SetNode):
            return _set_node(node, action, self.world.clock.time())
        if isinstance(action, actions.Maintain):
            self.world.maintain(node, in_seconds=action.in_seconds, lasts_seconds=action.lasts_seconds)
            return f"maintenance in {action.in_seconds:g} s" if action.in_seconds else "under maintenance"
        return self._change_condition(node, action.do)

    def _change_condition(self, node: SimNode, what: str) -> str:
        if what == "hang":
            self.world.hang(node)
            return "hangs"
        if what == "lie":
            self.world.hang(node, lies=True)
            return f"hangs, and the API still reports {node.state} and {node.health or 'no health'}"
        if what == "preempt":
            self.world.preempt(node)
            return "is being preempted"
        self.world.vanish(node)
        return "vanished"

    def _restore(self, name: str) -> str:
        self.world.record_event(self._add_node(name, boots=1), "restore")
        return "as it was at the beginning"

    def launch(self, action: actions.StartLaunch) -> subprocess.Popen[bytes]:
        """Start a launch on this machine, and set the phase of its worker until it ends. Raises ActionFailedError."""
        with self.world.lock:
            process = self._launch(action)
        self.changed()  # without the lock: the simulator takes locks of its own, before the world's
        return process

    def _launch(self, action: actions.StartLaunch) -> subprocess.Popen[bytes]:
        phase = LAUNCHES[action.launch].phase if action.phase is None else action.phase
        during = Workload(WorkloadPhase(phase), self.world.clock.time()) if phase else None
        process = self.launches.start(action.launch, lambda: self._launch_ended(during))
        if process is None:
            raise ActionFailedError("too many launches are running; wait until some have ended")
        if during is not None and (own := self.own) is not None:
            own.workloads[self.scenario.worker] = during
        return process

    def _launch_ended(self, during: Workload | None) -> None:
        with self.world.lock:
            own, worker = self.own, self.scenario.worker
            if own is None or own.workloads[worker] is not during:
                return  # changed by another action meanwhile
            own.workloads[worker] = Workload(since=self.world.clock.time())
        self.changed()

    def _nodes(self) -> dict[str, SimNode]:
        return {node.name: node for node in self.world.nodes.values()}

    def _add_request(self, spec: QueuedResourceSpec) -> None:
        now, zone = self.world.clock.time(), spec.zone or self.scenario.zone
        path = f"projects/{self.scenario.project}/locations/{zone}/queuedResources/{spec.name}"
        awaited = [
            node.build(name, self.scenario, now)
            for name, node in self.specs.items()
            if not node.exists and node.queued_resource == spec.name
        ]
        self.world.zones.add(zone)
        self.world.projects.add(self.scenario.project)
        self.world.requests[path] = QueuedRequest(
            path=path,
            state=spec.state,
            created=now - spec.age_seconds,
            spot=spec.spot,
            initiator=spec.initiator,
            error=spec.error,
            valid_until=None if spec.valid_for_seconds is None else now + spec.valid_for_seconds,
            awaited=awaited,
        )

    def _set_queued_resource(self, action: actions.SetQueuedResource) -> str:
        requests = {path.rpartition("/")[2]: request for path, request in self.world.requests.items()}
        request = requests.get(action.name)
        if request is None:
            known = suggest(action.name, list(requests)[:20])
            raise ActionFailedError(f"there is no queued resource {action.name}; {known}")
        request.state, request.error = action.state, action.error
        made = [node.name for node in request.awaited if node.path not in self.world.nodes]
        if action.state != "ACTIVE" or not made:
            return f"{action.name}: {action.state}"
        for name in made:
            node = self._add_node(name)
            node.created = self.world.clock.time()
            self.world.record_event(node, "create")
        return f"{action.name}: {action.state}, with {', '.join(made)}"

    def _add_node(self, name: str, *, boots: int = 0) -> SimNode:
        """Add the node to the world as the scenario describes it, with `boots` further boots."""
        node = self.specs[name].build(name, self.scenario, self.world.clock.time())
        before = self.world.nodes.get(node.path)
        if before is not None:
            node.boots, node.created = before.boots + boots, before.created
        return self.world.add(node)


def _set_workload(node: SimNode, action: actions.SetWorkload, now: float) -> str:
    if action.worker is not None and action.worker >= node.hosts:
        raise ActionFailedError(f"{node.name} has no worker {action.worker}; give a number below {node.hosts}")
    for worker in range(node.hosts) if action.worker is None else (action.worker,):
        before = node.workloads[worker]
        if action.phase is not None:
            before = replace(before, phase=WorkloadPhase(action.phase), since=now - action.for_seconds)
        if action.tpuwatch is not None:
            before = replace(before, tpuwatch=TpuwatchPlay(action.tpuwatch))
        if action.cause is not None:
            before = replace(before, cause=action.cause, failed=now - action.for_seconds)
        node.workloads[worker] = before
    of = "" if action.worker is None else f" of worker {action.worker}"
    since = f", for {action.for_seconds:g} s already" if action.for_seconds else ""
    changes = []
    if action.phase is not None:
        changes.append(f"{'the' if of else 'its'} workload{of} is {action.phase}{since}")
    if action.tpuwatch is not None:
        changes.append(f"the tpuwatch{of or ' of its workers'} {_PLAYED[TpuwatchPlay(action.tpuwatch)]}")
    if action.cause is not None:
        changes.append(f"it reports {action.cause or 'no failure'}")
    return ", ".join(changes) or "nothing to set"


def _set_node(node: SimNode, action: actions.SetNode, now: float) -> str:
    changes = []
    if action.state is not None:
        node.state = action.state
        changes.append(f"state {action.state}")
    if action.health is not None:
        node.health = action.health
        changes.append(f"health {action.health or 'unset'}")
    if action.health_description is not None:
        node.health_description = action.health_description
        changes.append(f'"{action.health_description}"')
    if action.endpoints is not None:
        node.endpoints = action.endpoints
        changes.append(f"{action.endpoints} network endpoints")
    if action.symptom is not None:
        node.symptoms.append(Symptom(action.symptom, now, str(action.worker)))
        changes.append(f"symptom {action.symptom} of worker {action.worker}")
    return ", ".join(changes) or "nothing to set"


def _describe_fault(action: actions.SetFault) -> str:
    parts = [" ".join(filter(None, (action.code, action.reason)))] if action.code else []
    parts += [
        word
        for word, given in (
            ("no answer", action.black_hole),
            ("half-open connections to the cloud", action.half_open),
            ("unknown enums", action.wrong_enum),
            ("done, but the answer is lost", action.after_work),
        )
        if given
    ]
    parts += [f"{action.latency_seconds:g} s late"] if action.latency_seconds else []
    parts += [f"as it was {action.stale_seconds:g} s ago"] if action.stale_seconds else []
    parts += [f"without {', '.join(action.drop)}"] if action.drop else []
    parts += [f"lists without {', '.join(action.omit)}"] if action.omit else []
    parts += [f"{action.share:.0%} of the calls"] if action.share < 1 else []
    parts += [f"{action.times} times"] if action.times else []
    parts += [f"for {action.resource}"] if action.resource != "*" else []
    parts += [f"for {action.for_seconds:g} s"] if action.for_seconds else []
    return ", ".join(parts)
