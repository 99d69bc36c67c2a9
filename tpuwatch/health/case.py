"""A case is what a rule makes of the facts. `advised` decides whether its rung may be advised at all.

These are the rules of safety, in one place: whatever a rule proposes, what costs something that runs is advised only
with two independent witnesses, with every witness heard that could object, and only where the service allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.health.causes import OTHERS_FAULTS
from tpuwatch.health.evidence import Problem, Witness
from tpuwatch.health.remedies import Step
from tpuwatch.health.verdict import DESTRUCTIVE, STUCK, Rung, Verdict
from tpuwatch.health.words import NAMES, listed

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.verdict import Reason, Sureness

# Logs and notices are hearsay, and Cloud Monitoring is late: one of these has to be among the two.
_WEIGHTY: Final = frozenset({Witness.CLOUD, Witness.RUNTIME, Witness.HOST})
# A node's own tpuwatch that says anything else has a reason why nothing should be interrupted.
_MAY_AGREE: Final = STUCK | {Verdict.UNKNOWN, Verdict.MISCONFIGURED}
_OF_THE_NODE: Final = frozenset({Rung.RESTART_NODE, Rung.RESET_QUEUED_RESOURCE, Rung.RECREATE})
_OF_THE_PROGRAM: Final = frozenset({Rung.END_HOLDER, Rung.RESTART_RUNTIME})


@dataclass(frozen=True, slots=True)
class Case:
    """A verdict as a rule proposes it. Every reason speaks for the verdict; no other may be among them."""

    verdict: Verdict
    sureness: Sureness
    rung: Rung
    summary: str  # without the node's name: "The chips have run nothing for 20 min."
    reasons: tuple[Reason, ...]
    steps: tuple[Step, ...] = ()
    pids: tuple[int, ...] = ()  # of the program that the steps are about; no other is named


def advised(case: Case, facts: Facts) -> tuple[Rung, str]:
    """The rung that may be advised, and a sentence on why it is not the proposed one ("" where it is)."""
    if case.rung not in DESTRUCTIVE:
        return case.rung, ""
    objection = _objection(case, facts)
    return (Rung.ASK, objection) if objection else (case.rung, "")


def steps(case: Case, facts: Facts) -> tuple[Step, ...]:
    """What a person does: where a program that rests may wait for another worker, that one is looked at first."""
    waits = case.rung in _OF_THE_PROGRAM and facts.hosts > 1
    return (Step.OTHER_WORKERS, *case.steps) if waits else case.steps


def of_the_node(facts: Facts) -> tuple[Rung, tuple[Step, ...]]:
    """What renews a node as a whole, as far as the service allows it, and the steps for it."""
    node = facts.cloud
    if node is None:
        return Rung.ASK, (Step.DESCRIBE,)
    anew = (Step.RECREATE_QUEUED,) if node.queued_resource else (Step.DELETE, Step.CREATE)
    if node.state in ("PREEMPTED", "TERMINATED") or (facts.spot and node.state in ("READY", "STOPPED")):
        return Rung.RECREATE, anew
    if node.state != "READY":
        return Rung.ASK, (Step.DESCRIBE,)
    if facts.hosts == 1:
        return Rung.RESTART_NODE, (Step.RESTART_NODE,)
    if node.queued_resource:
        return Rung.RESET_QUEUED_RESOURCE, (Step.RESET_QUEUED_RESOURCE,)
    return Rung.ASK, anew


def _objection(case: Case, facts: Facts) -> str:
    witnesses = {reason.witness for reason in case.reasons}
    if len(witnesses) < 2 or not witnesses & _WEIGHTY:
        return "No second witness speaks for it, so nothing that interrupts is advised."
    if facts.stepping:
        return "Programs run on the chips, so nothing that interrupts is advised."
    if facts.word is not None and facts.word.verdict not in _MAY_AGREE:
        return (
            f"Its own tpuwatch answers and calls it {facts.word.verdict.value}, so nothing that interrupts is advised."
        )
    if case.rung in _OF_THE_NODE and facts.cloud is None:
        return "The Cloud TPU API has not confirmed the node's state, so nothing that interrupts it is advised."
    silent = [NAMES[witness] for witness in _could_object(facts) if not _heard(facts, witness)]
    if silent:
        return f"Nothing that interrupts is advised without a word from {listed(silent)}."
    if case.rung is Rung.END_HOLDER and not facts.holders:
        return "No process is seen to hold the TPU, so there is none to end."
    if case.rung in _OF_THE_PROGRAM and facts.holders and not case.pids:
        return "Nothing tells which of the processes that hold the TPU is at fault, so none is to be ended."
    if case.rung in _OF_THE_PROGRAM and facts.hosts > 1:
        return "The node has several hosts, and a program that rests may wait for another: look at all of them first."
    if case.verdict in STUCK and facts.event(OTHERS_FAULTS) is not None:
        return "This worker reports another one's fault, so nothing that interrupts is advised here."
    return ""


def _could_object(facts: Facts) -> list[Witness]:
    """Witnesses that may know why an interruption would be wrong. What cannot speak of this node cannot object."""
    if not facts.own:
        unheard = facts.evidence.agent.problem in (Problem.OFF, Problem.ABSENT)  # it never told of this node
        return [Witness.CLOUD] if unheard else [Witness.CLOUD, Witness.AGENT]
    local = [Witness.RUNTIME, Witness.HOST, Witness.LOGS]
    cloud = [Witness.CLOUD] if facts.identity.node.value else []
    return cloud + local + ([Witness.METADATA] if facts.has_metadata_server else [])


def _heard(facts: Facts, witness: Witness) -> bool:
    answers = {
        Witness.CLOUD: facts.cloud is not None,
        Witness.RUNTIME: facts.runtime is not None or facts.absent,
        Witness.HOST: facts.host is not None,
        Witness.LOGS: facts.logs is not None,
        Witness.AGENT: facts.agent is not None,
        Witness.METADATA: facts.notices is not None or facts.evidence.notices.problem is Problem.ABSENT,
    }
    return answers[witness]
