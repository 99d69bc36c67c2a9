"""Whether something is done about a node, and what: a pure function of the evidence, the ledger and the settings.

The checks come in a fixed order, and the first that objects decides: what would be wrong whatever is allowed; what is
not proven; what it is not the time for; and last the switches, so that "observe" and "switched_off" mean that all else
would have allowed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health.verdict import DESTRUCTIVE, STUCK, Rung
from tpuwatch.health.words import capital, ended
from tpuwatch.restart.policy import budgets, objections
from tpuwatch.restart.policy.asking import has_lasted, is_alone
from tpuwatch.restart.policy.budgets import Hold
from tpuwatch.restart.policy.decision import FOR_A_PERSON, Blocked, Decision, Use
from tpuwatch.restart.policy.storm import storm

if TYPE_CHECKING:
    from tpuwatch.restart.policy.settings import Settings
    from tpuwatch.restart.policy.situation import Situation

_ACTS: Final = {
    Rung.CHECKPOINT: "ask the job for a checkpoint",
    Rung.END_HOLDER: "end the process that holds the TPU",
    Rung.RESTART_RUNTIME: "restart the runtime",
    Rung.RESTART_NODE: "stop and start the node",
    Rung.RESET_QUEUED_RESOURCE: "reset the queued resource",
    Rung.RECREATE: "create the node anew",
}

# It came to the budgets, and what is used of them belongs to the decision.
_COUNTED: Final = frozenset(
    {
        Blocked.BREAKER,
        Blocked.NEEDS_PERSON,
        Blocked.SAME_CAUSE,
        Blocked.NO_CAPACITY,
        Blocked.BACKOFF,
        Blocked.COOLDOWN,
        Blocked.NODE_BUDGET,
        Blocked.FLEET_BUDGET,
        Blocked.OBSERVE,
        Blocked.SWITCHED_OFF,
    }
)


def decide(situation: Situation, settings: Settings) -> Decision:
    """What is to be done about the node now. Same situation, same decision; never raises for what may be found."""
    rung = situation.wanted
    if rung not in _ACTS:
        return _nothing(situation, rung, settings)
    hold = _hold(situation, rung, settings)
    if hold is None:
        return _decision(situation, rung, settings, act=rung, sentence=f"Will {_ACTS[rung]}")
    sentence = f"Would {_ACTS[rung]}, but {hold.sentence}"
    return _decision(situation, rung, settings, hold=hold, sentence=sentence)


def _hold(situation: Situation, rung: Rung, settings: Settings) -> Hold | None:
    """The first reason not to do it now."""
    if rung in DESTRUCTIVE:
        return (
            objections.wrong(situation, rung, settings)
            or _busy(situation)
            or _storm(situation, settings)
            or _budget(situation, rung, settings)
            or _switch(rung, settings)
        )
    return (
        objections.wrong_to_checkpoint(situation, rung, settings)
        or _busy(situation)
        or budgets.hold_checkpoint(situation.record, settings, situation.now)
        or _switch(rung, settings)
    )


def _busy(situation: Situation) -> Hold | None:
    """No ledger to count by, or somebody is at it."""
    record = situation.record
    if situation.books is None:
        return Hold(Blocked.NO_LEDGER, "the ledger cannot be read, without which nothing is done")
    if record is None or not budgets.under_way(record):
        return None
    return Hold(Blocked.UNDER_WAY, f"a restart of it is under way ({record.phase.value})")


def _storm(situation: Situation, settings: Settings) -> Hold | None:
    why = storm(situation.crowds, settings)
    return Hold(Blocked.STORM, why) if why else None


def _budget(situation: Situation, rung: Rung, settings: Settings) -> Hold | None:
    if situation.books is None:
        return None
    cause, watched = situation.judgement.verdict.value, situation.crowds.fleet.watched
    return budgets.hold(situation.books, situation.target, rung, cause, watched, settings, situation.now)


def _switch(rung: Rung, settings: Settings) -> Hold | None:
    if not settings.act:
        return Hold(Blocked.OBSERVE, 'mode under [restart] is "observe"')
    if rung not in settings.allowed:
        return Hold(Blocked.SWITCHED_OFF, f"{rung.value} under [restart] is off")
    return None


def _nothing(situation: Situation, rung: Rung, settings: Settings) -> Decision:
    """No act is called for; at most a person, who is called once for a storm and not for each node in it."""
    if rung is Rung.ASK and situation.judgement.verdict in STUCK and (hold := _storm(situation, settings)) is not None:
        return _decision(situation, rung, settings, hold=hold, sentence=f"A person is needed: {hold.sentence}")
    if rung is Rung.ASK and has_lasted(situation, settings):
        sentence = "Nothing that tpuwatch does would help: ask a person"
        return _decision(situation, rung, settings, sentence=sentence, ask=True)
    sentence = "Nothing that tpuwatch does would help so far" if rung is Rung.ASK else "Nothing is to be done"
    if rung is Rung.FIX_PROGRAM:
        sentence = "The program has to be mended, by those who wrote it"
    return _decision(situation, rung, settings, sentence=sentence)


def _decision(
    situation: Situation,
    rung: Rung,
    settings: Settings,
    *,
    sentence: str,
    act: Rung | None = None,
    hold: Hold | None = None,
    ask: bool = False,
) -> Decision:
    judgement, seen = situation.judgement, situation.confirmation
    blocked = hold.blocked if hold is not None else None
    own = blocked is Blocked.OWN_NODE
    request = own and _requests(situation, rung, settings)
    ask = ask or blocked in FOR_A_PERSON or (own and is_alone(situation, settings, request=request))
    return Decision(
        node=judgement.node,
        at=situation.now,
        verdict=judgement.verdict.value,
        wanted=rung,
        act=act,
        blocked=blocked,
        sentence=capital(ended(sentence)),
        ask=ask,
        request=request,
        opens_breaker=hold.opens_breaker if hold is not None else "",
        retry_at=hold.until if hold is not None else None,
        witnesses=tuple(sorted(witness.value for witness in situation.heard())),
        evidence=_evidence(situation, rung),
        against=judgement.contradictions,
        held_seconds=seen.seconds if seen is not None else 0.0,
        use=_use(situation, settings) if act is not None or blocked in _COUNTED else None,
    )


def _requests(situation: Situation, rung: Rung, settings: Settings) -> bool:
    """Whether the watchers are to be asked: everything here allows it, and nothing is under way."""
    return _busy(situation) is None and _switch(rung, settings) is None


def _evidence(situation: Situation, rung: Rung) -> tuple[str, ...]:
    """Who says what; and what the node's own daemon said, where that counted."""
    told = tuple(f"{reason.witness.value}: {reason.text}" for reason in situation.judgement.reasons)
    request = situation.request
    if request is None or rung is situation.judgement.rung:
        return told
    return (*told, *(f"request of {request.actor}: {one}" for one in request.evidence))


def _use(situation: Situation, settings: Settings) -> Use | None:
    if situation.books is None:
        return None
    watched = situation.crowds.fleet.watched
    return budgets.use(situation.books, situation.target, watched, settings, situation.now)
