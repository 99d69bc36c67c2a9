"""The verdict on a node: a pure function of the evidence with its times. Same evidence, same verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health import dissent, rules_agent, rules_cloud, rules_config, rules_free, rules_job
from tpuwatch.health.case import Case, advised, steps
from tpuwatch.health.facts import Facts
from tpuwatch.health.remedies import remedy
from tpuwatch.health.verdict import Held, Judgement, Rung, Sureness, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.health.evidence import Evidence
    from tpuwatch.health.limits import Limits

SHORT_SILENCE_SECONDS: Final = 600.0  # a verdict that comes back within this time has not ceased to hold
_SILENCE: Final = (Verdict.UNKNOWN, Verdict.MISCONFIGURED)  # nobody can tell of the node

# The first rule that makes something of the facts decides.
RULES: Final[tuple[Callable[[Facts], Case | None], ...]] = (
    rules_cloud.taken,
    rules_cloud.stopped,
    rules_cloud.maintenance,
    rules_cloud.coming_up,
    rules_cloud.gone,
    rules_job.training,
    rules_job.booting,
    rules_agent.answering,
    rules_cloud.node_stuck,
    rules_agent.silent,
    rules_job.waiting_for_others,
    rules_job.hung,
    rules_job.idling,
    rules_free.failing,
    rules_job.held,
    rules_job.launching,
    rules_config.nothing_known,
    rules_free.free,
    rules_config.misconfigured,
    rules_cloud.cloud_only,
    rules_free.out_of_sight,
)


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """What the node is, why, and what would help. Never raises for what a witness may say; `since` is left out."""
    facts = Facts(evidence, limits)
    if rules_cloud.undisputed(facts):
        return _undisputed(facts)
    case = next((case for rule in RULES if (case := rule(facts)) is not None), _UNKNOWN)
    rung, objection = advised(case, facts)
    missing = dissent.missing(case, facts)
    fault, todo = rules_config.fault(facts), steps(case, facts)
    return Judgement(
        node=evidence.node,
        verdict=case.verdict,
        at=evidence.now,
        sureness=case.sureness,
        rung=rung,
        summary=case.summary,
        reasons=case.reasons,
        contradictions=dissent.contradictions(case, facts),
        missing=(*missing, objection) if objection else missing,
        remedy=remedy((*todo, fault[1]) if fault else todo, facts, case.pids),
        pids=case.pids,
    )


def _undisputed(facts: Facts) -> Judgement:
    """What all of the rules come to, the others having nothing to say: most nodes of a fleet are judged so."""
    case = rules_cloud.healthy(facts)
    return Judgement(facts.evidence.node, case.verdict, facts.now, case.sureness, case.rung, case.summary, case.reasons)


def following(previous: Judgement | None, new: Judgement) -> Judgement:
    """`new` with the time since which its verdict holds, as the sequence of judgements shows it.

    A verdict that comes back after a short while in which nobody could tell has held all the time.
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


_UNKNOWN: Final = Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, "Nobody who could tell of the node has answered.", ())
