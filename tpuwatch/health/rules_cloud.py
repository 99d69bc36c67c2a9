"""What follows from the cloud's word: the Cloud TPU API, the metadata server's notices, Cloud Monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health import testimony
from tpuwatch.health.case import Case, of_the_node
from tpuwatch.health.causes import NODE_FAULTS
from tpuwatch.health.evidence import OFF, WELL_HEALTH, Problem, Witness
from tpuwatch.health.facts import Cpu
from tpuwatch.health.remedies import Step
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.health.words import length

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Maintenance
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.verdict import Reason

COMING_UP: Final = frozenset({"CREATING", "STARTING", "RESTARTING", "REIMAGING", "UNHIDING"})
TAKEN: Final = frozenset({"PREEMPTED", "TERMINATED"})
KNOWN_STATES: Final = COMING_UP | TAKEN | {"READY", "REPAIRING", "STOPPED", "STOPPING", "DELETING", "UNKNOWN"}
BAD_HEALTH: Final = frozenset({"TIMEOUT", "UNHEALTHY_TENSORFLOW", "DEPRECATED_UNHEALTHY"})
KNOWN_HEALTH: Final = BAD_HEALTH | WELL_HEALTH | {"UNHEALTHY_MAINTENANCE"}
_OF_THE_NODE: Final = frozenset({Rung.RESTART_NODE, Rung.RESET_QUEUED_RESOURCE, Rung.RECREATE})
_ALONE: Final = "The API says {}; nobody else tells of the node."
_MAINTENANCE_EVENTS: Final = ("MIGRATE", "TERMINATE")  # …_ON_HOST_MAINTENANCE


def is_bad(facts: Facts) -> bool:
    """Whether the cloud calls the node unhealthy, or does not know it after a failed repair."""
    node = facts.cloud
    return node is not None and (node.state == "UNKNOWN" or (node.state == "READY" and node.health in BAD_HEALTH))


def is_well(facts: Facts) -> bool:
    """Whether the cloud has nothing to say against the node."""
    return facts.cloud is not None and facts.cloud.well


def taken(facts: Facts) -> Case | None:
    """Preempted or ended by the service."""
    notice = facts.notices is not None and facts.notices.preempted
    says_so = facts.cloud is not None and facts.cloud.state in TAKEN
    if not says_so and not notice:
        return None
    reasons = testimony.told(
        testimony.cloud(facts) if says_so else None,
        facts.says(Witness.METADATA, "The metadata server says that the node is being preempted.") if notice else None,
    )
    if not says_so or facts.stepping:
        summary = "The node is being preempted: it goes away within seconds."
        return Case(Verdict.PREEMPTED, Sureness.LIKELY, Rung.CHECKPOINT, summary, reasons, (Step.CHECKPOINT,))
    rung, steps = of_the_node(facts)
    summary = "The node was taken away; it cannot be started again and has to be created anew."
    return Case(Verdict.PREEMPTED, Sureness.CERTAIN, rung, summary, reasons, steps)


def stopped(facts: Facts) -> Case | None:
    """Stopped, or on the way to it, by somebody who may stop it."""
    state = facts.cloud.state if facts.cloud else ""
    if state not in ("STOPPED", "STOPPING", "DELETING"):
        return None
    reasons = (testimony.cloud(facts),)
    if facts.stepping:
        summary = f"Somebody brings the node down ({state}) while programs run on it."
        verdict = Verdict.GONE if state == "DELETING" else Verdict.STOPPED
        return Case(verdict, Sureness.LIKELY, Rung.CHECKPOINT, summary, reasons, (Step.CHECKPOINT, Step.DESCRIBE))
    if state == "DELETING":
        summary = "The node is being deleted."
        return Case(Verdict.GONE, Sureness.CERTAIN, Rung.ASK, summary, reasons, (Step.DESCRIBE,))
    if state == "STOPPING":
        summary = "The node is being stopped."
        return Case(Verdict.STOPPED, Sureness.CERTAIN, Rung.WAIT, summary, reasons, (Step.DESCRIBE,))
    if facts.spot:
        summary = "The node is stopped, and a spot node cannot be started again."
        return Case(Verdict.STOPPED, Sureness.CERTAIN, Rung.ASK, summary, reasons, of_the_node(facts)[1])
    summary = "The node is stopped; somebody stopped it, or a restart was not finished."
    return Case(Verdict.STOPPED, Sureness.CERTAIN, Rung.ASK, summary, reasons, (Step.START,))


def coming_up(facts: Facts) -> Case | None:
    """Being created, started or imaged."""
    node = facts.cloud
    if node is None or node.state not in COMING_UP or facts.stepping:
        return None
    reasons = (testimony.cloud(facts),)
    if facts.older(node.changed, facts.limits.transition_seconds):
        summary = f"The node has been {node.state} for {length(facts.age(node.changed) or 0.0)}, longer than it should."
        return Case(Verdict.STARTING, Sureness.LIKELY, Rung.ASK, summary, reasons, (Step.DESCRIBE,))
    summary = f"The node is on its way up ({node.state})."
    return Case(Verdict.STARTING, Sureness.CERTAIN, Rung.WAIT, summary, reasons)


def maintenance(facts: Facts) -> Case | None:
    """Under maintenance or repair, or as good as."""
    node, notices = facts.cloud, facts.notices
    if node is not None and node.state == "REPAIRING":
        reasons = (testimony.cloud(facts),)
        if facts.stepping:
            summary = "The service says that it repairs the node, while programs run on it."
            both = (Step.CHECKPOINT, Step.MAINTENANCE)
            return Case(Verdict.MAINTENANCE, Sureness.LIKELY, Rung.CHECKPOINT, summary, reasons, both)
        if facts.older(node.changed, facts.limits.repair_seconds):
            summary = f"The service has been repairing the node for {length(facts.age(node.changed) or 0.0)}."
            return Case(Verdict.MAINTENANCE, Sureness.LIKELY, Rung.ASK, summary, reasons, (Step.DESCRIBE,))
        summary = "The service repairs the node."
        return Case(Verdict.MAINTENANCE, Sureness.CERTAIN, Rung.WAIT, summary, reasons, (Step.MAINTENANCE,))
    marked = node is not None and node.state in ("READY", "UNKNOWN") and node.health == "UNHEALTHY_MAINTENANCE"
    told = testimony.told(
        testimony.cloud(facts) if marked else None,
        _announcement(facts, node.maintenance if node else None, Witness.CLOUD),
        _event(facts),
        _announcement(facts, notices.maintenance if notices else None, Witness.METADATA),
    )
    if not told:
        return None
    unused = facts.host is not None and facts.absent and not facts.program
    two = len({reason.witness for reason in told}) > 1
    sureness = Sureness.CERTAIN if two or (marked and not facts.stepping) else Sureness.LIKELY
    summary = "The node is under maintenance, or soon will be"
    summary += ", while programs run on it." if facts.stepping else "."
    rung = Rung.WAIT if unused else Rung.CHECKPOINT
    steps = (Step.MAINTENANCE,) if unused else (Step.CHECKPOINT, Step.MAINTENANCE)
    if (lasted := _lasted(facts, marked=marked)) >= facts.limits.repair_seconds:
        summary = f"The node has been under maintenance for {length(lasted)}, longer than it should"
        summary += ", and programs run on it." if facts.stepping else "."
        rung, steps = Rung.ASK, (Step.DESCRIBE, *steps)
    return Case(Verdict.MAINTENANCE, sureness, rung, summary, told, steps)


def gone(facts: Facts) -> Case | None:
    """Not there any more, after it was seen."""
    last = facts.evidence.cloud.value
    if not facts.gone or last is None:
        return None
    age = facts.age(facts.evidence.cloud.at)
    text = (
        f"The API was asked and has no such node any more; it last showed it {length(age or 0.0)} ago as {last.state}."
    )
    reasons = (facts.says(Witness.CLOUD, text, facts.evidence.cloud.tried),)
    if facts.stepping:
        summary = "The API has no such node any more, while programs run on this machine."
        steps = (Step.CHECKPOINT, Step.NAME)
        return Case(Verdict.GONE, Sureness.WEAK, Rung.CHECKPOINT, summary, reasons, steps)
    summary = "The node does not exist any more: somebody deleted it, or it was preempted and removed."
    sureness = Sureness.LIKELY if facts.own and facts.host is not None else Sureness.CERTAIN
    return Case(Verdict.GONE, sureness, Rung.ASK, summary, reasons, (_recreation(facts),))


def node_stuck(facts: Facts) -> Case | None:
    """Bad by the cloud's word for long enough, and nothing on the node speaks against it."""
    node = facts.cloud
    if node is None or not is_bad(facts) or facts.cpu is Cpu.WORKING:
        return None
    if not facts.older(node.changed, facts.limits.settle_seconds):
        return None
    confirmed = _confirmations(facts)
    reasons = (testimony.cloud(facts), *confirmed)
    if not confirmed:
        sureness = Sureness.WEAK if facts.host is not None else Sureness.LIKELY
        summary = f"The API says {testimony.cloud_word(facts)}; nobody else can confirm it."
        return Case(Verdict.NODE_STUCK, sureness, Rung.ASK, summary, reasons, _steps_alone(facts))
    local = {reason.witness for reason in confirmed} & {Witness.RUNTIME}
    if node.health == "UNHEALTHY_TENSORFLOW" and local:
        summary = "The runtime on the node is dead or stuck; the API and the runtime's own metrics agree."
        both = (Step.RESTART_RUNTIME, *of_the_node(facts)[1])
        return Case(
            Verdict.RUNTIME_STUCK, Sureness.CERTAIN, Rung.RESTART_RUNTIME, summary, reasons, both, facts.culprits
        )
    rung, steps = of_the_node(facts)
    summary = f"The node is stuck: the API says {testimony.cloud_word(facts)}, and it is confirmed."
    steps = _steps_alone(facts) if node.state == "UNKNOWN" else steps
    return Case(Verdict.NODE_STUCK, Sureness.CERTAIN, rung, summary, reasons, steps)


