"""What follows from the tpuwatch on a node that is watched from elsewhere: its verdict, and its silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import length
from tpuwatch.health import reason
from tpuwatch.health.proposal import Proposal
from tpuwatch.health.rules.cloud import agrees, is_bad, is_well
from tpuwatch.model import STUCK, WELL, Action, Confidence, RemedyStep, Verdict

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts

_HARMLESS: Final = frozenset({Action.NONE, Action.WAIT, Action.FIX_PROGRAM})


def answering(facts: Facts) -> Proposal | None:
    """The node's own tpuwatch answers: its verdict holds, for it has more signals. What it can do, it does itself.

    What is not the machine's own, the cloud reports here too: maintenance, preemption, and the like.
    """
    judged, first = facts.peer_verdict, reason.peer_verdict(facts)
    if judged is None or first is None or judged.verdict not in WELL | STUCK:
        return None
    if judged.verdict in STUCK:
        if is_bad(facts) and agrees(facts):
            return None  # the cloud and it make two
        reasons = reason.present(first, reason.cloud(facts) if is_bad(facts) else None)
        confidence = Confidence.LOW if judged.confidence is Confidence.LOW else Confidence.MEDIUM
        return Proposal(judged.verdict, confidence, Action.MANUAL, _summary(facts), reasons, (RemedyStep.STATUS,))
    if not is_well(facts):
        confidence = Confidence.MEDIUM if facts.cloud is None else Confidence.LOW
        return Proposal(judged.verdict, confidence, Action.WAIT, _summary(facts), (first,))
    action = judged.action if judged.action in _HARMLESS else Action.MANUAL
    steps = () if action in (Action.NONE, Action.WAIT) else (RemedyStep.STATUS,)
    return Proposal(judged.verdict, judged.confidence, action, _summary(facts), (first, reason.cloud(facts)), steps)


def silent(facts: Facts) -> Proposal | None:
    """The node's own tpuwatch has fallen silent, and the cloud has nothing against the node."""
    gone = reason.peer_silent(facts)
    if gone is None or not is_well(facts):
        return None
    symptom = reason.symptom(facts)
    if symptom is not None and facts.peer_silent is not None:
        since = facts.age(symptom.at)
        if since is not None and since <= facts.peer_silent + facts.limits.silent_ahead_seconds:
            summary = "The node seems to be stuck: the API names a symptom, and its own tpuwatch has fallen silent."
            steps = (RemedyStep.DESCRIBE, RemedyStep.STATUS)
            return Proposal(Verdict.NODE_STUCK, Confidence.MEDIUM, Action.MANUAL, summary, (symptom, gone), steps)
    summary = f"The node's own tpuwatch has been silent for {length(facts.peer_silent or 0.0)}; the API says "
    summary += f"{reason.cloud_state(facts)}."
    return Proposal(
        Verdict.UNKNOWN, Confidence.LOW, Action.MANUAL, summary, (gone,), (RemedyStep.DESCRIBE, RemedyStep.STATUS)
    )


def _summary(facts: Facts) -> str:
    summary = facts.peer_verdict.summary if facts.peer_verdict else ""
    return f"Its own tpuwatch reports: {summary}" if summary else "Its own tpuwatch reports it."
