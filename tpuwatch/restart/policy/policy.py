"""Whether something is done about a node, and what: a pure function of the evidence, the ledger and the settings.

The checks come in a fixed order, and the first that objects decides: what would be wrong whatever is allowed; what is
not proven; what it is not the time for; and last the switches, so that "observe" and "switched_off" mean that all else
would have allowed it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, ended
from tpuwatch.model import DESTRUCTIVE, FOR_OPERATOR, STUCK, Action, Blocked, Grounds, RestartDecision, Use
from tpuwatch.restart.policy import budgets, objections
from tpuwatch.restart.policy.budgets import Hold
from tpuwatch.restart.policy.mass_failure import mass_failure
from tpuwatch.restart.policy.objections import has_lasted, is_alone

if TYPE_CHECKING:
    from tpuwatch.restart.policy.settings import PolicySettings
    from tpuwatch.restart.policy.situation import RestartSituation

_ACTS: Final = {
    Action.CHECKPOINT: "ask the job for a checkpoint",
    Action.END_HOLDER: "end the process that holds the TPU",
    Action.RESTART_RUNTIME: "restart the runtime",
    Action.RESTART_NODE: "stop and start the node",
    Action.RESET_QUEUED_RESOURCE: "reset the queued resource",
    Action.RECREATE: "recreate the node",
}

# It came to the budgets, and what is used of them belongs to the decision.
_COUNTED: Final = frozenset(
    {
        Blocked.BREAKER,
        Blocked.NEEDS_OPERATOR,
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


def decide(situation: RestartSituation, settings: PolicySettings) -> RestartDecision:
    """What is to be done about the node now. Same situation, same decision; never raises for what may be found."""
    action = situation.wanted
    if action not in _ACTS:
        return _nothing(situation, action, settings)
    hold = _hold(situation, action, settings)
    if hold is None:
        return _decision(situation, action, settings, act=action, sentence=f"Will {_ACTS[action]}")
    sentence = f"Would {_ACTS[action]}, but {hold.sentence}"
    return _decision(situation, action, settings, hold=hold, sentence=sentence)


def _hold(situation: RestartSituation, action: Action, settings: PolicySettings) -> Hold | None:
    """The first reason not to do it now."""
    if action in DESTRUCTIVE:
        return (
            objections.first_objection(situation, action, settings)
            or _busy(situation)
            or _clock(situation)
            or mass_failure_hold(situation, settings)
            or _budget(situation, action, settings)
            or switch_hold(action, settings)
        )
    return (
        objections.checkpoint_objection(situation, action, settings)
        or _busy(situation)
        or budgets.hold_checkpoint(situation.record, settings, situation.now, situation.created)
        or switch_hold(action, settings)
    )


def _busy(situation: RestartSituation) -> Hold | None:
    """The ledger cannot be used, or a restart is under way."""
    record = situation.record
    if situation.ledger is None:
        why = situation.ledger_problem
        return Hold(Blocked.NO_LEDGER, f"the ledger of restarts is DOWN{f': {why}' if why else ''}")
    if record is None or not budgets.under_way(record):
        return None
    return Hold(Blocked.UNDER_WAY, f"a restart of it is under way ({record.phase.value})")


def _clock(situation: RestartSituation) -> Hold | None:
    if situation.clock:
        return Hold(Blocked.CLOCK, f"{situation.clock}, and budgets count as used up until it is right")
    return None


def mass_failure_hold(situation: RestartSituation, settings: PolicySettings) -> Hold | None:
    """Many nodes are bad at once."""
    why = mass_failure(situation.bad_counts, settings)
    return Hold(Blocked.STORM, why) if why else None


def _budget(situation: RestartSituation, action: Action, settings: PolicySettings) -> Hold | None:
    if situation.ledger is None:
        return None
    cause, watched = situation.judgement.verdict.value, situation.bad_counts.fleet.watched
    return budgets.hold(
        situation.ledger, situation.target, action, cause, watched, settings, situation.now, situation.created
    )


def switch_hold(action: Action, settings: PolicySettings) -> Hold | None:
    """The configuration does not allow it."""
    if not settings.act:
        return Hold(Blocked.OBSERVE, 'mode under [restart] is "observe"')
    if action not in settings.allowed:
        return Hold(Blocked.SWITCHED_OFF, f"{action.value} under [restart] is off")
    return None


def _nothing(situation: RestartSituation, action: Action, settings: PolicySettings) -> RestartDecision:
    """No act is called for; at most an operator, who is called once for a mass failure and not for each node in it."""
    if (
        action is Action.MANUAL
        and situation.judgement.verdict in STUCK
        and (hold := mass_failure_hold(situation, settings)) is not None
    ):
        return _decision(situation, action, settings, hold=hold, sentence=f"Manual action is needed: {hold.sentence}")
    if action is Action.MANUAL and has_lasted(situation, settings):
        steps = [one.do for one in situation.judgement.remedy[:1]]
        sentence = f"An operator is needed: {' '.join([ended(situation.judgement.summary), *steps])}"
        return _decision(situation, action, settings, sentence=sentence, needs_operator=True)
    sentence = "No action of tpuwatch would help so far" if action is Action.MANUAL else "Nothing is to be done"
    if action is Action.FIX_PROGRAM:
        sentence = "The program has to be fixed by its authors"
    return _decision(situation, action, settings, sentence=sentence)


def _decision(
    situation: RestartSituation,
    action: Action,
    settings: PolicySettings,
    *,
    sentence: str,
    act: Action | None = None,
    hold: Hold | None = None,
    needs_operator: bool = False,
) -> RestartDecision:
    judgement, seen = situation.judgement, situation.confirmation
    blocked = hold.blocked if hold is not None else None
    own = blocked is Blocked.OWN_NODE
    request = own and _requests(situation, action, settings)
    needs_operator = (
        needs_operator or blocked in FOR_OPERATOR or (own and is_alone(situation, settings, request=request))
    )
    return RestartDecision(
        node=judgement.node,
        at=situation.now,
        verdict=judgement.verdict.value,
        wanted=action,
        act=act,
        blocked=blocked,
        sentence=capital(ended(sentence)),
        needs_operator=needs_operator,
        request=request,
        opens_breaker=hold.opens_breaker if hold is not None else "",
        retry_at=hold.until if hold is not None else None,
        signals=tuple(sorted(signal.value for signal in situation.supporting_signals())),
        sources=tuple(sorted(source.value for source in situation.supporting_sources())),
        evidence=_evidence(situation, action),
        against=judgement.contradictions,
        held_seconds=seen.seconds if seen is not None else 0.0,
        grounds=_grounds(situation, action),
        use=_use(situation, settings) if act is not None or blocked in _COUNTED else None,
    )


def _requests(situation: RestartSituation, action: Action, settings: PolicySettings) -> bool:
    """Whether the watchers are to be asked: everything here allows it, and nothing is under way."""
    return _busy(situation) is None and switch_hold(action, settings) is None


def _evidence(situation: RestartSituation, action: Action) -> tuple[str, ...]:
    """The judgement's reasons, and those of the request where it counted."""
    reasons = tuple(f"{reason.signal.value}: {reason.text}" for reason in situation.judgement.reasons)
    request = situation.request
    if request is None or action is situation.judgement.action:
        return reasons
    return (*reasons, *(f"request of {request.actor}: {one}" for one in request.evidence))


def _grounds(situation: RestartSituation, action: Action) -> Grounds:
    """What the action would be begun on, with the request's evidence where it counted."""
    judgement, request = situation.judgement, situation.request
    grounds = Grounds(judgement.verdict.value, judgement.action, judgement.at)
    if request is None:
        return grounds
    grounds = replace(grounds, requester=request.actor)
    if action is judgement.action:
        return grounds
    return replace(grounds, requested=request.requested, sources=request.sources)


def _use(situation: RestartSituation, settings: PolicySettings) -> Use | None:
    if situation.ledger is None:
        return None
    watched = situation.bad_counts.fleet.watched
    return budgets.use(situation.ledger, situation.target, watched, settings, situation.now, situation.created)
