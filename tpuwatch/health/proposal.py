"""What a rule proposes, and which actions the judge may advise.

The rules of safety are all here: an action that interrupts something is advised only where the evidence is `proven`,
with an answer of every signal that could object, and only where the service allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import iso, listed
from tpuwatch.model import (
    DESTRUCTIVE,
    STUCK,
    Action,
    Confidence,
    Problem,
    RemedyStep,
    Signal,
    Verdict,
    Whose,
    confidence_by,
    fault_sources,
    proven,
)

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import QueuedResource, Reason

# A node's own tpuwatch with any other verdict has a reason not to interrupt anything.
_AGREED: Final = frozenset({Verdict.HEALTHY, Verdict.IDLE})  # as sure as the sources that agree on it
_FALLING: Final = (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)
_MAY_AGREE: Final = STUCK | {Verdict.UNKNOWN, Verdict.MISCONFIGURED}
OF_THE_NODE: Final = frozenset({Action.RESTART_NODE, Action.RESET_QUEUED_RESOURCE, Action.RECREATE})
_RECREATE_QUEUED: Final = (RemedyStep.DELETE_QUEUED, RemedyStep.CREATE_QUEUED)
_OF_THE_PROGRAM: Final = frozenset({Action.END_HOLDER, Action.RESTART_RUNTIME})


@dataclass(frozen=True, slots=True)
class Proposal:
    """A verdict as a rule proposes it. Every reason supports the verdict; no others are among them."""

    verdict: Verdict
    confidence: Confidence
    action: Action
    summary: str  # without the node's name: "The chips have run nothing for 20 min."
    reasons: tuple[Reason, ...]
    steps: tuple[RemedyStep, ...] = ()
    pids: tuple[int, ...] = ()  # of the program that the steps are about; no other is named
    suspect_since: float | None = None  # of an unknown verdict that is to become a bad one
    counts_from: float | None = None
    worker: int = 0  # that the steps are about, of a node that has several


def suspect(what: str, since: float, settle_seconds: float, reasons: tuple[Reason, ...]) -> Proposal:
    """Bad, and not for long enough yet to count: since when, and from when on it does."""
    until = since + settle_seconds
    first, last = ((iso(when) or "")[11:19] for when in (since, until))
    summary = f"{what}: suspect since {first}, counts from {last} UTC on."
    return Proposal(
        Verdict.UNKNOWN,
        Confidence.LOW,
        Action.WAIT,
        summary,
        reasons,
        suspect_since=since,
        counts_from=until,
    )


def allowed_action(proposal: Proposal, facts: Facts) -> tuple[Action, str]:
    """Return the action that may be advised, and a sentence on why it is not the proposed one ("" if it is)."""
    if proposal.action not in DESTRUCTIVE:
        return proposal.action, ""
    objection = _objection(proposal, facts)
    return (Action.MANUAL, objection) if objection else (proposal.action, "")


def confidence(proposal: Proposal) -> Confidence:
    """How sure the verdict is: as sure as the rule is, and no surer than what it rests on allows. Where the deciding
    signal itself says what holds, as the cloud does of a stopped node, that is the rule's alone."""
    if proposal.verdict in STUCK:
        sources = fault_sources(proposal.reasons)
    elif proposal.verdict in _AGREED:
        sources = frozenset().union(*(reason.sources for reason in proposal.reasons))
    else:
        return proposal.confidence
    return max(proposal.confidence, confidence_by(sources), key=_FALLING.index)


def remedy_steps(proposal: Proposal, facts: Facts) -> tuple[tuple[RemedyStep, ...], int]:
    """Return the steps for an operator, and the number of the worker that they are about. An idle program may wait for
    another worker: look at those first, or at the one that failed first where that is known."""
    may_wait = proposal.action in _OF_THE_PROGRAM and facts.hosts > 1
    steps = (RemedyStep.OTHER_WORKERS, *proposal.steps) if may_wait else proposal.steps
    whole = facts.slice if RemedyStep.OTHER_WORKERS in steps else None
    culprit = (
        next((one for one in whole.workers if one.number == whole.culprit and not one.own), None) if whole else None
    )
    if culprit is None:
        return steps, proposal.worker
    return (RemedyStep.STATUS, *(one for one in steps if one is not RemedyStep.OTHER_WORKERS)), culprit.number


