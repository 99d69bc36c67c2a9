"""Those who watch a fleet: the real judge, policy, budgets and driver, on the cloud of `fleet_cloud`.

A watcher sees what the API lists, and nothing else. A node's own daemon sees its runtime too, and may only ask. Both
keep in memory what the real ones keep in memory, and lose it when they are killed.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chaos.fleet_cloud import Ail
from tpuwatch.health.evidence import (
    Answer,
    Chip,
    CloudNode,
    Evidence,
    Holder,
    Host,
    Identity,
    Known,
    Logs,
    Notices,
    Problem,
    Runtime,
    RuntimePort,
)
from tpuwatch.health.judge import judge
from tpuwatch.health.limits import Limits as HealthLimits
from tpuwatch.health.verdict import Rung
from tpuwatch.restart import budgets
from tpuwatch.restart.budgets import Books
from tpuwatch.restart.confirm import Confirmation, confirm
from tpuwatch.restart.executor import Driver
from tpuwatch.restart.ledger import LedgerError, StoredFleet
from tpuwatch.restart.owner import LeaseWatch, Owner, ThisMachine
from tpuwatch.restart.policy import decide
from tpuwatch.restart.record import Phase, Record
from tpuwatch.restart.sights import Limits
from tpuwatch.restart.situation import Situation
from tpuwatch.restart.storm import Crowd, Crowds, crowds

if TYPE_CHECKING:
    from random import Random

    from chaos.fleet_cloud import Cloud, Node
    from chaos.fleet_ledger import FleetLedger
    from chaos.fleet_story import People
    from chaos.fleet_time import Agenda, Task
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.restart.decision import Decision
    from tpuwatch.restart.ledger import Stored
    from tpuwatch.restart.record import Fleet, Target
    from tpuwatch.restart.settings import Settings
    from tpuwatch.restart.sights import Call, CallAnswer, Sight

POLL_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 300.0  # between two requests of a node's own daemon
SAMPLE: Final = 5  # of the nodes that are well, which are judged anew at each turn
LIMITS: Final = Limits()
HEALTH: Final = HealthLimits()
T = TypeVar("T")
# In these a node's own daemon lives and sees its runtime.
_SEEN_INSIDE: Final = frozenset({Ail.HANGS, Ail.SICK, Ail.BROKEN, Ail.PASSES, Ail.LIE})


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
        """Nobody can tell."""
        return False


class Hands:
    """A driver's ledger and API: each call takes a moment, in which its process may be killed."""

    def __init__(self, task: Task, cloud: Cloud, ledger: FleetLedger, dice: Random) -> None:
        self._task, self._cloud, self._ledger, self._dice = task, cloud, ledger, dice

    def look(self, target: Target, *, since: float) -> Sight:
        """As a NodeApi does."""
        self._moment()
        return self._cloud.look(target, since)

    def call(self, call: Call, target: Target, queued_resource: str) -> CallAnswer:  # noqa: ARG002
        """As a NodeApi does."""
        self._moment()
        answer = self._cloud.call(call, target)
        self._moment()
        return answer

    def read(self, target: Target) -> Stored | None:
        """As a Ledger does."""
        self._task.check()
        return self._ledger.read(target)

    def write(self, record: Record, version: int) -> Stored:
        """As a Ledger does."""
        self._task.check()
        stored = self._ledger.write(record, version)
        self._moment()
        return stored

    def records(self) -> list[Stored]:
        """As a Ledger does."""
        return self._ledger.records()

    def fleet(self) -> StoredFleet:
        """As a Ledger does."""
        return self._ledger.fleet()

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """As a Ledger does."""
        return self._ledger.write_fleet(fleet, version)

    def close(self) -> None:
        """Nothing is held."""

    def wait(self, seconds: float) -> bool:
        """As threading.Event.wait does."""
        self._task.pause(seconds)
        return False

    def _moment(self) -> None:
        self._task.pause(self._dice.uniform(0.02, 1.0))


