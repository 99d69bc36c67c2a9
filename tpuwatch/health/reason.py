"""The reasons of verdicts: what each signal reports, in sentences with numbers and ages.

Call a function only where the facts that it states are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, clean, ended, length, listed, redact
from tpuwatch.health.facts import NODE_SYMPTOMS, number
from tpuwatch.libtpu import counted
from tpuwatch.model import Outcome, ProbeVerdict, Problem, Signal, Source

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Event, Launch, Maintenance, Reason, TrainingLoop, Worker

_MAX_HOLDERS = 3
ADVICE_LIMIT: Final = 1000  # of what a signal says of its own failure, with what to do at the end
_OUTCOMES = {
    Outcome.STARTING: "is initialising",
    Outcome.OK: "came up",
    Outcome.SLOW: "came up, slowly",
    Outcome.FAILED: "failed",
    Outcome.SILENT: "has not come up",
    Outcome.KILLED: "went away before it came up",
}


_FAILURES: Final[dict[Problem, str]] = {
    Problem.OFF: "is switched off in the configuration",
    Problem.UNCONFIGURED: "was not asked, because the project, zone or node is not known",
    Problem.ABSENT: "is not there",
    Problem.GONE: "knows no such node",
    Problem.UNREACHABLE: "cannot be reached",
    Problem.TIMEOUT: "did not answer in time",
    Problem.THROTTLED: "was asked too often",
    Problem.SERVER: "has an error on its side",
    Problem.DENIED: "refuses, because a permission is missing",
    Problem.SCOPE: "refuses, because the access token lacks a scope",
    Problem.CREDENTIALS: "could not be asked, because there are no valid credentials",
    Problem.DISABLED: "is not enabled in the project",
    Problem.NOT_FOUND: "knows no such project or zone",
    Problem.FOREIGN: "is not what answers there",
    Problem.INTERNAL: "could not be asked, because of an error in tpuwatch that its log shows",
}


def cloud_state(facts: Facts) -> str:
    """ "READY and HEALTHY", "READY without a health", "PREEMPTED"."""
    node = facts.cloud
    if node is None:
        return "nothing"
    if node.state == "UNKNOWN" and node.health == "UNHEALTHY_MAINTENANCE":
        return f"{node.state} and {node.health}"
    if node.state != "READY":
        return node.state or "no state"
    return f"READY and {node.health}" if node.health else "READY without a health"


def cloud(facts: Facts) -> Reason:
    """State and health by the API, for how long, and its own description."""
    text = f"The API says {cloud_state(facts)}"
    node = facts.cloud
    age = facts.age(node.changed) if node else None
    text += f", for {length(age)} as far as tpuwatch has seen" if age is not None else ""
    described = clean(node.health_description) if node else ""
    return facts.reason_of(Signal.CLOUD, _with(text, described))


def symptom(facts: Facts) -> Reason | None:
    """The newest symptom of the node, if there is one that still counts."""
    for one in facts.symptoms:
        if one.kind in NODE_SYMPTOMS:
            where = f" on worker {clean(one.worker, 40)}" if one.worker else ""
            text = f"The API names the symptom {one.kind}{where}, {_ago(facts, one.at)}"
            return facts.reason_of(Signal.CLOUD, _with(text, clean(one.details)), one.at)
    return None


def running(facts: Facts) -> Reason:
    """That chips run programs."""
    chips = facts.running_chips
    if facts.rarely_runs:
        least = min(seconds for chip in chips if (seconds := number(chip.idle_seconds)) is not None)
        return _by(
            facts, facts.chips_source, Signal.RUNTIME, f"The chips ran their latest program {length(least)} ago."
        )
    duties = [duty for chip in chips if (duty := number(chip.duty_cycle))]
    text = f"Programs run on {len(chips)} of {counted(len(facts.chips), facts.accelerator)}"
    text += f", with a duty cycle of up to {min(max(duties), 1.0):.0%}" if duties else ""
    return _by(facts, facts.chips_source, Signal.RUNTIME, f"{text}.")


def idle(facts: Facts) -> Reason:
    """No chip runs anything, and for how long. It is a fault only where programs wait."""
    text = f"The {counted(len(facts.chips), facts.accelerator)} have run nothing"
    text += f" for {length(facts.idle_seconds)}" if facts.idle_seconds is not None else " lately"
    waiting = facts.queued_programs
    text += f", and {waiting} programs wait." if waiting else "."
    source = Source.RUNTIME if waiting else facts.chips_source
    return _by(facts, source, Signal.RUNTIME, text, idle=not waiting)


def hung(facts: Facts) -> Reason:
    """A port accepts connections and does not answer."""
    port = facts.hung_port
    age = facts.age(port.since) if port else None
    text = f"The runtime accepts connections on port {port.port if port else 0} and has not answered"
    text += f" for {length(age)}." if age is not None else "."
    return _by(facts, facts.hung_source, Signal.RUNTIME, text)


def blocked(facts: Facts) -> Reason | None:
    """That a call on a device has been blocked in the kernel, and for how long."""
    holder = facts.blocked
    if holder is None:
        return None
    devices = listed(clean(device, 40) for device in holder.devices[:2]) or "the TPU"
    text = f"A call of process {holder.pid} ({clean(holder.command, 60)}) on {devices} has been blocked in the kernel"
    return _by(facts, Source.KERNEL, Signal.HOST, f"{text} for {length(holder.blocked_seconds or 0.0)}.")


def no_metrics(facts: Facts) -> Reason:
    """That no process serves runtime metrics though the TPU is held."""
    text = "The TPU is held, and no process serves runtime metrics, as one that has initialised would."
    sources = frozenset({facts.holders_source})
    return facts.reason_of(Signal.RUNTIME, text, facts.evidence.runtime.tried, sources=sources, idle=True)


def holders(facts: Facts, *, is_fault: bool = False) -> Reason:
    """Who holds the TPU, since when, and what they use of the processors. To rest `is_fault` where they should work."""
    shown = []
    for holder in facts.holders[:_MAX_HOLDERS]:
        what = listed(clean(device, 40) for device in holder.devices[:2]) or "the lock file"
        user = clean(holder.user, 40) or "an unknown user"
        cores = number(holder.cpu_cores)
        age = facts.age(holder.started)
        shown.append(
            f"process {holder.pid} ({clean(holder.command, 60)}) of {user} holds {what}"
            + (f", has run for {length(age)}" if age is not None else "")
            + (f", uses {cores:.2f} cores" if cores is not None else "")
        )
    more = len(facts.holders) - len(shown)
    text = "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
    return _by(facts, facts.holders_source, Signal.HOST, f"{capital(text)}.", idle=not is_fault)


def steps(facts: Facts, loop: TrainingLoop) -> Reason:
    """How far a loop has come, and when it made its latest step, by the job's own word."""
    total = f" of {loop.total}" if loop.total is not None else ""
    who = f"process {loop.pid}" if loop.pid is not None else clean(loop.name, 60)
    text = f"By its own word the training loop of {who} made step {loop.step}{total} {_ago(facts, loop.stepped)}."
    return facts.reason_of(Signal.LOGS, text, loop.stepped)


