"""What holds of a node while nothing shows how it is: a bad verdict stays, as the last known one.

That nobody could look clears no fault. A signal that is lost keeps its last answer: a bad verdict stays as long as the
judge, with that answer beside what the other signals report now, still comes to a bad one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import capital, clean, ended, length
from tpuwatch.health import reason
from tpuwatch.model import WELL, Action, Answer, Confidence, Judgement, Problem, Signal, Source, Unseen, Verdict

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.proposal import Proposal
    from tpuwatch.model import Evidence, Peer

ON_THE_NODE: Final = frozenset(signal for signal in Signal if signal.row.source is not Source.CLOUD)
_HARMLESS: Final = frozenset({Action.NONE, Action.WAIT, Action.FIX_PROGRAM})
_DETAIL: Final = 1000  # characters: it ends with a command to run
_NOTHING_TO_ASK: Final = frozenset({Problem.OFF, Problem.ABSENT, Problem.GONE})


def unseen_by_cloud(proposal: Proposal, facts: Facts) -> Unseen | None:
    """Why the node is unknown, where the Cloud TPU API alone could show how it is, and gives no answer."""
    answer = facts.evidence.cloud
    if proposal.verdict is not Verdict.UNKNOWN or facts.cloud is not None or answer.tried is None:
        return None
    if answer.problem in _NOTHING_TO_ASK or facts.outside_cloud:
        return None
    if any(one.signal is not Signal.CLOUD for one in proposal.reasons):
        return None
    return _unseen(Signal.CLOUD, facts)


def lost_sight(seen: Judgement, facts: Facts) -> Unseen | None:
    """The first signal on which the bad verdict rests, and that gives no answer any more."""
    lost = (one.signal for one in seen.reasons if _is_lost(one.signal, seen, facts))
    return next((_unseen(signal, facts) for signal in lost), None)


def as_last_seen(seen: Judgement, facts: Facts) -> Evidence | None:
    """The evidence with the last answers of the lost signals that the bad verdict rests on, as of the time when it was
    `seen`; None where one of them has none, as after a restart of tpuwatch, or where it was that there is no node."""
    at, answers = seen.at, dict[str, Any]()
    for signal in {one.signal for one in seen.reasons if _is_lost(one.signal, seen, facts)}:
        value = facts.evidence.answer(signal).value
        if signal is Signal.CLOUD and facts.peer_verdict is not None and facts.peer_verdict.verdict in WELL:
            continue  # a node whose own tpuwatch calls it well is so, whatever the cloud said before
        if value is None or (signal is Signal.CLOUD and seen.verdict is Verdict.GONE):
            return None
        if signal is Signal.PEER and not _rests_on_silence(seen):
            value = _answering(value, at)
        answers[signal.field] = Answer(value, at, None, "", at)
    return replace(facts.evidence, now=at, **answers)


def last_known(seen: Judgement, now: Judgement, unseen: Unseen) -> Judgement:
    """The bad verdict that was `seen`, as the last known one, with what is missing and what to do `now`.

    It is evidence of the past: nothing that interrupts is advised on it, and its processes may have ended.
    """
    since_then = f"Since then {reason.failure(unseen.signal, unseen.problem)}."
    return replace(
        seen,
        confidence=Confidence.LOW,
        action=seen.action if seen.action in _HARMLESS else Action.MANUAL,
        summary=f"Last known {length(max(0.0, now.at - seen.at))} ago: {ended(seen.summary)} {since_then}",
        contradictions=now.contradictions,
        missing=now.missing if any(unseen.detail in one for one in now.missing) else (unseen.detail, *now.missing),
        remedy=now.remedy,
        pids=(),
        unseen=unseen,
    )


def _is_lost(signal: Signal, seen: Judgement, facts: Facts) -> bool:
    """Whether the signal should report on the node, as it did when the bad verdict was `seen`, and does not."""
    answer = facts.evidence.answer(signal)
    if answer.problem is Problem.OFF:
        return False
    if signal is Signal.CLOUD:
        if seen.verdict is Verdict.GONE:  # its last good answer is of before that
            return answer.problem not in (None, *_NOTHING_TO_ASK)
        return facts.cloud is None and not facts.is_gone and answer.problem is not Problem.ABSENT
    if signal is Signal.PEER:
        return not facts.own and facts.peer_verdict is None
    if signal.row.local and not facts.own:
        return False
    if signal.row.of_program and answer.problem is Problem.ABSENT:
        return facts.host is None or bool(facts.holders)  # without a program there is nothing to ask
    return getattr(facts, signal.field) is None


def _unseen(signal: Signal, facts: Facts) -> Unseen:
    answer = facts.evidence.answer(signal)
    problem = answer.problem or Problem.TIMEOUT  # it is too old, or the node's own tpuwatch has fallen silent
    detail = clean(answer.detail, _DETAIL) if answer.detail.strip() else capital(reason.failure(signal, problem))
    return Unseen(signal, problem, ended(detail))


def _rests_on_silence(seen: Judgement) -> bool:
    """Whether the node's own tpuwatch was silent then: that is what speaks for the verdict."""
    return any(one.signal is Signal.PEER and Source.NETWORK in one.sources for one in seen.reasons)


def _answering(peer: Peer, at: float) -> Peer:
    """The node's own tpuwatch as it answered last."""
    verdict = replace(peer.verdict, age=0.0) if peer.verdict is not None else None
    return replace(peer, answered=at, verdict=verdict, silent_since=None, tries=0, refuses=False)
