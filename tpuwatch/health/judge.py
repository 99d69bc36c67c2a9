"""The verdict on a node: a pure function of the evidence with its times. Same evidence, same verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health import contradictions
from tpuwatch.health.facts import Facts
from tpuwatch.health.last_known import ON_THE_NODE, as_last_seen, last_known, lost_sight, unseen_by_cloud
from tpuwatch.health.proposal import Proposal, allowed_action, confidence, remedy_steps
from tpuwatch.health.remedies import remedy
from tpuwatch.health.rules import cloud, config, idle, job, peer, serving, workers
from tpuwatch.model import BAD, Action, Confidence, Held, Judgement, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.model import Evidence

SHORT_SILENCE_SECONDS: Final = 600.0  # a verdict that comes back within this time has not ceased to hold
_SILENCE: Final = (Verdict.UNKNOWN, Verdict.MISCONFIGURED)  # no signal covers the node

# The first rule that makes something of the facts decides.
RULES: Final[tuple[Callable[[Facts], Proposal | None], ...]] = (
    cloud.taken,
    cloud.stopped,
    cloud.maintenance,
    cloud.coming_up,
    cloud.gone,
    workers.lost,
    job.training,
    job.booting,
    peer.answering,
    cloud.node_stuck,
    peer.silent,
    job.waiting_for_others,
    job.hung,
    job.stepping,
    serving.stalled,
    serving.waiting,
    job.idling,
    idle.failing,
    job.held,
    job.launching,
    config.nothing_known,
    idle.free,
    config.misconfigured,
    cloud.cloud_only,
    idle.out_of_sight,
)


def judge_node(evidence: Evidence, limits: JudgeLimits) -> Judgement:
    """What the node is, why, and what would help. Never raises, whatever a signal reports; `since` is left out."""
    facts = Facts(evidence, limits)
    if cloud.undisputed(facts):
        return _undisputed(facts)
    proposal = next((proposal for rule in RULES if (proposal := rule(facts)) is not None), _UNKNOWN)
    action, objection = allowed_action(proposal, facts)
    missing = contradictions.missing_signals(proposal, facts)
    fault, (todo, worker) = config.fault(facts), remedy_steps(proposal, facts)
    return Judgement(
        node=evidence.node,
        verdict=proposal.verdict,
        at=evidence.now,
        confidence=confidence(proposal),
        action=action,
        summary=proposal.summary,
        reasons=proposal.reasons,
        contradictions=contradictions.find_contradictions(proposal, facts),
        missing=(*missing, objection) if objection else missing,
        remedy=remedy((*todo, fault[1]) if fault else todo, facts, proposal.pids, worker),
        pids=proposal.pids,
        kind=facts.kind,
        suspect_since=proposal.suspect_since,
        counts_from=proposal.counts_from,
        unseen=unseen_by_cloud(proposal, facts),
    )


def _undisputed(facts: Facts) -> Judgement:
    """What all of the rules come to, the others not applying: most nodes of a fleet are judged so."""
    proposal = cloud.healthy(facts)
    return Judgement(
        facts.evidence.node,
        proposal.verdict,
        facts.now,
        proposal.confidence,
        proposal.action,
        proposal.summary,
        proposal.reasons,
    )


def keep_last_known(seen: Judgement, new: Judgement, evidence: Evidence, limits: JudgeLimits) -> Judgement | None:
    """The bad verdict that was `seen` last, if `new` is better only because a signal gives no answer; else None."""
    if seen.verdict not in BAD or new.verdict in BAD:
        return None
    facts = Facts(evidence, limits)
    unseen = lost_sight(seen, facts)
    if unseen is None:
        return None
    then = as_last_seen(seen, facts)
    if then is not None:
        stays = judge_node(then, limits).verdict in BAD
    else:  # what was reported then is not known any more
        stays = new.verdict is Verdict.UNKNOWN or not any(one.signal in ON_THE_NODE for one in new.reasons)
    return last_known(seen, new, unseen) if stays else None


def following(previous: Judgement | None, new: Judgement) -> Judgement:
    """`new` with the time since which its verdict holds, as the sequence of judgements shows it.

    A verdict that comes back after a short while in which no signal answered has held all the time.
    """
    if previous is None:
        return replace(new, since=new.at)
    began = previous.at if previous.since is None else previous.since
    if new.verdict is previous.verdict:
        return replace(new, since=min(began, new.at), interrupted=previous.interrupted)
    held = previous.interrupted
    if held is not None and held.verdict is new.verdict and new.at - held.until <= SHORT_SILENCE_SECONDS:
        return replace(new, since=min(held.since, new.at))
    if new.verdict in _SILENCE:
        return replace(new, since=new.at, interrupted=held or Held(previous.verdict, began, new.at))
    return replace(new, since=new.at)


_UNKNOWN: Final = Proposal(
    Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, "No signal that covers the node has answered.", ()
)