def cloud_only(facts: Facts) -> Case | None:
    """What the API says of a node of which nobody else tells."""
    node = facts.cloud
    if node is None:
        return None
    reasons = testimony.told(testimony.cloud(facts))
    word = testimony.cloud_word(facts)
    if is_bad(facts):
        summary = f"The API says {word}, which counts from {length(facts.limits.settle_seconds)} on."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.WAIT, summary, reasons)
    if not is_well(facts):
        summary = f"The API says {word}, which tells nothing about whether the node works."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.ASK, summary, reasons, (Step.DESCRIBE,))
    if facts.symptoms:
        return _well_with_symptoms(facts)
    if not facts.own and (late := testimony.monitored_idle(facts)) is not None:
        summary = "The API has nothing against the node, and its chips run nothing."
        return Case(Verdict.IDLE, Sureness.LIKELY, Rung.NOTHING, summary, (*reasons, late))
    if node.health == "HEALTHY" and testimony.infra(facts) is None and not facts.own:
        return healthy(facts)
    return Case(Verdict.HEALTHY, Sureness.WEAK, Rung.NOTHING, _ALONE.format(word), reasons)


def undisputed(facts: Facts) -> bool:
    """Whether the cloud calls a node healthy that is watched from elsewhere, and nobody else is asked about it.

    Then no rule but `healthy` has anything to say, nothing contradicts it, and nothing is missing.
    """
    node, evidence = facts.cloud, facts.evidence
    return (
        node is not None
        and evidence.cloud.problem is None
        and not facts.own
        and node.state == "READY"
        and node.health == "HEALTHY"
        and not node.symptoms
        and node.maintenance is None
        and evidence.agent is OFF
        and evidence.monitoring is OFF
        and max(evidence.cloud.at or 0.0, node.changed or 0.0, node.created or 0.0) <= facts.now
    )


