"""Contradictions between signals, and signals without an answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tpuwatch.core import capital, clean, ended, length
from tpuwatch.health import reason
from tpuwatch.health.facts import Cpu
from tpuwatch.health.rules.cloud import KNOWN_HEALTH, KNOWN_STATES, is_bad, is_well
from tpuwatch.health.rules.idle import failing
from tpuwatch.libtpu import counted
from tpuwatch.model import STUCK, Problem, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.health.facts import Facts
    from tpuwatch.health.proposal import Proposal
    from tpuwatch.model import Evidence


_UP = frozenset({"READY", "UNKNOWN"})  # states in which a machine runs


def find_contradictions(proposal: Proposal, facts: Facts) -> tuple[str, ...]:
    """Return the signals that contradict each other, a sentence each."""
    return tuple(
        dict.fromkeys(
            (
                *_cloud_against_others(proposal, facts),
                *_cloud_against_peer(proposal, facts),
                *_kubernetes_against_others(facts),
                *_within_the_cloud(facts),
                *_local(facts),
                *_clocks(facts),
            )
        )
    )


def missing_signals(proposal: Proposal, facts: Facts) -> tuple[str, ...]:
    """Return the signals without an answer, and why, and what the others do not cover. Omits the summary's."""
    told = facts.cloud is None and any(one.signal is Signal.CLOUD for one in proposal.reasons)
    known: tuple[Signal, ...] = (Signal.CLOUD,) if told else ()
    if facts.outside_cloud:
        known = (Signal.CLOUD, Signal.METADATA)
    return tuple(
        dict.fromkeys(
            (*_without_answer(facts, known), *_silent_peer(proposal, facts), *_no_endpoint(facts), *_not_covered(facts))
        )
    )


def _cloud_against_others(proposal: Proposal, facts: Facts) -> Iterator[str]:
    state = reason.cloud_state(facts)
    if facts.cloud is None:
        if facts.is_gone and facts.host is not None:
            yield "The API has no such node, and tpuwatch runs on it."
        return
    local = proposal.verdict in STUCK and not any(one.signal is Signal.PEER for one in proposal.reasons)
    if facts.own and is_well(facts) and local and failing(facts) is None:
        yield f"The API says {state}, {_local_problem(facts)}."
    down = facts.cloud.state in KNOWN_STATES - {"READY"} or facts.cloud.health == "UNHEALTHY_MAINTENANCE"
    if facts.running and (down or is_bad(facts)):
        yield f"The API says {state}, and programs run on the chips."
    elif is_bad(facts) and facts.cpu is Cpu.BUSY:
        yield f"The API says {state}, and the program works."
    elif facts.cloud.health == "TIMEOUT" and facts.host is not None:
        yield "The API calls the node unresponsive (TIMEOUT), and tpuwatch runs on it."
    elif facts.cloud.state in KNOWN_STATES - _UP and facts.host is not None:
        yield f"The API says {state}, and this machine is up."
    if facts.notices is not None and facts.notices.preempted and facts.cloud.state == "READY":
        yield f"The API says {state}, the metadata server reports that the node is being preempted."


def _kubernetes_against_others(facts: Facts) -> Iterator[str]:
    """The node's conditions: they say what is wrong with a kubelet or a disk, and nothing of the TPU."""
    for condition in facts.kubernetes.conditions if facts.kubernetes is not None else ():
        yield f"Kubernetes reports of the node: {condition}."


def _cloud_against_peer(proposal: Proposal, facts: Facts) -> Iterator[str]:
    """What the own tpuwatch of a node that is watched from elsewhere has against the cloud's answer."""
    state = reason.cloud_state(facts)
    if is_well(facts) and facts.peer_silent is not None:
        yield f"The API says {state}, and the node's own tpuwatch has been silent for {length(facts.peer_silent)}."
    if facts.peer_verdict is None or not (is_well(facts) if proposal.verdict in STUCK else is_bad(facts)):
        return
    if proposal.verdict not in STUCK or facts.peer_verdict.verdict in STUCK:
        yield f"The API says {state}, and the node's own tpuwatch calls it {facts.peer_verdict.verdict.value}."


