"""The documents that tpuwatch prints and serves as JSON: one place for the commands and for the HTTP API.

Sizes are bytes, durations seconds, times and all else as tpuwatch.jsontext has them. Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tpuwatch.jsontext import times

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.export.view import NodeStatus, WitnessStatus
    from tpuwatch.health.evidence import Agent, Chip, CloudNode, Holder, Host, Identity, Maintenance, Runtime
    from tpuwatch.health.verdict import Judgement
    from tpuwatch.model import Event, Finding, Launch, Remedy


def event(event: Event) -> dict[str, Any]:
    """An event with all that the journal knows of it."""
    return {
        "id": event.id,
        "cause": event.cause.value,
        "rule": event.rule,
        **times("time", event.time),
        **times("observed", event.observed),
        "severity": event.severity,
        "pid": event.pid,
        "file": event.file,
        "offset": event.offset,
        "text": event.text,
        "details": event.details,
        "history": event.history,
        "key": event.key.hex(),
    }


def launch(launch: Launch) -> dict[str, Any]:
    """A launch: one process that initialised the TPU, or tried to."""
    return {
        "id": launch.id,
        "pid": launch.pid,
        "user": launch.user,
        "host": launch.host,
        **times("started", launch.started),
        "outcome": launch.outcome.value,
        "cause": launch.cause.value if launch.cause else None,
        "init_seconds": launch.init_seconds,
        "build": launch.build,
        "chips": launch.chips,
        "chip_kind": launch.chip_kind,
        "premapped_bytes": launch.premapped_bytes,
        "premapped_threshold_bytes": launch.premapped_threshold_bytes,
        "premapped_partitions": launch.premapped_partitions,
        **times("last_heard", launch.last_heard),
        "environment": launch.environment,
        "workload": launch.workload,
        "faults": launch.faults,
        "premapped_failures": launch.premapped_failures,
        "premapped_need_bytes": launch.premapped_need_bytes,
        "premapped_asked_bytes": launch.premapped_asked_bytes,
        "boot_id": launch.boot_id,
        **times("ended", launch.ended),
        "exit_status": launch.exit_status,
        "history": launch.history,
    }


def finding(finding: Finding) -> dict[str, Any]:
    """A finding: what is wrong, where it was first seen, and what to do, the first step first."""
    return {
        "cause": finding.cause.value,
        "count": finding.count,
        "summary": finding.summary,
        "first": {**_place(finding.first), "line": finding.line},
        "last": _place(finding.last),
        "details": finding.details,
        "remedy": _steps(finding.remedy),
    }


def diagnosis(findings: Iterable[Finding], launches: Iterable[Launch]) -> dict[str, Any]:
    """What `tpuwatch diagnose --json` prints: findings in the order in which to act, and launches."""
    return {"findings": [finding(one) for one in findings], "launches": [launch(one) for one in launches]}


def node(node: NodeStatus) -> dict[str, Any]:
    """A watched node: what it was judged to be, why, what to do, and what the cloud says of it."""
    return {
        "node": node.node,
        "project": node.project,
        "zone": node.zone,
        "own": node.own,
        **judgement(node.judgement),
        "cloud": cloud_node(node.cloud) if node.cloud else None,
        "agent": _agent(node.agent) if node.agent else None,
    }


def judgement(judgement: Judgement) -> dict[str, Any]:
    """A verdict with all that a person needs to believe it or not."""
    return {
        "verdict": judgement.verdict.value,
        **times("judged", judgement.at),
        **times("since", judgement.since),
        "sureness": judgement.sureness.value,
        "rung": judgement.rung.value,
        "summary": judgement.summary,
        "reasons": [
            {"witness": reason.witness.value, "text": reason.text, **times("at", reason.at)}
            for reason in judgement.reasons
        ],
        "contradictions": list(judgement.contradictions),
        "missing": list(judgement.missing),
        "remedy": _steps(judgement.remedy),
    }


def cloud_node(node: CloudNode) -> dict[str, Any]:
    """A node as the Cloud TPU API shows it."""
    return {
        "name": node.name,
        "state": node.state,
        "health": node.health,
        "health_description": node.health_description,
        "symptoms": [
            {
                "kind": symptom.kind,
                **times("at", symptom.at),
                "worker": symptom.worker,
                "details": symptom.details,
            }
            for symptom in node.symptoms
        ],
        "accelerator": node.accelerator,
        "runtime_version": node.runtime_version,
        "hosts": node.hosts,
        "spot": node.spot,
        "queued_resource": node.queued_resource,
        "address": node.address,
        "maintenance": _maintenance(node.maintenance) if node.maintenance else None,
        **times("created", node.created),
        **times("changed", None if node.changed_unseen else node.changed),
        "labels": dict(node.labels),
    }


def identity(identity: Identity) -> dict[str, Any]:
    """Who this machine is: each value with where it came from; both empty where it is unknown."""
    known = {field.name: getattr(identity, field.name) for field in fields(identity)}
    return {name: {"value": one.value, "source": one.source} for name, one in known.items()}


def witness(witness: WitnessStatus) -> dict[str, Any]:
    """A witness: when it last answered, and why it did not when it was asked last."""
    return {
        "name": witness.name,
        "problem": witness.problem.value if witness.problem else None,
        "detail": witness.detail,
        **times("at", witness.at),
        **times("tried", witness.tried),
    }


def runtime(runtime: Runtime) -> dict[str, Any]:
    """What the processes that hold the TPU tell of it."""
    return {
        "ports": [
            {
                "port": port.port,
                "problem": port.problem.value if port.problem else None,
                "detail": port.detail,
                **times("since", port.since),
                "hlo_queue": port.hlo_queue,
                "chips": [_chip(chip) for chip in port.chips],
            }
            for port in runtime.ports
        ]
    }


def host(host: Host) -> dict[str, Any]:
    """The machine: who holds the TPU, memory, kills, and what could not be looked at."""
    return {
        "boot_id": host.boot_id,
        **times("booted", host.booted),
        "holders": [_holder(holder) for holder in host.holders],
        "lock_file": host.lock_file,
        "cpu_busy": host.cpu_busy,
        "cores": host.cores,
        "memory_total_bytes": host.memory_total_bytes,
        "memory_available_bytes": host.memory_available_bytes,
        "memory_pinned_bytes": host.memory_pinned_bytes,
        "oom_kills": host.oom_kills,
        **times("last_oom_kill", host.last_oom_kill),
        "unseen": list(host.unseen),
    }


def _agent(agent: Agent) -> dict[str, Any]:
    word = agent.word
    return {
        **times("answered", agent.answered),
        **times("silent_since", agent.silent_since),
        "refuses": agent.refuses,
        "verdict": word.verdict.value if word else None,
        "summary": word.summary if word else None,
    }


def _holder(holder: Holder) -> dict[str, Any]:
    return {
        "pid": holder.pid,
        "user": holder.user,
        "command": holder.command,
        **times("started", holder.started),
        "devices": list(holder.devices),
        "locks": holder.locks,
        "cpu_cores": holder.cpu_cores,
    }


def _chip(chip: Chip) -> dict[str, Any]:
    return {field.name: getattr(chip, field.name) for field in fields(chip)}


def _maintenance(maintenance: Maintenance) -> dict[str, Any]:
    return {
        "kind": maintenance.kind,
        "status": maintenance.status,
        **times("start", maintenance.start),
        **times("end", maintenance.end),
        **times("latest_start", maintenance.latest_start),
        "can_reschedule": maintenance.can_reschedule,
    }


def _steps(remedy: Iterable[Remedy]) -> list[dict[str, str]]:
    return [{"do": step.do, "source": step.source} for step in remedy]


def _place(event: Event) -> dict[str, Any]:
    return {"file": event.file, **times("time", event.time), "text": event.text, "rule": event.rule}
