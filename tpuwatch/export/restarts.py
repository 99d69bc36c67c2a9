"""Restarts as JSON, and in sentences for the status page and `tpuwatch status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.words import clean, length
from tpuwatch.jsontext import times
from tpuwatch.restart.ledger.owner import told
from tpuwatch.restart.policy.decision import Blocked
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.export.view import RestartsStatus
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.record import Attempt, Record

_MOST_LINES: Final = 10  # of a kind, for people
_TEXT: Final = 300
_AT: Final = {
    Phase.REQUESTED: "is asked for",
    Phase.INTENT: "is about to begin",
    Phase.STOPPING: "stops the node",
    Phase.STOPPED: "is about to start the node",
    Phase.STARTING: "starts the node",
    Phase.VERIFYING: "looks whether the node stays well",
}


def document(status: RestartsStatus, now: float, limit: int) -> dict[str, Any]:
    """What is under way, what was, what is decided and why not: `limit` nodes of each."""
    records = sorted(status.records, key=lambda one: (not one.open, -max(one.entered, one.requested)))
    breaker = status.breaker
    return {
        **times("now", now),
        "mode": "act" if status.acts else "observe",
        **times("ledger_read", status.read),
        "ledger_problem": status.problem or None,
        "breaker": {
            "open": breaker is not None and breaker.opened is not None,
            **times("opened", breaker.opened if breaker is not None else None),
            "reason": breaker.reason if breaker is not None else "",
        },
        "restarts": [record(one) for one in records[:limit]],
        "decisions": [{"label": label, **decision(one)} for label, one in status.decisions[:limit]],
    }


def record(record: Record) -> dict[str, Any]:
    """What the ledger holds of one node."""
    target = record.target
    return {
        "node": target.node,
        "zone": target.zone,
        "project": target.project,
        "action": record.rung.value,
        "phase": record.phase.value,
        "open": record.open,
        "cause": record.cause,
        "reason": record.reason,
        "evidence": list(record.evidence),
        "witnesses": list(record.witnesses),
        "actor": record.actor,
        **times("requested", record.requested),
        **times("entered", record.entered),
        "driver": told(record.lease.owner) if record.lease.owner else None,
        "operations": list(record.operations),
        "stops": record.stops,
        "tries": record.tries,
        **times("not_before", record.not_before or None),
        "note": record.note,
        "history": [_attempt(one) for one in record.history],
    }


def decision(decision: Decision) -> dict[str, Any]:
    """What was decided on one node last."""
    return {
        **times("at", decision.at),
        "verdict": decision.verdict,
        "wanted": decision.wanted.value,
        "act": decision.act.value if decision.act is not None else None,
        "blocked": decision.blocked.value if decision.blocked is not None else None,
        "sentence": decision.sentence,
        "person_needed": decision.ask,
        **times("retry", decision.retry_at),
        "witnesses": list(decision.witnesses),
        "evidence": list(decision.evidence),
        "against": list(decision.against),
        "held_seconds": decision.held_seconds,
    }


def lines(status: RestartsStatus, now: float) -> list[str]:
    """What a person should know, a sentence each, the weightiest first; empty where there is nothing."""
    breaker = status.breaker
    told: list[str] = []
    if breaker is not None and breaker.opened is not None:
        told.append(
            f"The breaker has been open for {length(now - breaker.opened)}: tpuwatch restarts nothing by itself. "
            f"{clean(breaker.reason, _TEXT)} When that is seen to: `tpuwatch restart --reset-breaker`."
        )
    if status.problem:
        told.append(f"Nothing can be restarted: {clean(status.problem, _TEXT)}.")
    told += _cut([_under_way(one, now) for one in status.records if one.open], "restarts are under way")
    return told + _cut(list(_blocked(status.decisions)), "nodes need a person")


def _under_way(record: Record, now: float) -> str:
    what = clean(record.rung.value.replace("_", " "), 40)
    sentence = f"{clean(record.target.node, 80)}: {what} {_AT[record.phase]}, for {length(now - record.entered)}."
    return f"{sentence} {clean(record.note, _TEXT)}".rstrip()


def _blocked(decisions: Sequence[tuple[str, Decision]]) -> Iterator[str]:
    """On which nodes a person has to know what is not done."""
    for label, one in decisions:
        if one.ask and one.blocked is not None and one.blocked is not Blocked.BREAKER:
            yield f"{label}: {one.sentence}"


def _cut(sentences: list[str], what: str) -> list[str]:
    more = len(sentences) - _MOST_LINES
    if more <= 0:
        return sentences
    return [*sentences[:_MOST_LINES], f"{more} more {what}: `/api/v1/restarts` tells of them."]


def _attempt(one: Attempt) -> dict[str, Any]:
    return {
        "action": one.rung.value,
        "phase": one.phase.value,
        "cause": one.cause,
        **times("began", one.began),
        **times("ended", one.ended),
        "stops": one.stops,
        "actor": one.actor,
    }
