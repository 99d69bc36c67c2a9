"""Those who watch a fleet: the real judge, policy, budgets and driver, on the cloud of `fleet_cloud`.

A watcher sees what the API lists, and nothing else. A node's own daemon sees its runtime too, and may only ask. Both
keep in memory what the real ones keep in memory, and lose it when they are killed.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.proof.chaos.fleet_inside import HEALTH, POLL_SECONDS, cloud_node
from tests.standins.webhook_listener import TakenWebhook
from tpuwatch.core.errors import LedgerError
from tpuwatch.health.judge import following, judge_node
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.labels import node_label
from tpuwatch.model.restart import TOUCHED
from tpuwatch.model.signals import CloudNode, Evidence, Snapshot
from tpuwatch.model.verdict import Action
from tpuwatch.restart.audit import Audit
from tpuwatch.restart.candidates import Candidates
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.owner import LeaseWatch, Owner, ThisMachine
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.notify import Notifier
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.situation import REQUEST_SECONDS
from tpuwatch.restart.sight import Sight
from tpuwatch.restart.starter import RestartStarter
from tpuwatch.restart.workflow.types import PhaseLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from tests.proof.chaos.fleet_cloud import Node
    from tests.proof.chaos.fleet_inside import Fleet
    from tests.proof.chaos.fleet_time import Task
    from tpuwatch.model.restart import RestartDecision, RestartRecord, Target
    from tpuwatch.restart.candidates import Candidate
    from tpuwatch.restart.driver import LeasedDriver
    from tpuwatch.restart.ledger.base import Stored
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.starter import Begun
    from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation

SAMPLE: Final = 5  # of the nodes that are well, which are judged again at each turn
LIMITS: Final = PhaseLimits()


class Elsewhere(ThisMachine):
    """A machine of which no other one knows whether it lives."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name, self._made = name, 0

    def new_owner(self) -> Owner:
        """A name for one more driver."""
        self._made += 1
        return Owner(self._name, "boot", self._made, 1, "x")

    def is_gone(self, text: str) -> bool:  # noqa: ARG002
        """Nobody knows."""
        return False


class Unwritten(Audit):
    """An audit that is kept nowhere."""

    def write(self, entry: Mapping[str, Any]) -> None:
        """Nothing."""


class Hands:
    """A driver's ledger and API: each call takes a moment, in which its process may be killed."""

    task: Task

    def __init__(self, fleet: Fleet, rng: Random) -> None:
        self._fleet, self._rng = fleet, rng

    def look(self, target: Target, *, since: float | None) -> NodeObservation:
        """As a CloudNodeApi does."""
        self._moment()
        return self._fleet.cloud.look(target, since)

    def call(self, call: ApiCall, target: Target, queued_resource: str) -> CallAnswer:  # noqa: ARG002
        """As a CloudNodeApi does."""
        self._moment()
        answer = self._fleet.cloud.call(call, target)
        self._moment()
        return answer

    def read(self, target: Target) -> Stored | None:
        """As a Ledger does."""
        self.task.check()
        return self._fleet.ledger.read(target)

    def write(self, record: RestartRecord, version: int) -> Stored:
        """As a Ledger does."""
        self.task.check()
        stored = self._fleet.ledger.write(record, version)
        self._moment()
        return stored

    def wait(self, seconds: float) -> bool:
        """As threading.Event.wait does."""
        self.task.pause(seconds)
        return False

    def _moment(self) -> None:
        self.task.pause(self._rng.uniform(0.02, 1.0))