def _local_problem(facts: Facts) -> str:
    """Return what is wrong on the node, as the second half of a sentence."""
    port = facts.hung_port
    if port is not None:
        age = facts.age(port.since)
        return "the runtime has not answered" + (f" for {length(age)}" if age is not None else "")
    if facts.idle_seconds is not None:
        return f"the chips have run nothing for {length(facts.idle_seconds)}"
    held = f" for {length(facts.quiet_seconds)}" if facts.quiet_seconds is not None else ""
    return f"a program has held the TPU{held} without a sign of work"


def _within_the_cloud(facts: Facts) -> Iterator[str]:
    node = facts.cloud
    if node is None:
        return
    state = reason.cloud_state(facts)
    if is_well(facts) and facts.symptoms:
        yield f"The API says {state}, and names the symptom {clean(facts.symptoms[0].kind, 40)}."
    if is_well(facts) and reason.infra(facts) is not None:
        yield f"The API says {state}, Cloud Monitoring reports that the infrastructure is unhealthy."
    known = facts.identity.hosts.value
    if known and known != str(node.hosts):
        yield f"The API says that the node has {node.hosts} hosts, this machine knows of {clean(known, 20)}."
    if facts.identity.spot.value and (facts.identity.spot.value == "yes") != node.spot:
        kind = "a spot node" if node.spot else "no spot node"
        yield f"The API says that this is {kind}, the machine knows otherwise."


def _local(facts: Facts) -> Iterator[str]:
    fault = facts.hanging_event
    if facts.running and fault is not None:
        yield f"The log reports {fault.cause.value}, and the chips count as busy: they may wait in a collective."
    if facts.running and facts.hung_port is not None:
        yield f"Programs run on some chips, and port {facts.hung_port.port} does not answer."
    if (loop := facts.stalled_loop) is not None and facts.running:
        waited = length(facts.age(loop.stepped) or 0.0)
        yield f"Programs run on the chips, and the job has made no step for {waited}: it may wait in a collective."
    rest = facts.idle_seconds
    if facts.stepping is not None and rest is not None and rest >= facts.limits.idle_seconds:
        yield f"The job reports steps, and the chips have run nothing for {length(rest)}: it may compute on the CPU."
    stalled = facts.server_stalled_seconds
    if facts.running and stalled is not None and stalled >= facts.limits.idle_seconds:
        yield f"The server has had requests for {length(stalled)} and makes no progress, and programs run on the chips."
    still = [chip for chip in facts.chips if (chip.idle_seconds or 0.0) >= facts.limits.idle_seconds]
    if facts.running and still:
        running = counted(len(facts.running_chips), facts.accelerator)
        yield f"Programs run on {running}, and {len(still)} have run nothing for long."


def _clocks(facts: Facts) -> Iterator[str]:
    for signal, seconds in clock_skews(facts):
        yield f"A time that {signal.row.called} gives lies {length(seconds)} in the future; it is taken as now."


def _without_answer(facts: Facts, known: tuple[Signal, ...]) -> Iterator[str]:
    for signal in Signal:
        answer, row = facts.evidence.answer(signal), signal.row
        if signal in known or (row.local and not facts.own) or answer.problem in row.optional:
            continue
        if answer.problem is Problem.UNCONFIGURED and answer.tried is None:
            yield f"{capital(row.called)} was not asked yet."
        elif answer.problem is not None and not (signal is Signal.CLOUD and facts.is_gone):
            if not (row.of_program and answer.problem is Problem.ABSENT and not facts.has_program):
                yield reason.no_answer(signal, answer.problem, answer.detail, facts.age(answer.at))
        elif answer.problem is None:
            limit = facts.limits.answer_seconds(signal)
            if answer.current(facts.now, limit) is None:
                yield reason.stale_answer(signal, facts.age(answer.at), limit)


