"""The JSON documents of the commands and of the HTTP API, and the sentences that summarise restarts and next launches.

Sizes are bytes, durations seconds, times as in tpuwatch.core.json_text. Imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tpuwatch.core import clean, format_size, length, printable, redact, times
from tpuwatch.model import Blocked, Breaker, Phase, split_label
from tpuwatch.restart import has_ended, owner_words
from tpuwatch.web.fields import fields, rows
from tpuwatch.web.log_documents import launch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpuwatch.model import (
        CloudNode,
        DaemonStatus,
        Host,
        Identity,
        JudgedNode,
        Judgement,
        Peer,
        Probe,
        Problems,
        RestartBudget,
        RestartDecision,
        RestartRecord,
        RestartsStatus,
        Runtime,
        ScrapeTarget,
        SignalStatus,
        SizeDecision,
        Source,
        TrainingLoop,
        TunedStatus,
        TuneStatus,
    )


_MAX_SENTENCES: Final = 10  # of a kind, for people
_ADVICE: Final = 1000  # what to do stands at its end
_PHASES: Final = {
    Phase.REQUESTED: "is asked for",
    Phase.INTENT: "is about to begin",
    Phase.STOPPING: "stops the node",
    Phase.STOPPED: "is about to start the node",
    Phase.STARTING: "starts the node",
    Phase.VERIFYING: "verifies that the node stays healthy",
}


_MAX_REASONS: Final = 20
_MAX_LOOPS: Final = 20  # in the status document
_STATUS_WORKLOADS: Final = 10  # in the status document


def node(node: JudgedNode) -> dict[str, Any]:
    """A watched node: its verdict with reasons and remedy, and its state in the cloud."""
    return {
        **fields(node, "node project zone own"),
        **_judgement(node.judgement),
        "cloud": cloud_node(node.cloud) if node.cloud else None,
        "queued_resource": fields(node.queued, "name state") if node.queued else None,
        "peer": _peer(node.peer) if node.peer else None,
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": judgement.verdict.value,
        "last_known": judgement.is_last_known,
        **times("judged", judgement.at),
        **fields(judgement, "since confidence action summary"),
        "kind": judgement.kind.value if judgement.kind else None,
        "sources": _values(judgement.sources),
        "reasons": [
            {**fields(one, "signal text at idle"), "sources": _values(one.sources)} for one in judgement.reasons
        ],
        **fields(judgement, "suspect_since counts_from contradictions missing"),
        "unseen": judgement.unseen and fields(judgement.unseen, "signal problem detail"),
        "remedy": rows(judgement.remedy, "do source"),
    }


def _values(sources: Iterable[Source]) -> list[str]:
    return sorted(one.value for one in sources)


def cloud_node(node: CloudNode) -> dict[str, Any]:
    """A node as the Cloud TPU API shows it."""
    maintenance = node.maintenance
    return {
        **fields(node, "name state health health_description"),
        "symptoms": rows(node.symptoms, "kind at worker details"),
        **fields(node, "accelerator runtime_version hosts spot queued_resource address addresses lacks_endpoints"),
        "maintenance": maintenance and fields(maintenance, "kind status start end latest_start can_reschedule"),
        **times("created", node.created),
        **times("changed", None if node.changed_unseen else node.changed),
        "labels": dict(node.labels),
    }


def target(target: ScrapeTarget) -> dict[str, Any]:
    """A target group as Prometheus reads it, with labels for all of its series."""
    url = urlsplit(target.url)
    labels = {"zone": target.zone, "node": target.node, "worker": str(target.worker)}
    if url.scheme != "http":
        labels["__scheme__"] = url.scheme
    if path := url.path.rstrip("/"):
        labels["__metrics_path__"] = f"{path}/metrics"
    return {"targets": [url.netloc], "labels": labels}


def identity(identity: Identity) -> dict[str, Any]:
    """Who this machine is: each value with where it came from; both empty where it is unknown."""
    return asdict(identity)


def signal(signal: SignalStatus) -> dict[str, Any]:
    """A signal: when it last answered, and why it did not when it was asked last."""
    return fields(signal, "name problem detail at tried")


def runtime(runtime: Runtime) -> dict[str, Any]:
    """What the runtime metrics of the processes that hold the TPU report."""
    ports = [
        {**fields(port, "port problem detail since hlo_queue"), "chips": [asdict(chip) for chip in port.chips]}
        for port in runtime.ports
    ]
    return {"ports": ports}


def _probe(probe: Probe) -> dict[str, Any]:
    return {
        **fields(probe, "id framework boot_id verdict began ended"),
        "summary": redact(probe.summary),
        "objection": probe.objection or None,
    }


def host(host: Host) -> dict[str, Any]:
    """The machine: who holds the TPU, memory, kills, and what could not be examined."""
    return {
        **fields(host, "boot_id booted"),
        "holders": [
            {
                **fields(one, "pid user command started devices locks cpu_cores trusted blocked_seconds"),
                "kind": one.kind.value if one.kind else None,
            }
            for one in host.holders
        ],
        **fields(
            host,
            "lock_file memory_total_bytes memory_available_bytes memory_pinned_bytes oom_kills last_oom_kill unseen",
        ),
        "listeners": rows(host.listeners, "port since"),
        "probe": _probe(host.probe) if host.probe is not None else None,
    }


def training_loop(loop: TrainingLoop, now: float) -> dict[str, Any]:
    """How far a training loop has come by its own word, and in one line."""
    return {
        **fields(loop, "source name pid user began step total stepped heard loss tokens_per_second step_seconds"),
        **fields(loop, "usual_step_seconds input_share done alive"),
        "running": loop.is_running,
        "faults": [cause.value for cause in loop.faults],
        "sentence": loop.sentence(now),
    }


def _peer(peer: Peer) -> dict[str, Any]:
    word = peer.verdict
    return {
        **fields(peer, "answered silent_since refuses boot_id"),
        "verdict": word.verdict.value if word else None,
        "summary": word.summary if word else None,
        "sources": _values(word.sources) if word else [],
    }


def status(status: DaemonStatus) -> dict[str, Any]:
    """The daemon's state as JSON."""
    not_ready = status.not_ready()
    return {
        **fields(status, "version host_name state"),
        "ready": not not_ready,
        "not_ready": not_ready,
        **fields(status, "now started uptime_seconds"),
        "loops": rows(status.loops, "name fresh last_success"),
        "files": rows(status.files, "path size_bytes read_bytes lag_bytes last_written"),
        "problems": rows(status.problems, "path reason"),
        "notices": list(status.notices),
        "config_source": status.config_source,
        "store": fields(status.store, "path durable events detail"),
        "last_launch": launch(status.last_launch) if status.last_launch else None,
        "identity": identity(status.identity) if status.identity else None,
        "node": node(status.node) if status.node else None,
        "signals": [signal(one) for one in status.signals],
        "runtime": runtime(status.runtime) if status.runtime else None,
        "host": host(status.host) if status.host else None,
        "training": [training_loop(one, status.now) for one in status.training[:_MAX_LOOPS]],
        "restarts": restart_sentences(status.restarts, status.now) if status.restarts else [],
        "ledger_problem": (status.restarts.ledger_problem or None) if status.restarts else None,
        "tune": tune(status.tune, status.now, _STATUS_WORKLOADS) if status.tune else None,
    }