class Watcher:
    """One daemon that watches all nodes from elsewhere."""

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        cloud: Cloud,
        ledger: FleetLedger,
        people: People,
        dice: Random,
        settings: Settings,
    ) -> None:
        self._name, self._agenda, self._cloud, self._ledger = name, agenda, cloud, ledger
        self._people, self._dice, self._settings = people, dice, settings
        self._here = Elsewhere(name)
        self._drivers: dict[Target, Task] = {}
        self._start()

    def _start(self) -> None:
        self._born = self._agenda.now
        self._answers: dict[str, Answer[CloudNode]] = {}
        self._versions: dict[str, int] = {}
        self._up: dict[str, float] = {}  # since when it has been shown READY
        self._judged: dict[str, Judgement] = {}
        self._seen: dict[str, Confirmation] = {}
        self._told: dict[str, tuple[object, ...]] = {}
        self._leases = LeaseWatch(self._agenda.clock, self._here.is_gone)

    def kill(self) -> None:
        """All of its drivers end at once; what it had in memory is lost."""
        for task in self._drivers.values():
            task.kill()
        self._drivers.clear()
        self._start()

    # -- a turn

    def turn(self) -> None:
        """Poll, judge, decide, act, and carry on what nobody drives."""
        worth = self._poll()
        for path in worth:
            self._judge(path)
        known = self._judged.items()
        everywhere = crowds(
            (self._cloud.nodes[path].target.zone, one, self._answers[path].value) for path, one in known
        )
        books = self._books()
        for path in worth:
            decision = self._decide(path, books, everywhere)
            if decision.ask and self._told.get(path) != decision.key:
                self._people.ask(self._cloud.nodes[path], decision)
            self._told[path] = decision.key
            if decision.opens_breaker and books is not None:
                self._open_breaker(decision.opens_breaker)
                books = self._books()
            if decision.act is not None:
                self._act(path, decision)
                books = self._books()
        self._carry_on()

    def _poll(self) -> list[str]:
        """Ask for all nodes, a list for each zone; the paths of those that are to be judged now.

        Of nodes that are plainly well, and were so before, only some are, each time others.
        """
        now, worth = self._agenda.now, set(self._dice.sample(list(self._cloud.nodes), SAMPLE))
        failed = {zone for zone in sorted({one.target.zone for one in self._cloud.nodes.values()}) if self._fails(zone)}
        for path, node in self._cloud.nodes.items():
            last = self._answers.get(path)
            if node.target.zone in failed:
                if last is not None and path in self._told:
                    self._answers[path] = replace(last, problem=Problem.SERVER, tried=now)
                    worth.add(path)
                worth -= {path} if last is None else set()
                continue
            told = self._shown(node, last, now)
            if last is None or last.value is not told or path in worth or path in self._told:
                self._answers[path] = Answer(told, now, None, "", now)
                worth.add(path)
        return sorted(worth)

    def _fails(self, zone: str) -> bool:
        return self._cloud.fails(zone)

    def _shown(self, node: Node, last: Answer[CloudNode] | None, now: float) -> CloudNode:
        """The node as the list shows it, with since when that has been so as far as was seen."""
        target, before = node.target, last.value if last is not None else None
        if before is not None and self._versions[target.path] == node.version and now - node.changed > POLL_SECONDS:
            return before
        self._versions[target.path] = node.version
        state, health = self._cloud.shown(node)
        if state != "READY":
            self._up.pop(target.path, None)
        else:
            self._up.setdefault(target.path, now)
        same = before is not None and (before.state, before.health) == (state, health)
        return cloud_node(node, state, health, before.changed if same and before is not None else now)

    def _judge(self, path: str) -> None:
        node, now = self._cloud.nodes[path], self._agenda.now
        identity = Identity(project=Known(node.target.project, "config"), zone=Known(node.target.zone, "config"))
        evidence = Evidence(node.target.node, now, identity=identity, cloud=self._answers[path])
        judgement = self._judged[path] = judge(evidence, HEALTH)
        self._seen[path] = confirm(self._seen.get(path), judgement)

    def _decide(self, path: str, books: Books | None, everywhere: dict[str, Crowds]) -> Decision:
        node, now = self._cloud.nodes[path], self._agenda.now
        decision = decide(
            Situation(
                target=node.target,
                judgement=self._judged[path],
                confirmation=self._seen[path],
                now=now,
                cloud=self._answers[path].current(now, HEALTH.cloud_seconds),
                own=False,
                up_since=self._up.get(path),
                crowds=everywhere[node.target.zone],
                books=books,
                watching_since=self._born,
            ),
            self._settings,
        )
        plainly_well = decision.wanted is Rung.NOTHING
        if plainly_well:
            self._told.pop(path, None)
        return decision

    # -- the ledger

    def _books(self) -> Books | None:
        try:
            fleet = self._ledger.fleet()
            records = self._ledger.records()
        except LedgerError:
            return None
        self._fleet = fleet
        self._stored = {one.record.target.path: one for one in records}
        self._people.busy = {path for path, one in self._stored.items() if budgets.under_way(one.record)}
        return Books({path: one.record for path, one in self._stored.items()}, fleet.fleet)

    def _open_breaker(self, why: str) -> None:
        with contextlib.suppress(LedgerError):
            opened = budgets.opened(self._fleet.fleet, why, self._agenda.now)
            self._ledger.write_fleet(opened, self._fleet.version)
            self._people.breaker(self._ledger)

    def _act(self, path: str, decision: Decision) -> None:
        """Claim a share of the budgets, record it, and drive it."""
        node, now, before = self._cloud.nodes[path], self._agenda.now, self._stored.get(path)
        books = Books({one: stored.record for one, stored in self._stored.items()}, self._fleet.fleet)
        rung = decision.act or decision.wanted
        record = Record(
            target=node.target,
            rung=rung,
            phase=Phase.REQUESTED,
            cause=decision.verdict,
            reason=decision.sentence,
            evidence=decision.evidence,
            actor=self._name,
            requested=now,
            entered=now,
            began=now,
            witnesses=decision.witnesses,
            history=before.record.history if before is not None else (),
        )
        try:
            claimed = budgets.claimed(books, node.target, self._settings, now)
            self._ledger.write_fleet(claimed, self._fleet.version)
            self._ledger.write(record, before.version if before is not None else 0)
        except LedgerError:
            return  # it is decided anew at the next turn
        self._drive(node.target)

    def _carry_on(self) -> None:
        """Take up what is under way and nobody drives any more."""
        if self._books() is None:
            return
        for stored in list(self._stored.values()):
            target = stored.record.target
            mine = target in self._drivers and self._drivers[target].alive
            if budgets.under_way(stored.record) and not mine and self._leases.remaining(stored) <= 0:
                self._drive(target)

    def _drive(self, target: Target) -> None:
        def work(task: Task) -> None:
            hands: Any = Hands(task, self._cloud, self._ledger, self._dice)
            clock = self._agenda.clock
            driver = Driver(hands, hands, target, clock=clock, wait=hands.wait, limits=LIMITS, here=self._here)
            with contextlib.suppress(LedgerError):
                driver.drive()

        self._drivers[target] = self._agenda.spawn(work)


