"""Restarts as the daemon reports them, for those who may not read the ledger: /api/v1/restarts as the data that the
ledger itself gives.

Functions raise LookupError, TypeError or ValueError for a document that is not one of this version's daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpuwatch.core import TpuwatchError
from tpuwatch.model import Action, Attempt, Breaker, Phase, RestartBudget, RestartRecord, Target
from tpuwatch.restart.operator.restarts import LedgerStatus, PastRestart, RestartState, past_restarts, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def reported_status(document: Mapping[str, Any], targets: Sequence[Target], now: float) -> LedgerStatus:
    """What the ledger held of these nodes, or of all, when the daemon read it last.

    Raises TpuwatchError if it never did.
    """
    budget, breaker = document["budget"], document["breaker"]
    if budget is None:
        problem = document["ledger_problem"] or "It has only just begun; ask again in a moment."
        raise TpuwatchError(f"the daemon has not read the ledger yet. {problem}")
    since = now - budget["node_window_seconds"]
    return LedgerStatus(
        breaker=Breaker(opened=breaker["opened_epoch"], reason=breaker["reason"]),
        budget=RestartBudget(**budget),
        restarts=[_state(one, since) for one in document["restarts"] if not targets or _target(one) in targets],
        ledger_problem=document["ledger_problem"] or "",
    )


def reported_history(document: Mapping[str, Any], targets: Sequence[Target]) -> list[PastRestart]:
    """All restarts of these nodes, or of all, that have ended, the latest first, as far as the daemon has read them."""
    return past_restarts(records_of(map(_record, document["restarts"]), targets), targets)


def _state(document: Mapping[str, Any], since: float) -> RestartState:
    record = _record(document)
    needs_operator = record.phase is Phase.NEEDS_OPERATOR and record.entered > since
    return RestartState(record, document["driver"] or "", bool(document["driver_ended"]), needs_operator)


def _record(document: Mapping[str, Any]) -> RestartRecord:
    return RestartRecord(
        target=_target(document),
        action=Action(document["action"]),
        phase=Phase(document["phase"]),
        cause=document["cause"],
        reason=document["reason"],
        evidence=tuple(document["evidence"]),
        actor=document["actor"],
        requested=document["requested_epoch"],
        entered=document["entered_epoch"],
        operations=tuple(document["operations"]),
        tries=document["tries"],
        failure=document["failure"],
        not_before=document["not_before_epoch"] or 0.0,
        stops=document["stops"],
        began=document["began_epoch"] or 0.0,
        signals=tuple(document["signals"]),
        sources=tuple(document["sources"]),
        note=document["note"],
        history=tuple(map(_attempt, document["history"])),
    )


def _attempt(document: Mapping[str, Any]) -> Attempt:
    return Attempt(
        action=Action(document["action"]),
        cause=document["cause"],
        began=document["began_epoch"],
        ended=document["ended_epoch"],
        phase=Phase(document["phase"]),
        stops=document["stops"],
        actor=document["actor"],
        reason=document["reason"],
        note=document["note"],
    )


def _target(document: Mapping[str, Any]) -> Target:
    return Target(document["project"], document["zone"], document["node"])
