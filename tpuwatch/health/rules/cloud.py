"""What follows from the cloud's answers: the Cloud TPU API, notices (metadata server, Kubernetes), Cloud Monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, length
from tpuwatch.health import reason
from tpuwatch.health.facts import Cpu
from tpuwatch.health.proposal import OF_THE_NODE, Proposal, after_queued, node_action, suspect
from tpuwatch.model import (
    BAD_HEALTH,
    FORGEABLE,
    OFF,
    WELL_HEALTH,
    Action,
    Confidence,
    Problem,
    RemedyStep,
    Signal,
    Source,
    Verdict,
    Whose,
    fault_sources,
    proven,
)

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Maintenance, Reason

COMING_UP: Final = frozenset({"CREATING", "STARTING", "RESTARTING", "REIMAGING", "UNHIDING"})
TAKEN: Final = frozenset({"PREEMPTED", "TERMINATED"})
KNOWN_STATES: Final = COMING_UP | TAKEN | {"READY", "REPAIRING", "STOPPED", "STOPPING", "DELETING", "UNKNOWN"}
KNOWN_HEALTH: Final = BAD_HEALTH | WELL_HEALTH | {"UNHEALTHY_MAINTENANCE"}
_ALONE: Final = "The API says {}; no other signal covers the node."
_MAINTENANCE_EVENTS: Final = ("MIGRATE", "TERMINATE")  # …_ON_HOST_MAINTENANCE


def is_bad(facts: Facts) -> bool:
    """Whether the cloud calls the node unhealthy, or does not know it after a failed repair."""
    node = facts.cloud
    return node is not None and (node.state == "UNKNOWN" or node.ill)


def is_well(facts: Facts) -> bool:
    """Whether the cloud reports nothing against the node."""
    return facts.cloud is not None and facts.cloud.well


def taken(facts: Facts) -> Proposal | None:
    """Preempted or ended by the service."""
    notice = facts.notices is not None and facts.notices.preempted
    says_so = facts.cloud is not None and facts.cloud.state in TAKEN
    if not says_so and not notice:
        return None
    reasons = reason.present(
        reason.cloud(facts) if says_so else None,
        facts.reason_of(Signal.METADATA, "The metadata server reports that the node is being preempted.")
        if notice
        else None,
    )
    if not says_so or facts.running:
        return _save_first(Verdict.PREEMPTED, "The node is being preempted: it goes away within seconds.", reasons)
    action, steps = node_action(facts)
    summary = "The node was taken away; it cannot be started again and has to be recreated."
    if facts.queued is not None and facts.queued.waits:
        summary = f"The node was taken away; its queued resource {facts.queued.name} is {facts.queued.state}."
    return Proposal(Verdict.PREEMPTED, Confidence.HIGH, action, summary, reasons, steps)


def _save_first(
    verdict: Verdict,
    summary: str,
    reasons: tuple[Reason, ...],
    *steps: RemedyStep,
    confidence: Confidence = Confidence.MEDIUM,
) -> Proposal:
    """Programs run, or may run, on a node that goes away: their work is to be saved before anything else."""
    return Proposal(verdict, confidence, Action.CHECKPOINT, summary, reasons, (RemedyStep.CHECKPOINT, *steps))


def stopped(facts: Facts) -> Proposal | None:
    """Stopped, or on the way to it, by a user who may stop it."""
    state = facts.cloud.state if facts.cloud else ""
    if state not in ("STOPPED", "STOPPING", "DELETING"):
        return None
    reasons = (reason.cloud(facts),)
    if facts.running:
        summary = f"The node is being brought down ({state}) while programs run on it."
        verdict = Verdict.GONE if state == "DELETING" else Verdict.STOPPED
        return _save_first(verdict, summary, reasons, RemedyStep.DESCRIBE)
    if state == "DELETING":
        summary = "The node is being deleted."
        return Proposal(Verdict.GONE, Confidence.HIGH, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    if state == "STOPPING":
        summary = "The node is being stopped."
        return Proposal(Verdict.STOPPED, Confidence.HIGH, Action.WAIT, summary, reasons, (RemedyStep.DESCRIBE,))
    if facts.is_spot:
        summary = "The node is stopped, and a spot node cannot be started again."
        return Proposal(Verdict.STOPPED, Confidence.HIGH, Action.MANUAL, summary, reasons, node_action(facts)[1])
    summary = "The node is stopped; a user stopped it, or a restart was not finished."
    return Proposal(Verdict.STOPPED, Confidence.HIGH, Action.MANUAL, summary, reasons, (RemedyStep.START,))


def coming_up(facts: Facts) -> Proposal | None:
    """Being created, started or imaged."""
    node = facts.cloud
    if node is None or node.state not in COMING_UP or facts.running:
        return None
    reasons = (reason.cloud(facts),)
    if facts.is_older(node.changed, facts.limits.transition_seconds):
        summary = f"The node has been {node.state} for {length(facts.age(node.changed) or 0.0)}, longer than it should."
        return Proposal(Verdict.STARTING, Confidence.MEDIUM, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    summary = f"The node is on its way up ({node.state})."
    return Proposal(Verdict.STARTING, Confidence.HIGH, Action.WAIT, summary, reasons)


def maintenance(facts: Facts) -> Proposal | None:
    """Under maintenance or repair, or as good as."""
    node, notices = facts.cloud, facts.notices
    if node is not None and node.state == "REPAIRING":
        reasons = (reason.cloud(facts),)
        if facts.running:
            summary = "The service repairs the node, while programs run on it."
            return _save_first(Verdict.MAINTENANCE, summary, reasons, RemedyStep.MAINTENANCE)
        if facts.is_older(node.changed, facts.limits.repair_seconds):
            summary = f"The service has been repairing the node for {length(facts.age(node.changed) or 0.0)}."
            return Proposal(
                Verdict.MAINTENANCE, Confidence.MEDIUM, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,)
            )
        summary = "The service repairs the node."
        return Proposal(Verdict.MAINTENANCE, Confidence.HIGH, Action.WAIT, summary, reasons, (RemedyStep.MAINTENANCE,))
    marked = node is not None and node.state in ("READY", "UNKNOWN") and node.health == "UNHEALTHY_MAINTENANCE"
    signs = reason.present(
        reason.cloud(facts) if marked else None,
        _announcement(facts, node.maintenance if node else None, Signal.CLOUD),
        _event(facts),
        _announcement(facts, notices.maintenance if notices else None, Signal.METADATA),
        _announcement(facts, facts.kubernetes.maintenance if facts.kubernetes else None, Signal.KUBERNETES),
        _termination(facts),
    )
    if not signs:
        return None
    unused = facts.host is not None and facts.runtime_absent and not facts.has_program
    two = len({one.signal for one in signs}) > 1
    confidence = Confidence.HIGH if two or (marked and not facts.running) else Confidence.MEDIUM
    summary = "The node is under maintenance, or soon will be"
    summary += ", while programs run on it." if facts.running else "."
    action = Action.WAIT if unused else Action.CHECKPOINT
    steps = (RemedyStep.MAINTENANCE,) if unused else (RemedyStep.CHECKPOINT, RemedyStep.MAINTENANCE)
    if (lasted := _lasted(facts, marked=marked)) >= facts.limits.repair_seconds:
        summary = f"The node has been under maintenance for {length(lasted)}, longer than it should"
        summary += ", and programs run on it." if facts.running else "."
        action, steps = Action.MANUAL, (RemedyStep.DESCRIBE, *steps)
    return Proposal(Verdict.MAINTENANCE, confidence, action, summary, signs, steps)


def gone(facts: Facts) -> Proposal | None:
    """Not there any more, after it was seen."""
    last = facts.evidence.cloud.value
    if not facts.is_gone or last is None:
        return None
    age = facts.age(facts.evidence.cloud.at)
    text = (
        f"The API was asked and has no such node any more; it last showed it {length(age or 0.0)} ago as {last.state}."
    )
    reasons = (facts.reason_of(Signal.CLOUD, text, facts.evidence.cloud.tried),)
    if facts.running:
        summary = "The API has no such node any more, while programs run on this machine."
        return _save_first(Verdict.GONE, summary, reasons, RemedyStep.NAME, confidence=Confidence.LOW)
    confidence = Confidence.MEDIUM if facts.own and facts.host is not None else Confidence.HIGH
    queued = facts.queued
    if queued is not None and queued.waits:
        summary = f"The node is gone and on its way back: its queued resource {queued.name} is {queued.state}."
        return Proposal(Verdict.GONE, confidence, Action.WAIT, summary, reasons, (RemedyStep.DESCRIBE_QUEUED,))
    summary = "The node does not exist any more: a user deleted it, or it was preempted and removed."
    name = clean(last.queued_resource, 63)
    if queued is not None:
        summary = f"The node does not exist any more: its queued resource {queued.name} is {queued.state}."
        steps = after_queued(queued)
    elif not name:
        steps = (RemedyStep.CREATE,)
    elif facts.knows_queue:
        summary = f"The node does not exist any more, nor does its queued resource {name}."
        steps = (RemedyStep.CREATE_QUEUED,)
    else:
        summary += f" The state of its queued resource {name} is not known."
        steps = (RemedyStep.DESCRIBE_QUEUED,)
    return Proposal(Verdict.GONE, confidence, Action.MANUAL, summary, reasons, steps)


def awaited(facts: Facts, reasons: tuple[Reason, ...]) -> Proposal | None:
    """Judge a node that was never seen and may be still to come; None where no queued resource makes it."""
    queued = facts.queued
    if queued is None and facts.knows_queue:
        return None
    if queued is None:
        summary = "The zone lists no node of this name. It is not known whether a queued resource still makes it."
        unknown = (RemedyStep.LIST_QUEUED, RemedyStep.NAME)
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.MANUAL, summary, reasons, unknown)
    if queued.waits:
        summary = f"The node does not exist yet: its queued resource {queued.name} is {queued.state}."
        steps = (RemedyStep.DESCRIBE_QUEUED,)
        return Proposal(Verdict.STARTING, Confidence.HIGH, Action.WAIT, summary, reasons, steps)
    summary = f"The zone lists no node of this name: its queued resource {queued.name} is {queued.state}."
    verdict, confidence = (Verdict.GONE, Confidence.MEDIUM) if queued.ended else (Verdict.UNKNOWN, Confidence.LOW)
    return Proposal(verdict, confidence, Action.MANUAL, summary, reasons, after_queued(queued))


def node_stuck(facts: Facts) -> Proposal | None:
    """Bad by the cloud's state for long enough, and nothing on the node speaks against it."""
    node = facts.cloud
    if node is None or not is_bad(facts) or facts.cpu is Cpu.BUSY:
        return None
    if not facts.is_older(node.changed, facts.limits.settle_seconds):
        return None
    if facts.probe_works:
        summary = f"The TPU works by a probe, though the API says {reason.cloud_state(facts)}."
        reasons = reason.present(reason.probe_works(facts), reason.cloud(facts))
        return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    reasons = (reason.cloud(facts), *_fitting(facts))
    sources = fault_sources(reasons)
    if not proven(sources):
        confidence = Confidence.LOW if facts.host is not None else Confidence.MEDIUM
        summary = f"The API says {reason.cloud_state(facts)}; nothing that is independent of it confirms it."
        return Proposal(Verdict.NODE_STUCK, confidence, Action.MANUAL, summary, reasons, _steps_alone(facts))
    if node.health == "UNHEALTHY_TENSORFLOW" and facts.own and Source.RUNTIME in sources:
        summary = "The runtime on the node is dead or stuck; the API and the runtime's own metrics agree."
        both = (RemedyStep.RESTART_RUNTIME, *node_action(facts)[1])
        return Proposal(
            Verdict.RUNTIME_STUCK, Confidence.HIGH, Action.RESTART_RUNTIME, summary, reasons, both, facts.program_pids
        )
    action, steps = node_action(facts)
    summary = f"The node is stuck: the API says {reason.cloud_state(facts)}, and it is confirmed."
    steps = _steps_alone(facts) if node.state == "UNKNOWN" else steps
    return Proposal(Verdict.NODE_STUCK, Confidence.HIGH, action, summary, reasons, steps)