def free(facts: Facts) -> Reason:
    """That no process holds the TPU, as far as can be seen."""
    unseen = " as far as it could look" if facts.host and facts.host.unseen else ""
    return facts.reason_of(Signal.HOST, f"No process holds the TPU{unseen}.")


def server(facts: Facts) -> Reason:
    """The requests that the server has, and for how long nothing has come of them. Without requests it is no fault."""
    server = facts.server
    who = f"The server ({clean(server.software, 40)})" if server else "The server"
    if server is None or not server.requests:
        return _by(facts, Source.PROCESS, Signal.SERVER, f"{who} reports no requests.", idle=True)
    text = f"{who} reports {server.running} requests that run and {server.waiting} that wait"
    stalled = facts.server_stalled_seconds
    text += f", and no progress for {length(stalled)}." if stalled else "."
    return _by(facts, Source.PROCESS, Signal.SERVER, text, idle=not stalled)


def probe(facts: Facts) -> Reason | None:
    """That a computation on the TPU failed where the CPU does it, by a probe that no user can have forged."""
    one = facts.probe
    if one is None or one.verdict is not ProbeVerdict.TPU_FAULT:
        return None
    text = _with(f"A probe failed on the TPU {_ago(facts, one.ended)}", clean(redact(one.summary)))
    return facts.reason_of(Signal.HOST, text, one.ended, sources=frozenset({Source.PROBE}))