def problems(found: Problems) -> dict[str, Any]:
    """What is wrong now: in one line, and how much of each kind."""
    return {
        "headline": found.headline,
        "problem_counts": found.counts,
        "judged": found.judged,
        "watched_nodes": found.watched,
        "unknown_nodes": len(found.unknown),
        "blind_spots": rows(found.blind_spots, "signal problem detail last_known unknown sentence"),
    }


def restarts(status: RestartsStatus, now: float, limit: int) -> dict[str, Any]:
    """Open and past restarts, and the latest decisions: `limit` nodes of each."""
    records = sorted(status.records, key=lambda one: (not one.open, -max(one.entered, one.requested)))
    breaker = status.breaker or Breaker()
    return {
        **times("now", now),
        "mode": "act" if status.acts else "observe",
        **times("ledger_read", status.read),
        "ledger_problem": status.ledger_problem or None,
        "unrecorded": list(status.alarms),
        "breaker": {
            "open": breaker.opened is not None,
            **times("opened", breaker.opened),
            "reason": breaker.reason,
        },
        "budget": status.budget and _budget(status.budget),
        "restarts": [restart(one) for one in records[:limit]],
        "decisions": [{**_place(label), **restart_decision(one)} for label, one in status.decisions[:limit]],
    }


def _place(label: str) -> dict[str, str]:
    zone, name = split_label(label)
    return {"node": name, "zone": zone}


