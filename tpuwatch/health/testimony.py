"""What each witness says, in sentences with numbers and ages: the reasons that verdicts are built from.

Every function may be asked only where the facts that it tells are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.health.causes import NODE_SYMPTOMS
from tpuwatch.health.evidence import Witness
from tpuwatch.health.facts import Cpu, number
from tpuwatch.health.words import capital, clean, ended, length, listed
from tpuwatch.model import Outcome

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Maintenance
    from tpuwatch.health.facts import Facts
    from tpuwatch.health.verdict import Reason
    from tpuwatch.model import Event, Launch

_HOLDERS_TOLD = 3
_OUTCOMES = {
    Outcome.STARTING: "is initialising",
    Outcome.OK: "came up",
    Outcome.SLOW: "came up, slowly",
    Outcome.FAILED: "failed",
    Outcome.SILENT: "has not come up",
    Outcome.KILLED: "went away before it came up",
}


def cloud_word(facts: Facts) -> str:
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
    text = f"The API says {cloud_word(facts)}"
    node = facts.cloud
    age = facts.age(node.changed) if node else None
    text += f", for {length(age)} as far as tpuwatch has seen" if age is not None else ""
    described = clean(node.health_description) if node else ""
    return facts.says(Witness.CLOUD, _with(text, described))


def symptom(facts: Facts) -> Reason | None:
    """The newest symptom of the node, if there is one that still counts."""
    for one in facts.symptoms:
        if one.kind in NODE_SYMPTOMS:
            where = f" on worker {clean(one.worker, 40)}" if one.worker else ""
            text = f"The API names the symptom {one.kind}{where}, {_ago(facts, one.at)}"
            return facts.says(Witness.CLOUD, _with(text, clean(one.details)), one.at)
    return None


def stepping(facts: Facts) -> Reason:
    """That chips run programs."""
    chips = facts.working_chips
    if facts.slow:
        least = min(seconds for chip in chips if (seconds := number(chip.idle_seconds)) is not None)
        return facts.says(Witness.RUNTIME, f"The chips ran their latest program {length(least)} ago.")
    duties = [duty for chip in chips if (duty := number(chip.duty_cycle))]
    text = f"Programs run on {len(chips)} of {len(facts.chips)} chips"
    text += f", with a duty cycle of up to {min(max(duties), 1.0):.0%}" if duties else ""
    return facts.says(Witness.RUNTIME, f"{text}.")


def idle(facts: Facts) -> Reason:
    """That no chip runs anything, and for how long."""
    text = f"The {len(facts.chips)} chips have run nothing"
    text += f" for {length(facts.idle)}" if facts.idle is not None else " lately"
    waiting = facts.waiting
    return facts.says(Witness.RUNTIME, text + (f", and {waiting} programs wait." if waiting else "."))


def hung(facts: Facts) -> Reason:
    """That a port takes connections and does not answer."""
    port = facts.hung
    age = facts.age(port.since) if port else None
    text = f"The runtime takes connections on port {port.port if port else 0} and has not answered"
    return facts.says(Witness.RUNTIME, text + (f" for {length(age)}." if age is not None else "."))


def no_metrics(facts: Facts) -> Reason:
    """That nobody serves runtime metrics though the TPU is held."""
    text = "The TPU is held, and no process serves runtime metrics, as one that has initialised would."
    return facts.says(Witness.RUNTIME, text, facts.evidence.runtime.tried)


def holders(facts: Facts) -> Reason:
    """Who holds the TPU, since when, and what they use of the processors."""
    told = []
    for holder in facts.holders[:_HOLDERS_TOLD]:
        what = listed(clean(device, 40) for device in holder.devices[:2]) or "the lock file"
        user = clean(holder.user, 40) or "an unknown user"
        cores = number(holder.cpu_cores)
        age = facts.age(holder.started)
        told.append(
            f"process {holder.pid} ({clean(holder.command, 60)}) of {user} holds {what}"
            + (f", has run for {length(age)}" if age is not None else "")
            + (f", uses {cores:.2f} cores" if cores is not None else "")
        )
    more = len(facts.holders) - len(told)
    text = "; ".join(told) + (f"; and {more} more" if more > 0 else "")
    return facts.says(Witness.HOST, f"{capital(text)}.")


def processors(facts: Facts) -> Reason:
    """What the processors show of the program."""
    if facts.holders:
        return holders(facts)
    busy = number(facts.host.cpu_busy) if facts.host else None
    word = "work" if facts.cpu is Cpu.WORKING else "rest"
    used = (busy or 0.0) * ((facts.host.cores if facts.host else None) or 0)
    return facts.says(Witness.HOST, f"The machine's processors {word}: {used:.1f} cores of them are busy.")


def free(facts: Facts) -> Reason:
    """That nobody holds the TPU, as far as can be seen."""
    unseen = " as far as it could look" if facts.host and facts.host.unseen else ""
    return facts.says(Witness.HOST, f"No process holds the TPU{unseen}.")


def memory(facts: Facts) -> Reason | None:
    """That the machine is or was out of memory, if it was."""
    host = facts.host
    if host is not None and facts.killed:
        text = f"The kernel killed for lack of memory {_ago(facts, host.last_oom_kill)}"
        text += ", once since boot." if host.oom_kills == 1 else f", {host.oom_kills} times since boot."
        return facts.says(Witness.HOST, text, host.last_oom_kill)
    return facts.says(Witness.HOST, "Less than 1 % of the machine's memory is left.") if facts.starved else None


def boot(facts: Facts) -> Reason:
    """When the machine booted."""
    return facts.says(Witness.HOST, f"The machine booted {_ago(facts, facts.booted)}.", facts.booted)


def launch(facts: Facts, one: Launch) -> Reason:
    """How a launch stands."""
    text = f"The launch of process {one.pid} {_OUTCOMES[one.outcome]}; it began {_ago(facts, one.started)}"
    heard = facts.age(one.last_heard)
    text += f" and was last heard of {length(heard)} ago" if heard is not None else ""
    text += "" if facts.lives(one) else ", and its process has ended"
    return facts.says(Witness.LOGS, f"{text}.", one.last_heard or one.started)


def event(facts: Facts, one: Event) -> Reason:
    """What the logs told: the cause, and the beginning of the record."""
    process = f" of process {one.pid}" if one.pid is not None else ""
    text = f"The log{process} told of {one.cause.value} {_ago(facts, one.when)}"
    return facts.says(Witness.LOGS, _with(text, clean(one.text, 120)), one.when)


def announced(facts: Facts, maintenance: Maintenance, witness: Witness) -> Reason:
    """A maintenance that is under way or near."""
    kind = clean(maintenance.kind, 40).lower()
    text = f"A maintenance{f' ({kind})' if kind else ''} is {clean(maintenance.status, 40).lower() or 'announced'}"
    if maintenance.start is not None:
        ahead = maintenance.start - facts.now
        text += f" and begins in {length(ahead)}" if ahead > 0 else f" and began {length(-ahead)} ago"
    return facts.says(witness, f"{text}.")


def infra(facts: Facts) -> Reason | None:
    """That Cloud Monitoring calls the infrastructure unhealthy, if its sample is young enough."""
    seen = facts.monitoring
    if seen is None or seen.infra_healthy is not False:
        return None
    age = facts.age(seen.infra_at)
    if age is None or age > facts.limits.monitoring_seconds:
        return None
    text = f"Cloud Monitoring's sample of {length(age)} ago says that the infrastructure is unhealthy."
    return facts.says(Witness.MONITORING, text, seen.infra_at)


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
    return facts.says(Witness.MONITORING, text, seen.idle_at)


def word(facts: Facts) -> Reason | None:
    """What the node's own tpuwatch makes of it."""
    agent, said = facts.agent, facts.word
    if agent is None or said is None:
        return None
    text = f"Its own tpuwatch calls it {said.verdict.value} ({said.sureness.value})"
    return facts.says(Witness.AGENT, _with(text, clean(said.summary)), agent.answered)


def silent(facts: Facts) -> Reason | None:
    """That the node's own tpuwatch, which has answered, has fallen silent, and for how long."""
    agent = facts.agent
    if agent is None or facts.silent is None:
        return None
    text = f"Its own tpuwatch, which answered until {_ago(facts, agent.answered)}, has been silent since"
    return facts.says(Witness.AGENT, f"{text}, over {agent.tries} questions.")


def told(*reasons: Reason | None) -> tuple[Reason, ...]:
    """Those of the reasons that there are."""
    return tuple(reason for reason in reasons if reason is not None)


def _with(text: str, words: str) -> str:
    """A sentence, with somebody's own words behind it."""
    return ended(f"{text}: {words.rstrip('.')}" if words else text)


def _ago(facts: Facts, when: float | None) -> str:
    age = facts.age(when)
    return f"{length(age)} ago" if age is not None else "at an unknown time"