def healthy(facts: Facts) -> Case:
    """The cloud calls it so, and nobody else tells of it."""
    reason = testimony.cloud(facts)
    summary = _ALONE.format(testimony.cloud_word(facts))
    return Case(Verdict.HEALTHY, Sureness.LIKELY, Rung.NOTHING, summary, (reason,))


def _well_with_symptoms(facts: Facts) -> Case:
    kinds = {one.kind for one in facts.symptoms}
    first = testimony.cloud(facts)
    told = testimony.symptom(facts)
    if "PROJECT_ABUSE" in kinds:
        summary = "The API has nothing against the node, but Google suspects abuse by the project."
        return Case(Verdict.HEALTHY, Sureness.WEAK, Rung.ASK, summary, (first,), (Step.ABUSE,))
    memory = kinds & {"LOW_MEMORY", "OUT_OF_MEMORY", "HBM_OUT_OF_MEMORY"}
    summary = f"The API says {testimony.cloud_word(facts)}, and names the symptom {facts.symptoms[0].kind}."
    rung, step = (Rung.FIX_PROGRAM, Step.HOST_MEMORY) if memory else (Rung.ASK, Step.DESCRIBE)
    if memory == {"HBM_OUT_OF_MEMORY"}:
        step = Step.FIX_PROGRAM
    return Case(Verdict.HEALTHY, Sureness.WEAK, rung, summary, testimony.told(first, told), (step,))


