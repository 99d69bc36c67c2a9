"""The restarting side of a daemon with a made-up fleet, a ledger in memory, and drivers that do nothing but end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins.memory_ledger import MemoryLedger
from tests.standins.webhook_listener import TakenWebhook
from tests.unit.restart.policy_scenes import SOURCES
from tests.unit.restart.records import record, written
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.labels import node_label
from tpuwatch.model.restart import Fleet, Lease, Phase, RestartRecord, Target
from tpuwatch.model.signals import CloudNode, Host, Identity, Known, Notices, Peer, Snapshot
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Verdict
from tpuwatch.restart import service
from tpuwatch.restart.driver_pool import DriverPool
from tpuwatch.restart.ledger.base import Stored, StoredFleet
from tpuwatch.restart.ledger.owner import ThisMachine
from tpuwatch.restart.service import RestartService
from tpuwatch.restart.workflow.step import ended

make_driver = DriverPool.make  # the real one
NOW = 1_790_000_000.0
ZONE = "us-east5-a"
BEGUN = 'tpuwatch_restarts_begun_total{action="restart_node"}'
ACT: dict[str, Any] = {
    "mode": "act",
    "end_holder": True,
    "restart_node": True,
    "startup_seconds": 0.0,
    "confirm_seconds": 0.0,
    "confirm_polls": 1,
    "storm_nodes": 100,
    "fleet_percent": 100.0,
}


def target(node: str) -> Target:
    return Target("lab", ZONE, node)


def cloud(node: str, state: str = "READY", health: str = "HEALTHY", **more: Any) -> CloudNode:
    return CloudNode("lab", ZONE, node, state, health, **{"changed": NOW - 9000, **more})


class CountingLedger(MemoryLedger):
    """Counts what it is asked for, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = 0
        self.fault = self.write_fault = ""  # of all calls, of writes
        self.before_write: Callable[[], None] = lambda: None

    def fleet(self) -> StoredFleet:
        self._check()
        self.reads += 1
        return super().fleet()

    def write(self, record: RestartRecord, version: int) -> Stored:
        self._check(self.write_fault)
        before, self.before_write = self.before_write, lambda: None
        before()
        self.writes += 1
        return super().write(record, version)

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        self._check(self.write_fault)
        self.writes += 1
        return super().write_fleet(fleet, version)

    def put(self, record: RestartRecord) -> None:
        """Whatever there was before."""
        stored = self.read(record.target)
        super().write(record, stored.version if stored is not None else 0)

    def record(self, node: str = "train-1") -> RestartRecord:
        return written(self, target(node)).record

    def _check(self, fault: str = "") -> None:
        if self.fault or fault:
            raise LedgerError(self.fault or fault)


@dataclass
class Driver:
    """Ends the record as the test requests."""

    side: Side
    target: Target
    action: Action
    lease: Lease

    has_held = True

    def drive(self, *, free: int = 0) -> RestartRecord:
        self.side.driven.append((self.target.node, self.action))
        assert self.side.go.wait(30)
        if isinstance(self.side.outcome, LedgerError):
            raise self.side.outcome
        stored = written(self.side.ledger, self.target)
        assert stored.version == free
        record = ended(stored.record, self.side.outcome, "", self.side.clock.time())
        self.side.ledger.put(replace(record, lease=Lease()))
        return record

    def close(self) -> None:
        """It holds nothing."""


