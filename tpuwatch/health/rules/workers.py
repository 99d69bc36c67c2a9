"""What follows from the other workers of a slice: one that has fallen silent, or is stuck by its own word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import length
from tpuwatch.health import reason
from tpuwatch.health.proposal import Proposal
from tpuwatch.health.rules.cloud import is_bad
from tpuwatch.health.slices import named
from tpuwatch.model import Action, Confidence, PeerState, RemedyStep, Verdict

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Reason, Slice, Worker

_BROKEN: Final = (Verdict.NODE_STUCK, Verdict.RUNTIME_STUCK)  # a job that is stuck may wait for another worker
_STEPS: Final = (RemedyStep.STATUS, RemedyStep.DESCRIBE)


def lost(facts: Facts) -> Proposal | None:
    """A worker is lost, the cloud has nothing against the node, and nothing shows that the slice works all the same.

    What a worker says accuses itself alone. Nothing that interrupts is advised on it.
    """
    peer = facts.peer_verdict
    if facts.works or is_bad(facts) or (peer is not None and peer.verdict is Verdict.HEALTHY):
        return None
    whole = facts.slice
    return None if whole is None else _silent(whole, facts) or _broken(whole, facts)


def _silent(whole: Slice, facts: Facts) -> Proposal | None:
    seconds = facts.limits.silent_seconds
    silent = [one for one in whole.those(PeerState.SILENT) if facts.is_older(one.silent_since, seconds)]
    if not silent:
        return None
    since = max(facts.age(one.silent_since) or 0.0 for one in silent)
    summary = (
        f"{named(silent)} of {whole.hosts} {'has' if len(silent) == 1 else 'have'} been silent for {length(since)}"
    )
    reasons = tuple(reason.worker_silent(facts, one) for one in silent[:3])
    answering = any(not one.own for one in whole.those(PeerState.ANSWERING))
    if answering or (facts.own and facts.cloud is not None):
        summary += ", while others answer." if answering else ", while the cloud answers."
        return _of(silent[0], Verdict.NODE_STUCK, Confidence.MEDIUM, summary, reasons)
    if not facts.own:
        return None  # the whole node is silent
    summary += "; nothing shows whether that is this machine's network."
    return _of(silent[0], Verdict.UNKNOWN, Confidence.LOW, summary, reasons)


def _broken(whole: Slice, facts: Facts) -> Proposal | None:
    for one in whole.those(PeerState.ANSWERING):
        if one.own or one.verdict not in _BROKEN or (one.number == 0 and not facts.own):
            continue  # of a node that is watched from elsewhere the first worker's word is its own rule's
        said = reason.worker_verdict(facts, one)
        if said is not None:
            summary = f"Worker {one.number} of {whole.hosts} reports: {one.summary}"
            return _of(one, one.verdict, Confidence.MEDIUM, summary, (said,))
    return None


def _of(
    worker: Worker, verdict: Verdict, confidence: Confidence, summary: str, reasons: tuple[Reason, ...]
) -> Proposal:
    return Proposal(verdict, confidence, Action.MANUAL, summary, reasons, _STEPS, worker=worker.number)