def probe_works(facts: Facts) -> Reason | None:
    """That the TPU computed what it should, by such a probe."""
    one = facts.probe
    if one is None or not facts.probe_works:
        return None
    text = f"A probe had the TPU compute a known value {_ago(facts, one.ended)}, and it was right."
    return facts.reason_of(Signal.HOST, text, one.ended, sources=frozenset({Source.PROBE}))


def memory(facts: Facts) -> Reason | None:
    """That the machine is or was out of memory, if it was. Any user's process can use it up."""
    host = facts.host
    if host is not None and facts.oom_killed:
        text = f"The kernel killed a process for lack of memory {_ago(facts, host.last_oom_kill)}"
        text += ", once since boot" if host.oom_kills == 1 else f", {host.oom_kills} times since boot"
        text += (
            "." if facts.launch_oom_killed else "; its log names it: `sudo dmesg --ctime | grep -i 'killed process'`."
        )
        return facts.reason_of(Signal.HOST, text, host.last_oom_kill, sources=frozenset({Source.PROCESS}))
    if not facts.out_of_memory:
        return None
    return _by(facts, Source.PROCESS, Signal.HOST, "Less than 1 % of the machine's memory is left.")


def boot(facts: Facts) -> Reason:
    """When the machine booted."""
    return facts.reason_of(Signal.HOST, f"The machine booted {_ago(facts, facts.booted_at)}.", facts.booted_at)


def launch(facts: Facts, one: Launch) -> Reason:
    """How a launch stands."""
    text = f"The launch of process {one.pid} {_OUTCOMES[one.outcome]}; it began {_ago(facts, one.started)}"
    silence = facts.age(one.last_heard)
    text += f" and was last seen {length(silence)} ago" if silence is not None else ""
    text += "" if facts.is_alive(one) else ", and its process has ended"
    return facts.reason_of(Signal.LOGS, f"{text}.", one.last_heard or one.started)


def event(facts: Facts, one: Event) -> Reason:
    """What the logs report: the cause, and the beginning of the record."""
    process = f" of process {one.pid}" if one.pid is not None else ""
    text = f"The log{process} reported {one.cause.value} {_ago(facts, one.when)}"
    return facts.reason_of(Signal.LOGS, _with(text, clean(redact(one.text), 120)), one.when)


def announced(facts: Facts, maintenance: Maintenance, signal: Signal) -> Reason:
    """A maintenance that is under way or near."""
    kind = clean(maintenance.kind, 40).lower()
    text = f"A maintenance{f' ({kind})' if kind else ''} is {clean(maintenance.status, 40).lower() or 'announced'}"
    if maintenance.start is not None:
        ahead = maintenance.start - facts.now
        text += f" and begins in {length(ahead)}" if ahead > 0 else f" and began {length(-ahead)} ago"
    return facts.reason_of(signal, f"{text}.")


def infra(facts: Facts) -> Reason | None:
    """That Cloud Monitoring calls the infrastructure unhealthy, if its sample is young enough."""
    seen = facts.monitoring
    if seen is None or seen.infra_healthy is not False:
        return None
    age = facts.age(seen.infra_at)
    if age is None or age > facts.limits.monitoring_seconds:
        return None
    text = f"Cloud Monitoring's sample of {length(age)} ago shows that the infrastructure is unhealthy."
    return facts.reason_of(Signal.MONITORING, text, seen.infra_at)