@dataclass
class Side:
    """A watcher, or the machine train-0, in a fleet."""

    root: Path
    patch: pytest.MonkeyPatch
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    nodes: dict[str, JudgedNode] = field(default_factory=dict)
    posted: Snapshot = field(default_factory=Snapshot)
    driven: list[tuple[str, Action]] = field(default_factory=list)
    called: list[dict[str, Any]] = field(default_factory=list)
    outcome: Phase | LedgerError = Phase.DONE
    peers: dict[str, Peer] = field(default_factory=dict)  # what the tpuwatch on a node says when it is asked anew
    go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.ledger = CountingLedger()
        self.metrics = Metrics(loops=["restart"], refusals=[])
        self.go.set()
        self.posted = Snapshot(notices=Answer(None, None, Problem.ABSENT))

    def watch(self, **restart: Any) -> RestartService:
        """One by such a [restart]; its turns are done by the test."""
        self.patch.setattr(service, "open_ledger", lambda *_, **__: self.ledger)
        side = self

        def driver(_: object, of: Target, action: Action, *_more: object) -> Driver:
            return Driver(side, of, action, Lease("vm/boot/1/2/x", 60.0))

        self.patch.setattr(DriverPool, "make", driver)
        given = {**ACT, **restart}
        config = Config.model_validate(
            {"restart": given, "state": {"dir": self.root}, "health": {"boot_grace_seconds": 0.0}}
        )
        made = RestartService(
            config,
            nodes=lambda: tuple(self.nodes.values()),
            snapshot=lambda: self.posted,
            metrics=self.metrics,
            clock=self.clock,
            watching_since=NOW - 9000,
            progress=lambda *_: None,
            ask_peer=lambda label: self.peers.get(label),
            here=Machine(),
        )
        made._notifier._webhook = TakenWebhook(lambda document: self.called.append(dict(document)))
        return made

    def is_own(self, node: str) -> None:
        """This machine is that node."""
        known = {"node": Known(node, "metadata"), "zone": Known(ZONE, "metadata"), "project": Known("lab", "metadata")}
        host = Host("boot-1", NOW - 9000)
        self.posted = replace(
            self.posted,
            identity=Identity(**known),
            notices=Answer(Notices(), self.clock.time(), None),
            host=Answer(host, self.clock.time(), None),
        )

    def judge(
        self,
        node: str,
        verdict: Verdict = Verdict.HEALTHY,
        action: Action = Action.NONE,
        *signals: Signal,
        confidence: Confidence = Confidence.HIGH,
        shown: CloudNode | None = None,
        **more: Any,
    ) -> None:
        """The judge's latest word on a node."""
        now = self.clock.time()
        reasons = tuple(Reason(one, f"The {one.value} says so.", now, frozenset({SOURCES[one]})) for one in signals)
        before = self.nodes.get(node)
        since = before.judgement.since if before is not None and before.judgement.verdict is verdict else now
        judgement = Judgement(
            node_label(ZONE, node), verdict, now, confidence, action, "It is stuck.", reasons, since=since, **more
        )
        shown = shown or cloud(node, health="TIMEOUT" if verdict is Verdict.NODE_STUCK else "HEALTHY")
        label = node_label(ZONE, node)
        own = label == self.posted.own
        self.nodes[node] = JudgedNode(node, "lab", ZONE, own, judgement, shown)
        self.posted = replace(self.posted, cloud={**self.posted.cloud, label: Answer(shown, now, None)})

    def stuck(self, node: str) -> None:
        """It is proven here, by two signals."""
        self.judge(node, Verdict.NODE_STUCK, Action.RESTART_NODE, Signal.CLOUD, Signal.RUNTIME)

    def metric(self, series: str) -> float:
        text = self.metrics.exposition()[0].decode()
        return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{series} "))

    def needed(self) -> list[str]:
        """The series of nodes that need an operator."""
        lines = self.metrics.exposition()[0].decode().splitlines()
        return [line for line in lines if line.startswith("tpuwatch_restart_person_needed{")]

    def audited(self) -> list[tuple[str, str, str | None]]:
        try:
            lines = (self.root / "audit.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [(one["decision"], one["result"], one["blocked"]) for one in map(json.loads, lines)]


class Machine(ThisMachine):
    """Knows no process."""

    def is_gone(self, text: str) -> bool:
        return text.endswith("/gone")


def turned(watch: RestartService) -> None:
    """One turn, and all drivers to their end."""
    watch.turn()
    assert watch._drivers.join(30)


def finished(side: Side, watch: RestartService) -> RestartRecord:
    """The record, once its driver has ended it and that was reported to the service."""
    wait_for(lambda: not side.ledger.record().open, "the driver's end")
    assert watch._drivers.join(30)
    watch.turn()
    return side.ledger.record()


def half_done(node: str = "train-1", phase: Phase = Phase.STOPPED, **more: object) -> RestartRecord:
    """A restart whose driver is gone."""
    lease = Lease("other/boot/1/2/gone", 60.0)
    return replace(record(node, phase=phase, requested=NOW, entered=NOW, stops=1, lease=lease), **more)  # type: ignore[arg-type]