def cloud_only(facts: Facts) -> Proposal | None:
    """What the API reports of a node that no other signal covers."""
    node = facts.cloud
    if node is None:
        return None
    reasons = reason.present(reason.cloud(facts))
    state = reason.cloud_state(facts)
    if is_bad(facts):
        settle = facts.limits.settle_seconds
        if (
            node.changed is not None
            and facts.age(node.changed) is not None
            and not facts.is_older(node.changed, settle)
        ):
            return suspect(f"The API says {state}", node.changed, settle, reasons)
        summary = f"The API says {state}, which counts from {length(settle)} on."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.WAIT, summary, reasons)
    if not is_well(facts):
        summary = f"The API says {state}, which does not show whether the node works."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    if node.lacks_endpoints:
        summary = f"The API says {state} and lists no network endpoint, so that nothing shows whether the node works."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.MANUAL, summary, reasons, (RemedyStep.DESCRIBE,))
    if facts.symptoms:
        return _well_with_symptoms(facts)
    if not facts.own and (late := reason.monitored_idle(facts)) is not None:
        summary = "The API has nothing against the node, and its chips run nothing."
        return Proposal(Verdict.IDLE, Confidence.MEDIUM, Action.NONE, summary, (*reasons, late))
    if node.health == "HEALTHY" and reason.infra(facts) is None and not facts.own:
        return healthy(facts)
    return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.NONE, _ALONE.format(state), reasons)


