"""What speaks against a verdict or is not there: contradictions between witnesses, and witnesses that are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.health import clocks, testimony
from tpuwatch.health.causes import HARDWARE_FAULTS, OTHERS_FAULTS
from tpuwatch.health.evidence import Problem, Witness
from tpuwatch.health.facts import Cpu
from tpuwatch.health.rules_cloud import KNOWN_HEALTH, KNOWN_STATES, is_bad, is_well
from tpuwatch.health.rules_free import failing
from tpuwatch.health.verdict import STUCK, Verdict
from tpuwatch.health.words import NAMES, capital, clean, ended, length, silence, stale

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.health.case import Case
    from tpuwatch.health.facts import Facts

_LOCAL = (Witness.RUNTIME, Witness.HOST, Witness.LOGS, Witness.METADATA)
_UP = frozenset({"READY", "UNKNOWN"})  # states in which a machine runs


def contradictions(case: Case, facts: Facts) -> tuple[str, ...]:
    """Who says the opposite of whom."""
    return tuple(
        dict.fromkeys(
            (
                *_against_the_cloud(case, facts),
                *_of_the_agent(case, facts),
                *_within_the_cloud(facts),
                *_local(facts),
                *_clocks(facts),
            )
        )
    )


def missing(case: Case, facts: Facts) -> tuple[str, ...]:
    """Which witness is silent, and why; and what those that spoke could not tell. What the case tells is left out."""
    told: tuple[Witness, ...] = (Witness.CLOUD,) if case.verdict is Verdict.MISCONFIGURED else ()
    if facts.outside:
        told = (Witness.CLOUD, Witness.METADATA)
    return tuple(dict.fromkeys((*_silent(facts, told), *_fallen_silent(case, facts), *_not_told(facts))))


def _against_the_cloud(case: Case, facts: Facts) -> Iterator[str]:
    word = testimony.cloud_word(facts)
    if facts.cloud is None:
        if facts.gone and facts.host is not None:
            yield "The API has no such node, and tpuwatch runs on it."
        return
    if facts.own and is_well(facts) and case.verdict in STUCK and failing(facts) is None:
        yield f"The API says {word}, {_other_side(facts)}."
    down = facts.cloud.state in KNOWN_STATES - {"READY"} or facts.cloud.health == "UNHEALTHY_MAINTENANCE"
    if facts.stepping and (down or is_bad(facts)):
        yield f"The API says {word}, and programs run on the chips."
    elif is_bad(facts) and facts.host is not None and facts.cpu is Cpu.WORKING:
        yield f"The API says {word}, and the machine works."
    elif facts.cloud.health == "TIMEOUT" and facts.host is not None:
        yield "The API calls the node unresponsive (TIMEOUT), and tpuwatch runs on it."
    elif facts.cloud.state in KNOWN_STATES - _UP and facts.host is not None:
        yield f"The API says {word}, and this machine is up."
    if facts.notices is not None and facts.notices.preempted and facts.cloud.state == "READY":
        yield f"The API says {word}, the metadata server says that the node is being preempted."


def _of_the_agent(case: Case, facts: Facts) -> Iterator[str]:
    """What the node's own tpuwatch has against the cloud's word, on a node that is watched from elsewhere."""
    word = testimony.cloud_word(facts)
    if is_well(facts) and facts.silent is not None:
        yield f"The API says {word}, and the node's own tpuwatch has been silent for {length(facts.silent)}."
    if facts.word is None or not (is_well(facts) if case.verdict in STUCK else is_bad(facts)):
        return
    if case.verdict not in STUCK or facts.word.verdict in STUCK:
        yield f"The API says {word}, and the node's own tpuwatch calls it {facts.word.verdict.value}."


def _other_side(facts: Facts) -> str:
    """What is so bad on the node, as the second half of a sentence."""
    port = facts.hung
    if port is not None:
        age = facts.age(port.since)
        return "the runtime has not answered" + (f" for {length(age)}" if age is not None else "")
    if facts.idle is not None:
        return f"the chips have run nothing for {length(facts.idle)}"
    held = f" for {length(facts.quiet)}" if facts.quiet is not None else ""
    return f"a program has held the TPU{held} without a sign of work"


def _within_the_cloud(facts: Facts) -> Iterator[str]:
    node = facts.cloud
    if node is None:
        return
    word = testimony.cloud_word(facts)
    if is_well(facts) and facts.symptoms:
        yield f"The API says {word}, and names the symptom {clean(facts.symptoms[0].kind, 40)}."
    if is_well(facts) and testimony.infra(facts) is not None:
        yield f"The API says {word}, Cloud Monitoring says that the infrastructure is unhealthy."
    told = facts.identity.hosts.value
    if told and told != str(node.hosts):
        yield f"The API says that the node has {node.hosts} hosts, this machine knows of {clean(told, 20)}."
    if facts.identity.spot.value and (facts.identity.spot.value == "yes") != node.spot:
        kind = "a spot node" if node.spot else "no spot node"
        yield f"The API says that this is {kind}, the machine knows otherwise."


def _local(facts: Facts) -> Iterator[str]:
    told = facts.event(OTHERS_FAULTS | HARDWARE_FAULTS)
    if facts.stepping and told is not None:
        yield f"The log told of {told.cause.value}, and the chips count as busy: they may wait in a collective."
    if facts.stepping and facts.hung is not None:
        yield f"Programs run on some chips, and port {facts.hung.port} does not answer."
    still = [chip for chip in facts.chips if (chip.idle_seconds or 0.0) >= facts.limits.idle_seconds]
    if facts.stepping and still:
        yield f"Programs run on {len(facts.working_chips)} chips, and {len(still)} have run nothing for long."


def _clocks(facts: Facts) -> Iterator[str]:
    for witness, seconds in clocks.ahead(facts):
        yield f"A time that {NAMES[witness]} gives lies {length(seconds)} in the future; it is taken as now."


def _silent(facts: Facts, told: tuple[Witness, ...]) -> Iterator[str]:
    limits = facts.limits
    ages = {
        Witness.CLOUD: limits.cloud_seconds,
        Witness.RUNTIME: limits.runtime_seconds,
        Witness.HOST: limits.host_seconds,
        Witness.LOGS: limits.logs_seconds,
        Witness.METADATA: limits.notices_seconds,
        Witness.MONITORING: limits.monitoring_seconds,
        Witness.AGENT: limits.agent_seconds,
    }
    for witness in (Witness.CLOUD, *(_LOCAL if facts.own else ()), Witness.MONITORING, Witness.AGENT):
        answer = facts.answer(witness)
        if witness in told:
            continue
        if answer.problem is Problem.UNCONFIGURED and answer.tried is None and witness is not Witness.MONITORING:
            yield f"{capital(NAMES[witness])} was not asked yet."
        elif answer.problem is not None and not (witness is Witness.CLOUD and facts.gone):
            off = answer.problem is Problem.OFF and witness is Witness.AGENT
            unused = off or (answer.problem in (Problem.OFF, Problem.UNCONFIGURED) and witness is Witness.MONITORING)
            normal = answer.problem is Problem.ABSENT and witness is Witness.RUNTIME and not facts.program
            if not unused and not normal:
                yield silence(witness, answer.problem, answer.detail, facts.age(answer.at))
        elif answer.problem is None and answer.current(facts.now, ages[witness]) is None:
            yield stale(witness, facts.age(answer.at), ages[witness])


def _fallen_silent(case: Case, facts: Facts) -> Iterator[str]:
    """A node's own tpuwatch that does not answer any more, where that is no reason."""
    agent = facts.agent
    age = facts.age(agent.silent_since) if agent else None
    if agent is None or age is None or any(reason.witness is Witness.AGENT for reason in case.reasons):
        return
    answered = facts.age(agent.answered)
    last = f"; it last did {length(answered)} ago" if answered is not None else ""
    if agent.refuses:
        yield f"The machine is there, and tpuwatch does not run on it any more{last}."
    else:
        yield f"The node's own tpuwatch has not answered for {length(age)}{last}."


