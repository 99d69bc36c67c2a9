"""The JSON documents of the commands and of the HTTP API, and the sentences that summarise restarts and next launches.

Sizes are bytes, durations seconds, times as in tpuwatch.core.json_text. Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, format_size, length, times
from tpuwatch.model import Blocked, Phase
from tpuwatch.restart import owner_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpuwatch.model import (
        Attempt,
        Chip,
        CloudNode,
        DaemonStatus,
        Event,
        Finding,
        Holder,
        Host,
        Identity,
        JudgedNode,
        Judgement,
        Launch,
        Maintenance,
        Peer,
        Remedy,
        RestartDecision,
        RestartRecord,
        RestartsStatus,
        Runtime,
        SignalStatus,
        SizeDecision,
        TunedStatus,
        TuneStatus,
    )


_MAX_SENTENCES: Final = 10  # of a kind, for people
_RESTART_TEXT: Final = 300
_PHASES: Final = {
    Phase.REQUESTED: "is asked for",
    Phase.INTENT: "is about to begin",
    Phase.STOPPING: "stops the node",
    Phase.STOPPED: "is about to start the node",
    Phase.STARTING: "starts the node",
    Phase.VERIFYING: "verifies that the node stays healthy",
}


_TUNE_TEXT: Final = 500
_MAX_REASONS: Final = 20
_STATUS_WORKLOADS: Final = 10  # in the status document


def event(event: Event) -> dict[str, Any]:
    """An event with everything that the store holds of it."""
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


def node(node: JudgedNode) -> dict[str, Any]:
    """A watched node: its verdict with reasons and remedy, and its state in the cloud."""
    return {
        "node": node.node,
        "project": node.project,
        "zone": node.zone,
        "own": node.own,
        **judgement(node.judgement),
        "cloud": cloud_node(node.cloud) if node.cloud else None,
        "peer": _peer(node.peer) if node.peer else None,
    }


def judgement(judgement: Judgement) -> dict[str, Any]:
    """A verdict with its reasons, contradictions and remedy."""
    return {
        "verdict": judgement.verdict.value,
        **times("judged", judgement.at),
        **times("since", judgement.since),
        "confidence": judgement.confidence.value,
        "action": judgement.action.value,
        "summary": judgement.summary,
        "reasons": [
            {"signal": reason.signal.value, "text": reason.text, **times("at", reason.at)}
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


def signal(signal: SignalStatus) -> dict[str, Any]:
    """A signal: when it last answered, and why it did not when it was asked last."""
    return {
        "name": signal.name,
        "problem": signal.problem.value if signal.problem else None,
        "detail": signal.detail,
        **times("at", signal.at),
        **times("tried", signal.tried),
    }


def runtime(runtime: Runtime) -> dict[str, Any]:
    """What the runtime metrics of the processes that hold the TPU report."""
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
    """The machine: who holds the TPU, memory, kills, and what could not be examined."""
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


def _peer(peer: Peer) -> dict[str, Any]:
    word = peer.verdict
    return {
        **times("answered", peer.answered),
        **times("silent_since", peer.silent_since),
        "refuses": peer.refuses,
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


def status(status: DaemonStatus) -> dict[str, Any]:
    """The daemon's state as JSON."""
    store = status.store
    not_ready = status.not_ready()
    return {
        "version": status.version,
        "state": status.state,
        "ready": not not_ready,
        "not_ready": not_ready,
        **times("now", status.now),
        **times("started", status.started),
        "uptime_seconds": status.uptime_seconds,
        "loops": [
            {"name": loop.name, "fresh": loop.fresh, **times("last_success", loop.last_success)}
            for loop in status.loops
        ],
        "files": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "read_bytes": file.read_bytes,
                "lag_bytes": file.lag_bytes,
                **times("last_written", file.last_written),
            }
            for file in status.files
        ],
        "problems": [{"path": problem.path, "reason": problem.reason} for problem in status.problems],
        "notices": list(status.notices),
        "config_source": status.config_source,
        "store": {
            "path": store.path,
            "durable": store.durable,
            "events": store.events,
            "detail": store.detail,
        },
        "last_launch": launch(status.last_launch) if status.last_launch else None,
        "identity": identity(status.identity) if status.identity else None,
        "node": node(status.node) if status.node else None,
        "signals": [signal(one) for one in status.signals],
        "runtime": runtime(status.runtime) if status.runtime else None,
        "host": host(status.host) if status.host else None,
        "restarts": restart_sentences(status.restarts, status.now) if status.restarts else [],
        "tune": tune(status.tune, status.now, _STATUS_WORKLOADS) if status.tune else None,
    }


def restarts(status: RestartsStatus, now: float, limit: int) -> dict[str, Any]:
    """Open and past restarts, and the latest decisions: `limit` nodes of each."""
    records = sorted(status.records, key=lambda one: (not one.open, -max(one.entered, one.requested)))
    breaker = status.breaker
    return {
        **times("now", now),
        "mode": "act" if status.acts else "observe",
        **times("ledger_read", status.read),
        "ledger_problem": status.problem or None,
        "breaker": {
            "open": breaker is not None and breaker.opened is not None,
            **times("opened", breaker.opened if breaker is not None else None),
            "reason": breaker.reason if breaker is not None else "",
        },
        "restarts": [restart(one) for one in records[:limit]],
        "decisions": [{"label": label, **restart_decision(one)} for label, one in status.decisions[:limit]],
    }