def undisputed(facts: Facts) -> bool:
    """Whether the cloud calls a node healthy that is watched from elsewhere, and no other signal is asked about it.

    Then no rule but `healthy` applies, nothing contradicts it, and nothing is missing.
    """
    node, evidence = facts.cloud, facts.evidence
    return (
        node is not None
        and evidence.cloud.problem is None
        and not facts.own
        and node.state == "READY"
        and node.health == "HEALTHY"
        and not node.lacks_endpoints
        and not node.symptoms
        and node.maintenance is None
        and evidence.peer is OFF
        and evidence.monitoring is OFF
        and max(evidence.cloud.at or 0.0, node.changed or 0.0, node.created or 0.0) <= facts.now
    )


def healthy(facts: Facts) -> Proposal:
    """The cloud calls it so, and no other signal covers it."""
    summary = _ALONE.format(reason.cloud_state(facts))
    return Proposal(Verdict.HEALTHY, Confidence.MEDIUM, Action.NONE, summary, (reason.cloud(facts),))


def _well_with_symptoms(facts: Facts) -> Proposal:
    kinds = {one.kind for one in facts.symptoms}
    first = reason.cloud(facts)
    symptom = reason.symptom(facts)
    if "PROJECT_ABUSE" in kinds:
        summary = "The API has nothing against the node, but Google suspects abuse by the project."
        return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.MANUAL, summary, (first,), (RemedyStep.ABUSE,))
    memory = kinds & {"LOW_MEMORY", "OUT_OF_MEMORY", "HBM_OUT_OF_MEMORY"}
    summary = f"The API says {reason.cloud_state(facts)}, and names the symptom {facts.symptoms[0].kind}."
    action, step = (Action.FIX_PROGRAM, RemedyStep.HOST_MEMORY) if memory else (Action.MANUAL, RemedyStep.DESCRIBE)
    if memory == {"HBM_OUT_OF_MEMORY"}:
        step = RemedyStep.FIX_PROGRAM
    return Proposal(Verdict.HEALTHY, Confidence.LOW, action, summary, reason.present(first, symptom), (step,))