def _silent_peer(proposal: Proposal, facts: Facts) -> Iterator[str]:
    """A node's own tpuwatch that no longer answers, where that is not among the reasons."""
    peer = facts.peer
    age = facts.age(peer.silent_since) if peer else None
    if peer is None or age is None or any(one.signal is Signal.PEER for one in proposal.reasons):
        return
    answered = facts.age(peer.answered)
    last = f"; it last did {length(answered)} ago" if answered is not None else ""
    if peer.refuses:
        yield f"The machine is there, and tpuwatch does not run on it any more{last}."
    else:
        yield f"The node's own tpuwatch has not answered for {length(age)}{last}."


def _no_endpoint(facts: Facts) -> Iterator[str]:
    if facts.cloud is not None and facts.cloud.state == "READY" and facts.cloud.lacks_endpoints:
        yield "The API lists no network endpoint of the node."


def _not_covered(facts: Facts) -> Iterator[str]:
    node = facts.cloud
    if node is not None and node.state not in KNOWN_STATES:
        yield f"The API says the state {clean(node.state, 40) or '(none)'}, which tpuwatch does not know."
    if node is not None and node.health not in KNOWN_HEALTH:
        yield f"The API says the health {clean(node.health, 40)}, which tpuwatch does not know."
    elif node is not None and node.state == "READY" and node.health in ("", "HEALTH_UNSPECIFIED"):
        yield "The API says nothing about the node's health."
    for port in facts.runtime.ports if facts.runtime else ():
        if port.problem is Problem.TIMEOUT and facts.hung_port is None:
            why = "no process holds the TPU" if not facts.holders else "others than who holds the TPU listen there"
            yield f"Port {port.port} does not answer, and {why}: it is not libtpu's."
        elif port.problem is not None and port.problem is not Problem.TIMEOUT:
            why = clean(port.detail, reason.ADVICE_LIMIT) or f"the problem is {port.problem.value}"
            yield ended(f"Port {port.port} serves no runtime metrics: {why}")
    if facts.runtime is not None and facts.runtime.chips and not facts.chips:
        yield "The runtime answers, and does not report what the chips do."
    for what in facts.host.unseen if facts.host else ():
        yield ended(capital(clean(what, reason.ADVICE_LIMIT)))
    if facts.own and facts.holders and facts.runtime_absent and facts.lacks_metrics:
        yield "This type of TPU serves no runtime metrics, so it is unknown what runs on the chips."


def clock_skews(facts: Facts) -> Iterator[tuple[Signal, float]]:
    """Signals that give times further in the future than clocks may differ, and by how many seconds at most."""
    for signal, times in _times(facts.evidence):
        seconds = max((when - facts.now for when in times if when is not None and math.isfinite(when)), default=0.0)
        if seconds > facts.limits.skew_seconds:
            yield signal, seconds


def _times(evidence: Evidence) -> Iterator[tuple[Signal, list[float | None]]]:
    """All times that lie in the past when the clocks agree."""
    node, seen = evidence.cloud.value, evidence.monitoring.value
    of_node = [node.changed, node.created, *(symptom.at for symptom in node.symptoms)] if node else []
    yield Signal.CLOUD, [evidence.cloud.at, *of_node]
    yield Signal.MONITORING, [evidence.monitoring.at, *([seen.idle_at, seen.infra_at] if seen else [])]
    peer = evidence.peer.value
    yield Signal.PEER, [evidence.peer.at, *([peer.answered, peer.silent_since] if peer else [])]
    if not evidence.own:
        return
    runtime, host, logs = evidence.runtime.value, evidence.host.value, evidence.logs.value
    yield Signal.RUNTIME, [evidence.runtime.at, *(port.since for port in (runtime.ports if runtime else ()))]
    yield Signal.METADATA, [evidence.notices.at]
    yield Signal.KUBERNETES, [evidence.kubernetes.at]
    yield Signal.SERVER, [evidence.server.at]
    if host:
        begun = (holder.started for holder in host.holders)
        yield Signal.HOST, [evidence.host.at, host.booted, host.last_oom_kill, *begun]
    if logs:
        spoken = (time for one in logs.launches for time in (one.started, one.last_heard))
        yield Signal.LOGS, [evidence.logs.at, *spoken, *(one.when for one in logs.events if not one.history)]
