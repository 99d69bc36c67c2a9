"""What is to be seen on the nodes themselves: their own daemons, which may only ask, and what they answer."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from tests.proof.chaos.fleet_cloud import Ail
from tpuwatch.core.errors import LedgerError
from tpuwatch.health.judge import judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.labels import node_label
from tpuwatch.model.signals import (
    Chip,
    CloudNode,
    Holder,
    Host,
    Identity,
    Known,
    Listener,
    Logs,
    Notices,
    Peer,
    PeerVerdict,
    Runtime,
    RuntimePort,
    Snapshot,
)
from tpuwatch.restart.candidates import Candidates
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.starter import RestartStarter
from tpuwatch.signals.peers import OUTAGE_COUNT, OUTAGE_SHARE

if TYPE_CHECKING:
    from tests.proof.chaos.fleet_cloud import Cloud, Node
    from tests.proof.chaos.fleet_ledger import FleetLedger
    from tests.proof.chaos.fleet_story import People
    from tests.proof.chaos.fleet_time import Agenda
    from tpuwatch.restart.policy.settings import PolicySettings

POLL_SECONDS: Final = 30.0
HEALTH: Final = JudgeLimits()
T = TypeVar("T")
# In these a node's own daemon lives and sees its runtime.
_SEEN_INSIDE: Final = frozenset({Ail.HANGS, Ail.SICK, Ail.BROKEN, Ail.PASSES, Ail.LIE})
_SILENT: Final = frozenset({Ail.DEAD, Ail.OUTAGE})


@dataclass
class Fleet:
    """What all of them have in common."""

    agenda: Agenda
    cloud: Cloud
    ledger: FleetLedger
    people: People
    settings: PolicySettings
    words: dict[str, PeerVerdict] = field(default_factory=dict)  # of the nodes' own daemons, by path
    silent: Counter[str] = field(default_factory=Counter)  # how many of them do not answer, by zone
    sizes: Counter[str] = field(default_factory=Counter)  # how many there are

    def peer(self, node: Node) -> Answer[Peer]:
        """What a watcher has of the daemon on a node. Where many are silent at once, their silence does not count."""
        now, zone = self.agenda.now, node.target.zone
        if node.state != "READY":
            return Answer(problem=Problem.ABSENT, tried=now)
        if node.ail not in _SILENT:
            return _heard(Peer(now, self.words.get(node.target.path)), now)
        tries = int((now - node.ails_since) / POLL_SECONDS)
        for silent, all_of_them in ((self.silent[zone], self.sizes[zone]), (self.silent.total(), self.sizes.total())):
            if silent >= OUTAGE_COUNT and silent >= OUTAGE_SHARE * all_of_them:
                return Answer(problem=Problem.UNREACHABLE, tried=now)
        since = node.ails_since + POLL_SECONDS / 2 if tries else None
        return _heard(Peer(node.ails_since, silent_since=since, tries=tries), now)


class Insides:
    """The own daemons of those nodes whose guest lives while something ails it: they may only ask."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._candidates: dict[tuple[str, int], Candidates] = {}

    def turn(self) -> None:
        """Judge, and ask where that is due; take back what was asked for and is not needed any more."""
        fleet = self._fleet
        nodes = fleet.cloud.nodes.values()
        fleet.words.clear()
        fleet.sizes = Counter(one.target.zone for one in nodes)
        fleet.silent = Counter(one.target.zone for one in nodes if one.ail in _SILENT)
        for node in nodes:
            if node.ail in _SEEN_INSIDE and node.state == "READY" and not fleet.cloud.fails(node.target.zone):
                with contextlib.suppress(LedgerError):
                    self._ask(node)
        with contextlib.suppress(LedgerError):
            for stored in fleet.ledger.records():
                node = fleet.cloud.nodes[stored.record.target.path]
                if budgets.is_request(stored.record) and node.works:
                    self._acts(node).withdraw(stored, "The node is well again: nobody has to restart it.")

    def _ask(self, node: Node) -> None:
        fleet, target, now = self._fleet, node.target, self._fleet.agenda.now
        shown = cloud_node(node, node.state, node.health, max(node.changed, node.booted))
        posted = inside(node, shown, now)
        judgement = judge_node(posted.evidence(now), HEALTH)
        signals = frozenset(reason.signal for reason in judgement.reasons)
        fleet.words[target.path] = PeerVerdict(
            judgement.verdict,
            judgement.action,
            judgement.confidence,
            judgement.summary,
            signals,
            0.0,
            judgement.sources,
        )
        status = JudgedNode(target.node, target.project, target.zone, own=True, judgement=judgement, cloud=shown)
        made = Candidates(cloud_seconds=HEALTH.cloud_seconds, watching_since=node.booted, host=target.node)
        deciding = self._candidates.setdefault((target.path, node.episode), made)
        for called in deciding.update([status], posted, now)[0]:
            reading = read_ledger(fleet.ledger)
            decision = called.decide(reading.view, fleet.settings, now)
            if decision.request:
                self._acts(node).request(target, decision, reading, judgement.summary, "boot")

    def _acts(self, node: Node) -> RestartStarter:
        fleet = self._fleet
        return RestartStarter(fleet.ledger, fleet.settings, fleet.agenda.clock, node.target.node)


def cloud_node(node: Node, state: str, health: str, changed: float) -> CloudNode:
    """The node as a signal reports it."""
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


def inside(node: Node, shown: CloudNode, now: float) -> Snapshot:
    """What a node's own daemon sees: a job that works, or a runtime that takes connections and does not answer."""
    if node.works:
        port, cores = RuntimePort(8431, (Chip("0", 9 << 30, 16 << 30, 0.9, 0.5),)), 3.0
    else:
        port, cores = RuntimePort(8431, problem=Problem.TIMEOUT, since=node.ails_since), 0.01
    holder = Holder(
        4711, "alice", "python train.py", node.booted + 60.0, ("/dev/vfio/0",), cpu_cores=cores, trusted=True
    )
    listeners = (Listener(8431, node.booted + 60.0),)
    host = Host("boot", node.booted, (holder,), lock_file=True, listeners=listeners)
    target = node.target
    names = {"project": target.project, "zone": target.zone, "node": target.node, "hosts": str(node.hosts)}
    known = {name: Known(value, "metadata") for name, value in names.items()}
    return Snapshot(
        identity=Identity(**known, accelerator=Known("v5litepod-4", "metadata")),
        cloud={node_label(target.zone, target.node): _heard(shown, now)},
        runtime=_heard(Runtime((port,)), now),
        host=_heard(host, now),
        logs=_heard(Logs(), now),
        notices=_heard(Notices(), now),
        monitoring=Answer(problem=Problem.OFF),
    )


def _heard(value: T, now: float) -> Answer[T]:
    return Answer(value, now, None, "", now)