def _budget(budget: RestartBudget) -> dict[str, Any]:
    return fields(budget, "restarts max_restarts window_seconds node_window_seconds breaker_opens")


def restart(record: RestartRecord) -> dict[str, Any]:
    """What the ledger holds of one node."""
    return {
        **fields(record.target, "node zone project"),
        **fields(record, "action phase open cause reason evidence signals sources actor requested entered"),
        **times("began", record.began or None),
        "driver": owner_words(record.lease.owner) if record.lease.owner else None,
        "driver_ended": has_ended(record.lease.owner),
        **fields(record, "operations stops tries failure"),
        **times("not_before", record.not_before or None),
        "note": record.note,
        "history": rows(record.history, "action phase cause began ended stops actor reason note"),
    }


def restart_decision(decision: RestartDecision) -> dict[str, Any]:
    """The latest decision on one node."""
    return {
        **fields(decision, "at verdict wanted act blocked sentence"),
        "person_needed": decision.needs_operator,
        **times("retry", decision.retry_at),
        **fields(decision, "signals sources evidence against held_seconds"),
    }


def restart_sentences(status: RestartsStatus, now: float) -> list[str]:
    """What an operator should know, a sentence each, most important first; empty if there is nothing."""
    breaker = status.breaker or Breaker()
    sentences = list(status.alarms)
    if breaker.opened is not None:
        sentences.append(
            f"The breaker has been open for {length(now - breaker.opened)}: tpuwatch restarts nothing by itself. "
            f"{clean(breaker.reason, _ADVICE)} When that is seen to: `tpuwatch restarts reset-breaker`."
        )
    if status.problem:
        sentences.append(clean(status.ledger_problem, _ADVICE))
    sentences += _truncated([_under_way(one, now) for one in status.records if one.open], "restarts are under way")
    return sentences + _truncated(list(_blocked(status.decisions)), "nodes need a person")


def _under_way(record: RestartRecord, now: float) -> str:
    what = clean(record.action.value.replace("_", " "), 40)
    sentence = f"{clean(record.target.node, 80)}: {what} {_PHASES[record.phase]}, for {length(now - record.entered)}."
    return f"{sentence} {clean(record.note, _ADVICE)}".rstrip()


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


def tune(status: TuneStatus, now: float, limit: int) -> dict[str, Any]:
    """What is decided for the next launches of `limit` workloads, most recently launched first."""
    return {
        **times("now", now),
        "mode": "act" if status.acts else "observe",
        "directory": status.directory,
        "problems": [clean(one, _ADVICE) for one in status.problems],
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
        "problem": clean(one.problem, _ADVICE) or None,
        "settings": [
            {"name": setting.name, "value": printable(setting.value), "why": clean(setting.why, _ADVICE)}
            for setting in plan.settings
        ],
        "decision": size_decision(plan.decision),
    }


def size_decision(decision: SizeDecision) -> dict[str, Any]:
    """What is decided about the premapped buffer, and why."""
    return {
        **asdict(decision),
        "step": decision.step.value,
        "reasons": [clean(one, _ADVICE) for one in decision.reasons[:_MAX_REASONS]],
        "conflict": clean(decision.conflict, _ADVICE) or None,
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