def monitored_idle(facts: Facts) -> Reason | None:
    """That the chips were idle for long by Cloud Monitoring, if its sample is young enough."""
    seen = facts.monitoring
    age = facts.age(seen.idle_at) if seen else None
    if seen is None or age is None or age > facts.limits.monitoring_seconds:
        return None
    if seen.idle_seconds is None or not seen.idle_seconds >= facts.limits.idle_seconds:
        return None
    text = (
        f"By Cloud Monitoring's sample of {length(age)} ago the chips had run nothing for {length(seen.idle_seconds)}."
    )
    return facts.reason_of(Signal.MONITORING, text, seen.idle_at, idle=True)


def peer_verdict(facts: Facts) -> Reason | None:
    """What the node's own tpuwatch makes of it, and what that rests on: if it is the cloud's word, it is its echo."""
    peer, verdict = facts.peer, facts.peer_verdict
    if peer is None or verdict is None:
        return None
    text = f"Its own tpuwatch calls it {verdict.verdict.value} ({verdict.confidence.value})"
    return facts.reason_of(Signal.PEER, _with(text, verdict.summary), peer.answered, sources=verdict.sources)


def peer_silent(facts: Facts) -> Reason | None:
    """That the node's own tpuwatch, which has answered, has fallen silent, and for how long."""
    peer = facts.peer
    if peer is None or facts.peer_silent is None:
        return None
    text = f"Its own tpuwatch, which answered until {_ago(facts, peer.answered)}, has been silent since"
    return _by(facts, Source.NETWORK, Signal.PEER, f"{text}, over {peer.tries} questions.")


def worker_silent(facts: Facts, worker: Worker) -> Reason:
    """That the tpuwatch of a worker, which has answered, has fallen silent."""
    text = (
        f"The tpuwatch of worker {worker.number}, which answered until {_ago(facts, worker.answered)}, has been silent"
    )
    return _by(facts, Source.NETWORK, Signal.PEER, f"{text} since.")


def worker_verdict(facts: Facts, worker: Worker) -> Reason | None:
    """What the tpuwatch of a worker makes of its machine, and what that rests on."""
    peer = (facts.evidence.workers or {})[worker.number].value
    if peer is None or peer.verdict is None:
        return None
    word = peer.verdict
    text = f"The tpuwatch of worker {worker.number} calls it {word.verdict.value} ({word.confidence.value})"
    return facts.reason_of(Signal.PEER, _with(text, word.summary), peer.answered, sources=word.sources)


def present(*reasons: Reason | None) -> tuple[Reason, ...]:
    """Return the reasons that are not None."""
    return tuple(reason for reason in reasons if reason is not None)


def failure(signal: Signal, problem: Problem) -> str:
    """That a signal gives no answer, and why, as the second half of a sentence."""
    return f"{signal.row.called} {_FAILURES[problem]}"


def no_answer(signal: Signal, problem: Problem, detail: str, last_age: float | None) -> str:
    """A sentence: a signal gave no answer, why, and how old its last good one is."""
    sentence = capital(failure(signal, problem))
    sentence = ended(f"{sentence}: {clean(detail, ADVICE_LIMIT)}" if detail else sentence)
    return sentence + (f" Its last answer is {length(last_age)} old." if last_age is not None else "")


def stale_answer(signal: Signal, age: float | None, limit: float) -> str:
    """A sentence: the answer of a signal is too old to count."""
    old = f"{length(age)} old" if age is not None else "of an unknown time"
    return f"The latest answer of {signal.row.called} is {old}; it counts for {length(limit)}."


def _by(facts: Facts, source: Source, signal: Signal, text: str, *, idle: bool = False) -> Reason:
    return facts.reason_of(signal, text, sources=frozenset({source}), idle=idle)


def _with(text: str, words: str) -> str:
    """A sentence, followed by the source's own words."""
    return ended(f"{text}: {words.rstrip('.')}" if words else text)


def _ago(facts: Facts, when: float | None) -> str:
    age = facts.age(when)
    return f"{length(age)} ago" if age is not None else "at an unknown time"