def _fitting(facts: Facts) -> tuple[Reason, ...]:
    """What other signals report that fits the cloud's bad state, the weightiest first. Not all of it confirms it."""
    limits = facts.limits
    port = facts.hung_port
    is_hung = port is not None and facts.is_older(port.since, limits.compile_grace_seconds)
    is_idle = facts.idle_seconds is not None and facts.idle_seconds >= limits.idle_seconds
    rests = facts.holders and facts.cpu is Cpu.IDLE and (facts.quiet_seconds or 0.0) >= limits.compile_grace_seconds
    fault = facts.event(Whose.NODE)
    return reason.present(
        reason.blocked(facts),
        reason.probe(facts),
        reason.hung(facts) if is_hung else None,
        reason.peer_verdict(facts) if agrees(facts) else None,
        reason.peer_silent(facts) if facts.peer_fell_silent else None,
        reason.memory(facts),
        reason.event(facts, fault) if fault is not None else None,
        reason.infra(facts),
        reason.idle(facts) if is_idle else None,
        reason.holders(facts) if rests and facts.blocked is None else None,
    )


def agrees(facts: Facts) -> bool:
    """Whether the node's own tpuwatch calls for what renews the node as a whole, by what it has seen there itself."""
    peer = facts.peer_verdict
    return peer is not None and peer.action in OF_THE_NODE and bool(peer.sources - FORGEABLE - {Source.CLOUD})


