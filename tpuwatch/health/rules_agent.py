"""What follows from the tpuwatch on a node that is watched from elsewhere: its word, and its silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health import testimony
from tpuwatch.health.case import Case
from tpuwatch.health.remedies import Step
from tpuwatch.health.rules_cloud import agrees, is_bad, is_well
from tpuwatch.health.verdict import STUCK, WELL, Rung, Sureness, Verdict
from tpuwatch.health.words import clean, length

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts

_HARMLESS: Final = frozenset({Rung.NOTHING, Rung.WAIT, Rung.FIX_PROGRAM})


def answering(facts: Facts) -> Case | None:
    """The node's own tpuwatch answers: its verdict holds, for it has more witnesses. What it can do, it does itself.

    Of what is not the machine's the cloud tells here too: maintenance, preemption, and the like.
    """
    word, said = facts.word, testimony.word(facts)
    if word is None or said is None or word.verdict not in WELL | STUCK:
        return None
    if word.verdict in STUCK:
        if is_bad(facts) and agrees(facts):
            return None  # the cloud and it make two
        reasons = testimony.told(said, testimony.cloud(facts) if is_bad(facts) else None)
        sureness = Sureness.WEAK if word.sureness is Sureness.WEAK else Sureness.LIKELY
        return Case(word.verdict, sureness, Rung.ASK, _summary(facts), reasons, (Step.STATUS,))
    if not is_well(facts):
        sureness = Sureness.LIKELY if facts.cloud is None else Sureness.WEAK
        return Case(word.verdict, sureness, Rung.WAIT, _summary(facts), (said,))
    rung = word.rung if word.rung in _HARMLESS else Rung.ASK
    steps = () if rung in (Rung.NOTHING, Rung.WAIT) else (Step.STATUS,)
    return Case(word.verdict, word.sureness, rung, _summary(facts), (said, testimony.cloud(facts)), steps)


def silent(facts: Facts) -> Case | None:
    """The node's own tpuwatch has fallen silent, and the cloud has nothing against the node."""
    gone = testimony.silent(facts)
    if gone is None or not is_well(facts):
        return None
    symptom = testimony.symptom(facts)
    if symptom is not None and facts.silent is not None:
        since = facts.age(symptom.at)
        if since is not None and since <= facts.silent + facts.limits.silent_ahead_seconds:
            summary = "The node seems to be stuck: the API names a symptom, and its own tpuwatch has fallen silent."
            steps = (Step.DESCRIBE, Step.STATUS)
            return Case(Verdict.NODE_STUCK, Sureness.LIKELY, Rung.ASK, summary, (symptom, gone), steps)
    summary = f"The node's own tpuwatch has been silent for {length(facts.silent or 0.0)}; the API says "
    summary += f"{testimony.cloud_word(facts)}."
    return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.ASK, summary, (gone,), (Step.DESCRIBE, Step.STATUS))


def _summary(facts: Facts) -> str:
    told = clean(facts.word.summary) if facts.word else ""
    return f"Its own tpuwatch says: {told}" if told else "Its own tpuwatch says so."