def restart(record: RestartRecord) -> dict[str, Any]:
    """What the ledger holds of one node."""
    target = record.target
    return {
        "node": target.node,
        "zone": target.zone,
        "project": target.project,
        "action": record.action.value,
        "phase": record.phase.value,
        "open": record.open,
        "cause": record.cause,
        "reason": record.reason,
        "evidence": list(record.evidence),
        "signals": list(record.signals),
        "actor": record.actor,
        **times("requested", record.requested),
        **times("entered", record.entered),
        "driver": owner_words(record.lease.owner) if record.lease.owner else None,
        "operations": list(record.operations),
        "stops": record.stops,
        "tries": record.tries,
        **times("not_before", record.not_before or None),
        "note": record.note,
        "history": [_restart_attempt(one) for one in record.history],
    }


def restart_decision(decision: RestartDecision) -> dict[str, Any]:
    """The latest decision on one node."""
    return {
        **times("at", decision.at),
        "verdict": decision.verdict,
        "wanted": decision.wanted.value,
        "act": decision.act.value if decision.act is not None else None,
        "blocked": decision.blocked.value if decision.blocked is not None else None,
        "sentence": decision.sentence,
        "person_needed": decision.needs_operator,
        **times("retry", decision.retry_at),
        "signals": list(decision.signals),
        "evidence": list(decision.evidence),
        "against": list(decision.against),
        "held_seconds": decision.held_seconds,
    }


def restart_sentences(status: RestartsStatus, now: float) -> list[str]:
    """What an operator should know, a sentence each, most important first; empty if there is nothing."""
    breaker = status.breaker
    sentences: list[str] = []
    if breaker is not None and breaker.opened is not None:
        sentences.append(
            f"The breaker has been open for {length(now - breaker.opened)}: tpuwatch restarts nothing by itself. "
            f"{clean(breaker.reason, _RESTART_TEXT)} When that is seen to: `tpuwatch restarts reset-breaker`."
        )
    if status.problem:
        sentences.append(f"Nothing can be restarted: {clean(status.problem, _RESTART_TEXT)}.")
    sentences += _truncated([_under_way(one, now) for one in status.records if one.open], "restarts are under way")
    return sentences + _truncated(list(_blocked(status.decisions)), "nodes need a person")


def _under_way(record: RestartRecord, now: float) -> str:
    what = clean(record.action.value.replace("_", " "), 40)
    sentence = f"{clean(record.target.node, 80)}: {what} {_PHASES[record.phase]}, for {length(now - record.entered)}."
    return f"{sentence} {clean(record.note, _RESTART_TEXT)}".rstrip()


def _blocked(decisions: Sequence[tuple[str, RestartDecision]]) -> Iterator[str]:
    """Nodes on which an operator must know why nothing is done."""
    for label, one in decisions:
        if one.needs_operator and one.blocked is not None and one.blocked is not Blocked.BREAKER:
            yield f"{label}: {one.sentence}"


def _truncated(sentences: list[str], what: str) -> list[str]:
    more = len(sentences) - _MAX_SENTENCES
    if more <= 0:
        return sentences
    return [*sentences[:_MAX_SENTENCES], f"{more} more {what}: `/api/v1/restarts` lists them."]


def _restart_attempt(one: Attempt) -> dict[str, Any]:
    return {
        "action": one.action.value,
        "phase": one.phase.value,
        "cause": one.cause,
        **times("began", one.began),
        **times("ended", one.ended),
        "stops": one.stops,
        "actor": one.actor,
    }


def tune(status: TuneStatus, now: float, limit: int) -> dict[str, Any]:
    """What is decided for the next launches of `limit` workloads, most recently launched first."""
    return {
        **times("now", now),
        "mode": "act" if status.acts else "observe",
        "directory": status.directory,
        "problems": [clean(one, _TUNE_TEXT) for one in status.problems],
        "workloads": [workload(one) for one in status.workloads[:limit]],
    }


def workload(one: TunedStatus) -> dict[str, Any]:
    """A workload: its plan and the launches behind it."""
    plan = one.plan
    return {
        "workload": plan.workload,
        **times("decided", plan.decided),
        "launches": one.launches,
        **times("last_launch", one.last_launch),
        "environment_file": one.file or None,
        "problem": clean(one.problem, _TUNE_TEXT) or None,
        "settings": [
            {"name": setting.name, "value": clean(setting.value, _TUNE_TEXT), "why": clean(setting.why, _TUNE_TEXT)}
            for setting in plan.settings
        ],
        "decision": size_decision(plan.decision),
    }


def size_decision(decision: SizeDecision) -> dict[str, Any]:
    """What is decided about the premapped buffer, and why."""
    return {
        **asdict(decision),
        "step": decision.step.value,
        "reasons": [clean(one, _TUNE_TEXT) for one in decision.reasons[:_MAX_REASONS]],
        "conflict": clean(decision.conflict, _TUNE_TEXT) or None,
    }


def describe_buffer(size_bytes: int | None) -> str:
    """The premapped buffer in a few words."""
    if size_bytes is None:
        return "libtpu's default"
    return format_size(size_bytes) if size_bytes else "none"


def tune_sentences(document: dict[str, Any], limit: int) -> list[str]:
    """A `document` in sentences, one for each of `limit` workloads; empty where nothing is decided."""
    found: Sequence[dict[str, Any]] = document["workloads"]
    sentences = [_describe_workload(one) for one in found[:limit]]
    if len(found) > limit:
        sentences.append(f"… and {len(found) - limit} more workloads: `tpuwatch tune` lists them.")
    return [*document["problems"], *sentences]


def _describe_workload(one: dict[str, Any]) -> str:
    made = one["decision"]
    why = " ".join([*made["reasons"][:1], *filter(None, [made["conflict"]])])
    trial = ", on trial" if made["trial"] else ""
    size = describe_buffer(made["size_bytes"])
    return f"{one['workload']}: {made['step']}{trial}, premapped buffer {size}. {why}".rstrip()