def _not_told(facts: Facts) -> Iterator[str]:
    node = facts.cloud
    if node is not None and node.state not in KNOWN_STATES:
        yield f"The API says the state {clean(node.state, 40) or '(none)'}, which tells tpuwatch nothing."
    if node is not None and node.health not in KNOWN_HEALTH:
        yield f"The API says the health {clean(node.health, 40)}, which tells tpuwatch nothing."
    elif node is not None and node.state == "READY" and node.health in ("", "HEALTH_UNSPECIFIED"):
        yield "The API says nothing about the node's health."
    for port in facts.runtime.ports if facts.runtime else ():
        if port.problem is Problem.TIMEOUT and facts.hung is None:
            yield f"Port {port.port} does not answer, and no process holds the TPU: it is not libtpu's."
        elif port.problem is not None and port.problem is not Problem.TIMEOUT:
            why = clean(port.detail) or f"the problem is {port.problem.value}"
            yield ended(f"Port {port.port} serves no runtime metrics: {why}")
    if facts.runtime is not None and facts.runtime.chips and not facts.chips:
        yield "The runtime answers, and does not tell what the chips do."
    for what in facts.host.unseen if facts.host else ():
        yield ended(capital(clean(what)))
    if facts.own and facts.holders and facts.absent and facts.lacks_metrics:
        yield "This type of TPU serves no runtime metrics, so nothing tells what runs on the chips."
