"""What the policy's tests are made of: a node that is proven to be stuck, with everything in favour of a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Attempt, Fleet, Phase, RestartRecord, Target
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Source, Verdict
from tpuwatch.restart.policy.budgets import LedgerView
from tpuwatch.restart.policy.mass_failure import BadCount, BadCounts
from tpuwatch.restart.policy.settings import SWITCHED, PolicySettings
from tpuwatch.restart.policy.situation import Confirmation, RestartSituation

NOW = 1_790_000_000.0
MINUTE = 60.0
HOUR = 3600.0
DAY = 24 * HOUR
TARGET = Target("acme", "us-central2-b", "trainer")
ALL_ON = PolicySettings(act=True, allowed=frozenset(SWITCHED))


SOURCES = {
    Signal.CLOUD: Source.CLOUD,
    Signal.RUNTIME: Source.RUNTIME,
    Signal.HOST: Source.KERNEL,
    Signal.LOGS: Source.TEXT,
    Signal.METADATA: Source.CLOUD,
    Signal.KUBERNETES: Source.CLOUD,
    Signal.MONITORING: Source.CLOUD,
    Signal.PEER: Source.NETWORK,
}


def reasons_from(*signals: Signal, age: float = 5.0, idle: bool = False) -> tuple[Reason, ...]:
    """Reasons with what these signals rest on at best."""
    return tuple(
        Reason(one, f"The {one.value} says so.", NOW - age, frozenset({SOURCES[one]}), idle) for one in signals
    )


PROVEN = reasons_from(Signal.CLOUD, Signal.RUNTIME)


def judged(
    verdict: Verdict = Verdict.NODE_STUCK,
    action: Action = Action.RESTART_NODE,
    reasons: tuple[Reason, ...] = PROVEN,
    confidence: Confidence = Confidence.HIGH,
    **more: Any,
) -> Judgement:
    usual = {"node": TARGET.node, "at": NOW - 1, "summary": "It is stuck."}
    return Judgement(verdict=verdict, action=action, reasons=reasons, confidence=confidence, **{**usual, **more})


def cloud(state: str = "READY", health: str = "TIMEOUT", **more: Any) -> CloudNode:
    usual: dict[str, Any] = {"changed": NOW - HOUR}
    return CloudNode(TARGET.project, TARGET.zone, TARGET.node, state, health, **{**usual, **more})


def seen(judgement: Judgement, seconds: float = HOUR, polls: int = 100) -> Confirmation:
    at = judgement.at
    return Confirmation(judgement.verdict, judgement.action, at - seconds, at, polls, at)


def situation(judgement: Judgement | None = None, **more: Any) -> RestartSituation:
    """A watcher's view of a node that it may restart, but for what is given."""
    judgement = judgement or judged()
    usual: dict[str, Any] = {
        "target": TARGET,
        "judgement": judgement,
        "confirmation": seen(judgement),
        "now": NOW,
        "cloud": cloud(),
        "own": False,
        "up_since": NOW - DAY,
        "bad_counts": bad_counts((100, 1), (20, 1)),
        "ledger": LedgerView(),
        "watching_since": NOW - DAY,
    }
    return RestartSituation(**{**usual, **more})


def on_it(action: Action = Action.END_HOLDER, verdict: Verdict = Verdict.JOB_STUCK, **more: Any) -> RestartSituation:
    """The view of a node's own daemon, with everything in favour of an act on the machine."""
    reasons = reasons_from(Signal.HOST, Signal.RUNTIME, Signal.LOGS)
    judgement = more.pop("judgement", None) or judged(verdict, action, reasons, Confidence.MEDIUM)
    return situation(judgement, **{"own": True, "cloud": cloud(health="HEALTHY"), **more})


def attempt(ago: float, **more: Any) -> Attempt:
    """One that took five minutes and ended so long ago."""
    usual: dict[str, Any] = {
        "action": Action.RESTART_NODE,
        "cause": "operator",
        "began": NOW - ago - 5 * MINUTE,
        "ended": NOW - ago,
        "phase": Phase.DONE,
        "stops": 1,
        "actor": "watcher",
    }
    return Attempt(**{**usual, **more})


def record(phase: Phase = Phase.DONE, *history: Attempt, target: Target = TARGET, **more: Any) -> RestartRecord:
    usual: dict[str, Any] = {
        "action": history[0].action if history else Action.RESTART_NODE,
        "cause": history[0].cause if history else Verdict.NODE_STUCK.value,
        "reason": "It is stuck.",
        "evidence": ("runtime: it hangs.",),
        "actor": "watcher",
        "requested": history[0].began if history else NOW - MINUTE,
        "entered": history[0].ended if history else NOW - MINUTE,
        "history": history,
    }
    return RestartRecord(target=target, phase=phase, **{**usual, **more})


def past(*history: Attempt) -> LedgerView:
    """A ledger in which this node's record has ended with these attempts, the newest first."""
    return ledger_view(record(history[0].phase, *history))


def ledger_view(*records: RestartRecord, fleet: Fleet | None = None) -> LedgerView:
    return LedgerView({one.target.path: one for one in records}, fleet or Fleet())


def holding(*records: RestartRecord, judgement: Judgement | None = None, **more: Any) -> RestartSituation:
    """The watcher's view where the ledger holds these records."""
    return situation(judgement, ledger=ledger_view(*records), **more)


def bad_counts(fleet: tuple[int, int], zone: tuple[int, int]) -> BadCounts:
    """Of the fleet and of the zone: how many nodes are watched, and how many of them are bad."""
    return BadCounts(BadCount(*fleet), BadCount(*zone))


def others(count: int, *, began_ago: float = 10 * MINUTE, **more: Any) -> tuple[RestartRecord, ...]:
    """Records of other nodes, each with one attempt."""
    one = attempt(began_ago - 5 * MINUTE, **more)
    return tuple(record(one.phase, one, target=replace(TARGET, node=f"other-{number}")) for number in range(count))