class Watcher:
    """One daemon that watches all nodes from elsewhere."""

    def __init__(self, name: str, fleet: Fleet, rng: Random) -> None:
        self._name, self._fleet, self._rng = name, fleet, rng
        self._here = Elsewhere(name)
        self._tasks: dict[Target, Task] = {}
        self._start()

    def _start(self) -> None:
        fleet, metrics, audit = (
            self._fleet,
            Metrics(loops=[], refusals=[]),
            Unwritten(Path(), self._name, self._fleet.agenda.clock),
        )
        now = fleet.agenda.now
        self._answers: dict[str, Answer[CloudNode]] = {}
        self._versions: dict[str, int] = {}
        self._statuses: dict[str, JudgedNode] = {}
        self._candidates = Candidates(cloud_seconds=HEALTH.cloud_seconds, watching_since=now, host=self._name)
        self._acts = RestartStarter(fleet.ledger, fleet.settings, fleet.agenda.clock, self._name)
        self._sight = Sight(
            nodes=lambda: tuple(self._statuses.values()),
            snapshot=Snapshot,
            settings=fleet.settings,
            clock=fleet.agenda.clock,
            is_stopping=lambda: False,
            ask_peer=lambda _: None,
        )
        self._leases = LeaseWatch(fleet.agenda.clock, self._here.is_gone)
        self._notifier = Notifier(
            metrics=metrics,
            audit=audit,
            clock=fleet.agenda.clock,
            webhook=TakenWebhook(fleet.people.called),
        )

    def kill(self) -> None:
        """All of its drivers end at once, and what it had in memory is lost; it is started again."""
        for task in self._tasks.values():
            task.kill()
        self._tasks.clear()
        self._start()

    def turn(self) -> None:
        """Poll, judge, decide, act, and carry on what nobody drives."""
        self._poll()
        posted = Snapshot(cloud=self._answers, notices=Answer(problem=Problem.ABSENT))
        called, _ = self._candidates.update(list(self._statuses.values()), posted, self._fleet.agenda.now)
        try:
            reading = read_ledger(self._fleet.ledger)
            self._sight.update(called, reading.view)
            self._finish(reading)
            for one in called:
                if self._decided(one, reading):
                    reading = read_ledger(self._fleet.ledger)
        except LedgerError:
            return  # all of it again at the next turn
        self._notifier.end_turn({one.judged.label for one in called})

    # -- looking

    def _poll(self) -> None:
        """Ask for all nodes, a list for each zone, and judge those that are not plainly well.

        Of those that are, and were so before, only some are judged, each time others.
        """
        cloud, now = self._fleet.cloud, self._fleet.agenda.now
        sample = set(self._rng.sample(list(cloud.nodes), min(SAMPLE, len(cloud.nodes))))
        zones = sorted({one.target.zone for one in cloud.nodes.values()})
        failed = {zone for zone in zones if cloud.fails(zone)}
        for path, node in cloud.nodes.items():
            label = node_label(node.target.zone, node.target.node)
            last = self._answers.get(label)
            status = self._statuses.get(node.target.node)
            quiet = status is not None and status.judgement.action is Action.NONE and path not in sample
            if node.target.zone in failed:
                if last is None or quiet:
                    continue
                self._answers[label] = replace(last, problem=Problem.SERVER, tried=now)
            else:
                shown = self._shown(node, last, now)
                if quiet and last is not None and last.value is shown:
                    continue
                self._answers[label] = Answer(shown, now, None, "", now)
            self._judge(node)

    def _shown(self, node: Node, last: Answer[CloudNode] | None, now: float) -> CloudNode:
        """The node as the list shows it, with since when that has been so as far as was seen."""
        target, before = node.target, last.value if last is not None else None
        if before is not None and self._versions[target.node] == node.version and now - node.changed > POLL_SECONDS:
            return before
        self._versions[target.node] = node.version
        state, health = self._fleet.cloud.shown(node)
        same = before is not None and (before.state, before.health) == (state, health)
        return cloud_node(node, state, health, before.changed if same and before is not None else now)

    def _judge(self, node: Node) -> None:
        target, label = node.target, node_label(node.target.zone, node.target.node)
        answer = self._answers[label]
        judgement = judge_node(
            Evidence(label, self._fleet.agenda.now, cloud=answer, peer=self._fleet.peer(node)), HEALTH
        )
        before = self._statuses.get(target.node)
        judgement = following(before.judgement if before is not None else None, judgement)
        self._statuses[target.node] = JudgedNode(
            target.node, target.project, target.zone, own=False, judgement=judgement, cloud=answer.value
        )

    # -- acting

    def _decided(self, called: Candidate, reading: LedgerReading) -> bool:
        """Decide on one node, and do it; whether something was written."""
        fleet, record = self._fleet, reading.record(called.target)
        decision = called.decide(reading.view, fleet.settings, fleet.agenda.now)
        if decision.act is None and decision.blocked is None and budgets.under_way(record):
            return False
        begun = None
        if decision.act is not None:
            begun = self._begin(called, decision, reading)
        elif decision.opens_breaker and fleet.settings.act and self._acts.open_breaker(reading, decision.opens_breaker):
            self._notifier.notify_breaker_opened(decision.opens_breaker)
        made = begun.decision if begun is not None else decision
        self._notifier.notify_decision(called.judged.label, called.target, made, begun=begun is not None)
        return decision.act is not None or bool(decision.opens_breaker)

    def _begin(self, called: Candidate, decision: RestartDecision, reading: LedgerReading) -> Begun | None:
        fleet, hands = self._fleet, Hands(self._fleet, self._rng)
        begun = self._acts.begin(
            called.target,
            decision,
            reading,
            decide=lambda view: called.decide(view, fleet.settings, fleet.agenda.now),
            make_driver=lambda _: self._driver(called.target, hands),
            summary=called.judged.judgement.summary,
        )
        if begun is not None and begun.driver is not None:
            self._drive(called.target, begun.driver, hands, begun.version)
        return begun

    def _finish(self, reading: LedgerReading) -> None:
        """Finish what was begun and nobody drives any more."""
        fleet = self._fleet
        fleet.people.busy = {path for path, one in reading.stored.items() if budgets.under_way(one.record)}
        for stored in reading.stored.values():
            record, target = stored.record, stored.record.target
            is_mine = target in self._tasks and self._tasks[target].alive
            if not budgets.under_way(record) or is_mine or self._leases.remaining(stored) > 0:
                continue
            if record.phase not in TOUCHED and fleet.agenda.now - record.requested > REQUEST_SECONDS:
                self._acts.withdraw(stored, "Whoever had decided on it ended before anything was done.")
                continue
            hands = Hands(fleet, self._rng)
            self._drive(target, self._driver(target, hands), hands, stored.version)

    def _driver(self, target: Target, hands: Any) -> Driver:
        clock = self._fleet.agenda.clock
        return Driver(
            hands,
            target,
            api=hands,
            clock=clock,
            wait=hands.wait,
            limits=LIMITS,
            judge_again=self._sight.judge_again,
            here=self._here,
        )

    def _drive(self, target: Target, driver: LeasedDriver, hands: Hands, free: int) -> None:
        def work(task: Task) -> None:
            hands.task = task
            with contextlib.suppress(LedgerError):
                record = driver.drive(free=free)
                if not record.open:
                    self._notifier.notify_end(record, Action.RESTART_NODE)

        self._tasks[target] = self._fleet.agenda.spawn(work)