def node_action(facts: Facts) -> tuple[Action, tuple[RemedyStep, ...]]:
    """Return the action that renews the whole node, as far as the service allows one, and its steps."""
    node = facts.cloud
    if node is None:
        return Action.MANUAL, (RemedyStep.DESCRIBE,)
    recreate = _renew_queued(facts.queued) if node.queued_resource else (RemedyStep.DELETE, RemedyStep.CREATE)
    if facts.queued is not None and facts.queued.waits:
        return Action.WAIT, recreate
    if node.state in ("PREEMPTED", "TERMINATED") or (facts.is_spot and node.state in ("READY", "STOPPED")):
        return Action.RECREATE, recreate
    if node.state != "READY":
        return Action.MANUAL, (RemedyStep.DESCRIBE,)
    if facts.hosts == 1:
        return Action.RESTART_NODE, (RemedyStep.RESTART_NODE,)
    if node.queued_resource:
        return Action.RESET_QUEUED_RESOURCE, (RemedyStep.RESET_QUEUED_RESOURCE,)
    return Action.MANUAL, recreate


def after_queued(queued: QueuedResource) -> tuple[RemedyStep, ...]:
    """Return the steps where the nodes of a queued resource are not there: only one that has ended is deleted.

    Its state may have changed since: it is looked at before that.
    """
    return (RemedyStep.DESCRIBE_QUEUED, *(_RECREATE_QUEUED if queued.ended else ()))


def _renew_queued(queued: QueuedResource | None) -> tuple[RemedyStep, ...]:
    """Return the steps that replace a listed node; while its queued resource changes by itself there are none.

    None is one whose state is not known: the first step says when to leave it alone.
    """
    settled = queued is None or queued.ended or queued.state == "ACTIVE"
    return (RemedyStep.DESCRIBE_QUEUED, *(_RECREATE_QUEUED if settled else ()))


def _objection(proposal: Proposal, facts: Facts) -> str:
    if not proven(fault_sources(proposal.reasons)):
        return "No second source that users cannot forge confirms it, so nothing that interrupts is advised."
    if facts.running or facts.stepping is not None:
        works = "Programs run on the chips" if facts.running else "The job reports that its steps go on"
        return f"{works}, so nothing that interrupts is advised."
    peer = facts.peer_verdict
    if peer is not None and peer.verdict not in _MAY_AGREE:
        return f"Its own tpuwatch answers and calls it {peer.verdict.value}, so nothing that interrupts is advised."
    if proposal.action in OF_THE_NODE and facts.cloud is None:
        return "The Cloud TPU API has not confirmed the node's state, so nothing that interrupts it is advised."
    silent = [signal.row.called for signal in _may_object(facts) if not _has_answered(facts, signal)]
    if silent:
        return f"Nothing that interrupts is advised without an answer from {listed(silent)}."
    if proposal.action is Action.END_HOLDER and not facts.holders:
        return "No process is seen to hold the TPU, so there is none to end."
    if proposal.action in _OF_THE_PROGRAM and facts.holders and not proposal.pids:
        return "It is not known which of the processes that hold the TPU is at fault, so none is to be ended."
    if proposal.action in _OF_THE_PROGRAM and facts.hosts > 1:
        return "The node has several hosts, and an idle program may wait for another: check all of them first."
    if proposal.verdict in STUCK and facts.event(Whose.OTHER_WORKER) is not None:
        return "This worker reports the fault of another, so nothing that interrupts is advised here."
    return ""


def _may_object(facts: Facts) -> list[Signal]:
    """Return the signals that may know why an interruption would be wrong, of those that cover this node."""
    if not facts.own:
        never_asked = facts.evidence.peer.problem in (Problem.OFF, Problem.ABSENT)
        return [Signal.CLOUD] if never_asked else [Signal.CLOUD, Signal.PEER]
    local = [Signal.RUNTIME, Signal.HOST, Signal.LOGS]
    cloud = [Signal.CLOUD] if facts.identity.node.value else []
    return cloud + local + ([Signal.METADATA] if facts.has_metadata_server else [])


def _has_answered(facts: Facts, signal: Signal) -> bool:
    no_metadata = signal is Signal.METADATA and facts.evidence.notices.problem is Problem.ABSENT
    absent = no_metadata or (signal is Signal.RUNTIME and facts.runtime_absent)
    return getattr(facts, signal.field) is not None or absent