def _confirmations(facts: Facts) -> tuple[Reason, ...]:
    """What others say that fits the cloud's bad word, the weightiest first."""
    limits = facts.limits
    port = facts.hung
    is_hung = port is not None and facts.older(port.since, limits.compile_grace_seconds)
    is_idle = facts.idle is not None and facts.idle >= limits.idle_seconds
    rests = facts.holders and facts.cpu is Cpu.RESTING and (facts.quiet or 0.0) >= limits.compile_grace_seconds
    fault = facts.event(NODE_FAULTS)
    return testimony.told(
        testimony.hung(facts) if is_hung else None,
        testimony.idle(facts) if is_idle else None,
        testimony.holders(facts) if rests else None,
        testimony.memory(facts),
        testimony.event(facts, fault) if fault is not None else None,
        testimony.infra(facts),
        testimony.word(facts) if agrees(facts) else None,
        testimony.silent(facts) if facts.fell_silent else None,
    )


def agrees(facts: Facts) -> bool:
    """Whether the node's own tpuwatch calls for what renews the node as a whole, by what it has seen there itself."""
    word = facts.word
    return word is not None and word.rung in _OF_THE_NODE and bool(word.witnesses & {Witness.RUNTIME, Witness.HOST})


def _announcement(facts: Facts, told: Maintenance | None, witness: Witness) -> Reason | None:
    if told is None:
        return None
    ongoing = told.status.upper() == "ONGOING"
    near = told.start is not None and told.start - facts.now <= facts.limits.ahead_seconds
    over = told.end is not None and told.end < facts.now
    if ongoing and _over(facts, told):
        return None
    if ongoing or (told.status.upper() == "PENDING" and near and not over):
        return testimony.announced(facts, told, witness)
    return None


def _lasted(facts: Facts, *, marked: bool) -> float:
    """For how long the maintenance that goes on has gone on, in seconds; 0 where nothing tells."""
    node, notices = facts.cloud, facts.notices
    told = [one for one in (node.maintenance if node else None, notices.maintenance if notices else None) if one]
    ongoing = [one.start for one in told if one.status.upper() == "ONGOING" and not _over(facts, one)]
    begun = [*ongoing, node.changed if marked and node else None]
    return max((age for when in begun if (age := facts.age(when)) is not None), default=0.0)


def _over(facts: Facts, told: Maintenance) -> bool:
    """Whether the window of a maintenance that is said to go on has ended long ago."""
    return facts.older(told.end, facts.limits.over_seconds)


def _event(facts: Facts) -> Reason | None:
    event = facts.notices.maintenance_event if facts.notices else ""
    if not event.startswith(_MAINTENANCE_EVENTS):
        return None
    what = "migrates" if event.startswith("MIGRATE") else "ends"
    return facts.says(Witness.METADATA, f"The metadata server says that a maintenance {what} the machine now.")


def _steps_alone(facts: Facts) -> tuple[Step, ...]:
    state = facts.cloud.state if facts.cloud else ""
    return (Step.DESCRIBE, *((Step.REPAIR,) if state == "UNKNOWN" else of_the_node(facts)[1]))


def _recreation(facts: Facts) -> Step:
    last = facts.evidence.cloud.value
    return Step.RECREATE_QUEUED if last is not None and last.queued_resource else Step.CREATE


def never_seen(facts: Facts) -> bool:
    """The API has no such node, and never had since tpuwatch has been asking."""
    return facts.evidence.cloud.problem is Problem.GONE and facts.gone and facts.evidence.cloud.value is None