class Insides:
    """The own daemons of those nodes whose guest lives and whose runtime has stopped: they may only ask."""

    def __init__(self, agenda: Agenda, cloud: Cloud, ledger: FleetLedger, settings: Settings) -> None:
        self._agenda, self._cloud, self._ledger, self._settings = agenda, cloud, ledger, settings
        self._seen: dict[tuple[str, int], Confirmation] = {}
        self._changed: dict[tuple[str, str, str], float] = {}
        self.requests = 0

    def turn(self) -> None:
        """Judge, and ask where that is due."""
        for node in self._cloud.nodes.values():
            if node.ail in _SEEN_INSIDE and node.state == "READY" and not self._cloud.fails(node.target.zone):
                self._one(node)

    def _one(self, node: Node) -> None:
        now, key = self._agenda.now, (node.target.path, node.episode)
        told = cloud_node(node, node.state, node.health, max(node.changed, node.booted))
        judgement = judge(inside(node, told, now), HEALTH)
        self._seen[key] = confirm(self._seen.get(key), judgement)
        try:
            fleet = self._ledger.fleet().fleet
            stored = self._ledger.read(node.target)
        except LedgerError:
            return
        record = stored.record if stored is not None else None
        decision = decide(
            Situation(
                target=node.target,
                judgement=judgement,
                confirmation=self._seen[key],
                now=now,
                cloud=told,
                own=True,
                up_since=node.booted,
                crowds=Crowds(Crowd(1, 1), Crowd(1, 1)),
                books=Books({} if record is None else {node.target.path: record}, fleet),
                watching_since=node.booted,
            ),
            self._settings,
        )
        recent = record is not None and budgets.is_request(record) and now - record.requested < AGAIN_SECONDS
        if decision.request and not recent:
            self._request(node, decision, stored)

    def _request(self, node: Node, decision: Decision, stored: Stored | None) -> None:
        now = self._agenda.now
        record = Record(
            target=node.target,
            rung=decision.wanted,
            phase=Phase.REQUESTED,
            cause=decision.verdict,
            reason=decision.sentence,
            evidence=decision.evidence,
            actor=node.target.node,
            requested=now,
            entered=now,
            witnesses=decision.witnesses,
            history=stored.record.history if stored is not None else (),
        )
        with contextlib.suppress(LedgerError):
            self._ledger.write(record, stored.version if stored is not None else 0)
            self.requests += 1


def cloud_node(node: Node, state: str, health: str, changed: float) -> CloudNode:
    """The node as a witness tells of it."""
    return CloudNode(
        node.target.project,
        node.target.zone,
        node.target.node,
        state,
        health,
        accelerator="v5litepod-4",
        hosts=node.hosts,
        spot=node.spot,
        queued_resource=node.queued_resource,
        maintenance=node.maintenance,
        changed=changed,
    )


def inside(node: Node, told: CloudNode, now: float) -> Evidence:
    """What a node's own daemon sees: a job that works, or a runtime that takes connections and does not answer."""
    if node.works:
        port, cores = RuntimePort(8431, (Chip("0", 9 << 30, 16 << 30, 0.9, 0.5),)), 3.0
    else:
        port, cores = RuntimePort(8431, problem=Problem.TIMEOUT, since=node.ails_since), 0.01
    holder = Holder(4711, "alice", "python train.py", node.booted + 60.0, ("/dev/vfio/0",), cpu_cores=cores)
    host = Host("boot", node.booted, (holder,), lock_file=True, cpu_busy=cores / 240, cores=240)
    target = node.target
    names = {"project": target.project, "zone": target.zone, "node": target.node, "hosts": str(node.hosts)}
    known = {name: Known(value, "metadata") for name, value in names.items()}
    return Evidence(
        target.node,
        now,
        own=True,
        identity=Identity(**known, accelerator=Known("v5litepod-4", "metadata")),
        cloud=_heard(told, now),
        runtime=_heard(Runtime((port,)), now),
        host=_heard(host, now),
        logs=_heard(Logs(), now),
        notices=_heard(Notices(), now),
        monitoring=Answer(problem=Problem.OFF),
    )


def _heard(value: T, now: float) -> Answer[T]:
    return Answer(value, now, None, "", now)