def _announcement(facts: Facts, notice: Maintenance | None, signal: Signal) -> Reason | None:
    if notice is None:
        return None
    ongoing = notice.status.upper() == "ONGOING"
    near = notice.start is not None and notice.start - facts.now <= facts.limits.ahead_seconds
    over = notice.end is not None and notice.end < facts.now
    if ongoing and _over(facts, notice):
        return None
    if ongoing or (notice.status.upper() == "PENDING" and near and not over):
        return reason.announced(facts, notice, signal)
    return None


def _lasted(facts: Facts, *, marked: bool) -> float:
    """For how long the maintenance that goes on has gone on, in seconds; 0 where it is not known."""
    node, notices = facts.cloud, facts.notices
    said_by = (node, notices, facts.kubernetes)
    announced = [one.maintenance for one in said_by if one is not None and one.maintenance is not None]
    ongoing = [one.start for one in announced if one.status.upper() == "ONGOING" and not _over(facts, one)]
    begun = [*ongoing, node.changed if marked and node else None]
    return max((age for when in begun if (age := facts.age(when)) is not None), default=0.0)


def _over(facts: Facts, notice: Maintenance) -> bool:
    """Whether the window of a maintenance that is reported as ongoing has ended long ago."""
    return facts.is_older(notice.end, facts.limits.over_seconds)


def _event(facts: Facts) -> Reason | None:
    event = facts.notices.maintenance_event if facts.notices else ""
    if not event.startswith(_MAINTENANCE_EVENTS):
        return None
    what = "migrates" if event.startswith("MIGRATE") else "ends"
    return facts.reason_of(Signal.METADATA, f"The metadata server reports that a maintenance {what} the machine now.")


def _termination(facts: Facts) -> Reason | None:
    if facts.kubernetes is None or not facts.kubernetes.terminating:
        return None
    return facts.reason_of(Signal.KUBERNETES, "Kubernetes has tainted the node: it is about to be terminated.")


def _steps_alone(facts: Facts) -> tuple[RemedyStep, ...]:
    state = facts.cloud.state if facts.cloud else ""
    return (RemedyStep.DESCRIBE, *((RemedyStep.REPAIR,) if state == "UNKNOWN" else node_action(facts)[1]))


def never_seen(facts: Facts) -> bool:
    """The API has no such node, and never had since tpuwatch has been asking."""
    return facts.evidence.cloud.problem is Problem.GONE and facts.is_gone and facts.evidence.cloud.value is None
