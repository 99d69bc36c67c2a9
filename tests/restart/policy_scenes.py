"""What the policy's tests are made of: a node that is proven to be stuck, with everything in favour of a restart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpuwatch.health.evidence import CloudNode, Witness
from tpuwatch.health.verdict import Judgement, Reason, Rung, Sureness, Verdict
from tpuwatch.restart.policy.budgets import Books
from tpuwatch.restart.policy.confirm import Confirmation
from tpuwatch.restart.policy.settings import SWITCHED, Settings
from tpuwatch.restart.policy.situation import Situation
from tpuwatch.restart.policy.storm import Crowd, Crowds
from tpuwatch.restart.record import Attempt, Fleet, Phase, Record, Target

NOW = 1_790_000_000.0
MINUTE = 60.0
HOUR = 3600.0
DAY = 24 * HOUR
TARGET = Target("acme", "us-central2-b", "trainer")
ALL_ON = Settings(act=True, allowed=frozenset(SWITCHED))


def said(*witnesses: Witness, age: float = 5.0) -> tuple[Reason, ...]:
    return tuple(Reason(one, f"The {one.value} says so.", NOW - age) for one in witnesses)


PROVEN = said(Witness.CLOUD, Witness.RUNTIME)


def judged(
    verdict: Verdict = Verdict.NODE_STUCK,
    rung: Rung = Rung.RESTART_NODE,
    reasons: tuple[Reason, ...] = PROVEN,
    sureness: Sureness = Sureness.CERTAIN,
    **more: Any,
) -> Judgement:
    usual = {"node": TARGET.node, "at": NOW - 1, "summary": "It is stuck."}
    return Judgement(verdict=verdict, rung=rung, reasons=reasons, sureness=sureness, **{**usual, **more})


def cloud(state: str = "READY", health: str = "TIMEOUT", **more: Any) -> CloudNode:
    usual: dict[str, Any] = {"changed": NOW - HOUR}
    return CloudNode(TARGET.project, TARGET.zone, TARGET.node, state, health, **{**usual, **more})


def seen(judgement: Judgement, seconds: float = HOUR, polls: int = 100) -> Confirmation:
    at = judgement.at
    return Confirmation(judgement.verdict, judgement.rung, at - seconds, at, polls, at)


def situation(judgement: Judgement | None = None, **more: Any) -> Situation:
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
        "crowds": Crowds(Crowd(100, 1), Crowd(20, 1)),
        "books": Books(),
        "watching_since": NOW - DAY,
    }
    return Situation(**{**usual, **more})


def on_it(rung: Rung = Rung.END_HOLDER, verdict: Verdict = Verdict.JOB_STUCK, **more: Any) -> Situation:
    """The view of a node's own daemon, with everything in favour of an act on the machine."""
    reasons = said(Witness.HOST, Witness.RUNTIME, Witness.LOGS)
    judgement = more.pop("judgement", None) or judged(verdict, rung, reasons, Sureness.LIKELY)
    return situation(judgement, **{"own": True, "cloud": cloud(health="HEALTHY"), **more})


def attempt(ago: float, **more: Any) -> Attempt:
    """One that took five minutes and ended so long ago."""
    usual: dict[str, Any] = {
        "rung": Rung.RESTART_NODE,
        "cause": "operator",
        "began": NOW - ago - 5 * MINUTE,
        "ended": NOW - ago,
        "phase": Phase.DONE,
        "stops": 1,
        "actor": "watcher",
    }
    return Attempt(**{**usual, **more})


def record(phase: Phase = Phase.DONE, *history: Attempt, target: Target = TARGET, **more: Any) -> Record:
    usual: dict[str, Any] = {
        "rung": history[0].rung if history else Rung.RESTART_NODE,
        "cause": history[0].cause if history else Verdict.NODE_STUCK.value,
        "reason": "It is stuck.",
        "evidence": ("runtime: it hangs.",),
        "actor": "watcher",
        "requested": history[0].began if history else NOW - MINUTE,
        "entered": history[0].ended if history else NOW - MINUTE,
        "history": history,
    }
    return Record(target=target, phase=phase, **{**usual, **more})


def past(*history: Attempt) -> Books:
    """A ledger in which this node's record has ended with these attempts, the newest first."""
    return books(record(history[0].phase, *history))


def books(*records: Record, fleet: Fleet | None = None) -> Books:
    return Books({one.target.path: one for one in records}, fleet or Fleet())


def others(count: int, *, began_ago: float = 10 * MINUTE, **more: Any) -> tuple[Record, ...]:
    """Records of other nodes, each with one attempt."""
    one = attempt(began_ago - 5 * MINUTE, **more)
    return tuple(record(one.phase, one, target=replace(TARGET, node=f"other-{number}")) for number in range(count))
