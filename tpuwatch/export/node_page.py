"""The status page's parts about nodes: the verdict with its reasons, the watched nodes, this machine, its witnesses."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tpuwatch.export.markup import Markup, element, join
from tpuwatch.export.page_parts import clock, moment, section, since, steps, table, tag
from tpuwatch.export.words import cloud_words, help_words, is_bad, tone, verdict_words, worst_first
from tpuwatch.health.evidence import Problem
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.export.view import NodeStatus, Status, WitnessStatus
    from tpuwatch.health.evidence import Chip, CloudNode, Host, Identity, Runtime
    from tpuwatch.health.verdict import Judgement

MANY: Final = 50  # from here on the table leaves out the nodes that nobody must see to
MAX_ROWS: Final = 200
_NONE: Final = "-"
_CHIP: Final = ("Chip", "HBM in use", "Duty cycle", "Idle for")
_HOLDER: Final = ("Process", "Holds", "Since", "Cores in use", "Command")
_NOTHING_WRONG: Final = (Problem.OFF, Problem.ABSENT)  # reasons for silence that nobody must see to


def node_title(node: NodeStatus) -> str:
    """A node and what it is, in a few words."""
    return f"{node.node or 'This machine'}: {verdict_words(node.judgement.verdict)}"


def node_article(node: NodeStatus, now: float) -> Markup:
    """The verdict on a node: what is wrong, since when, why, what speaks against it, what to do."""
    judgement = node.judgement
    return element(
        "article",
        element("h2", judgement.summary),
        element("p", *_standing(node, now), class_="quiet"),
        *(_full(judgement, now) if is_bad(judgement.verdict) else [_folded("Why tpuwatch thinks so", judgement, now)]),
        element("p", *_cloud(node.cloud, now), class_="quiet") if node.cloud else "",
        class_=f"node {tone(judgement.verdict)}",
    )


def watched_nodes(nodes: Sequence[NodeStatus], now: float) -> Markup:
    """The watched nodes, the worst first; of many only those that are not well."""
    listed = worst_first(nodes)
    if len(nodes) > MANY:
        listed = [node for node in listed if tone(node.judgement.verdict) in ("bad", "warn")][:MAX_ROWS]
    rows = [
        (
            _named(node),
            " / ".join(filter(None, (node.cloud.state, node.cloud.health))) if node.cloud else _NONE,
            join(_verdict(node.judgement), *_since(node.judgement.since, now)),
            _folded(node.judgement.summary, node.judgement, now),
        )
        for node in listed
    ]
    left = len(nodes) - len(rows)
    content = table(("Node", "The cloud says", "Verdict", "Why"), rows, "None of them is in trouble.")
    more = element("p", f"{left} more; ", element("code", "tpuwatch nodes"), " lists all.", class_="quiet")
    return section(f"Watched nodes: {_counts(nodes)}", join(content, more) if left else content)


def machine(status: Status) -> Markup:
    """What is known of this machine: the chips, who holds them, its memory; nothing where nothing is known."""
    runtime, host = status.runtime, status.host
    parts: list[str] = []
    if runtime is not None:
        parts += [table(_CHIP, map(_chip, runtime.chips), "No chip is told of."), *_ports(runtime)]
    if host is not None:
        parts += [table(_HOLDER, _holders(host, status.now), _free(host)), *_host(host, status.now)]
    return section("This machine", join(*parts)) if parts else Markup()


def witnesses(asked: Sequence[WitnessStatus], now: float) -> Markup:
    """Who is asked, when each last answered, and what hinders it."""
    rows = [
        (
            witness.name,
            since(witness.at, now),
            since(witness.tried, now),
            _problem(witness),
        )
        for witness in asked
    ]
    return section("Witnesses", table(("Witness", "Last answer", "Last asked", "State"), rows, "None."))


def identity(identity: Identity) -> Markup:
    """Who this machine is, and where each value came from."""
    known = [(field.name.replace("_", " "), getattr(identity, field.name)) for field in fields(identity)]
    rows = [(name, one.value or "unknown", one.source or _NONE) for name, one in known]
    return section("Who this machine is", table(("What", "Value", "From"), rows, "Nothing is known."))


def _standing(node: NodeStatus, now: float) -> Iterator[str]:
    judgement = node.judgement
    yield join(f"{node.node} ", _verdict(judgement))
    if judgement.since is not None:
        yield join(f" since {clock(judgement.since)}, ", moment(judgement.since, now))
    yield f" · {judgement.sureness.value}"
    if is_bad(judgement.verdict):
        yield f" · what would help: {help_words(judgement.rung)}"


def _full(judgement: Judgement, now: float) -> list[str]:
    """Why, what speaks against it, what to do, what is not known; each only where there is something."""
    reasons = [
        element("li", reason.text, element("span", f" {reason.witness.value}", *_at(reason.at, now), class_="quiet"))
        for reason in judgement.reasons
    ]
    return [
        *_titled("Why", "ul", reasons),
        *_titled("What speaks against it", "ul", [element("li", one) for one in judgement.contradictions]),
        *steps(judgement.remedy),
        *_titled("What is not known", "ul", [element("li", one, class_="quiet") for one in judgement.missing]),
    ]


def _folded(summary: str, judgement: Judgement, now: float) -> Markup:
    full = _full(judgement, now)
    return element("details", element("summary", summary), *full) if full else element("p", summary)


def _titled(title: str, kind: str, items: Sequence[Markup]) -> list[Markup]:
    return [element("h3", title), element(kind, *items)] if items else []


def _at(epoch: float | None, now: float) -> list[str]:
    return [] if epoch is None else [", ", moment(epoch, now)]


def _verdict(judgement: Judgement) -> Markup:
    return tag(verdict_words(judgement.verdict), tone(judgement.verdict))


def _cloud(cloud: CloudNode, now: float) -> Iterator[str]:
    """What the cloud says of the node, in one line."""
    yield f"The cloud says {cloud_words(cloud.state, cloud.health)}"
    if cloud.changed is not None and not cloud.changed_unseen:
        yield join(" since ", moment(cloud.changed, now))
    if cloud.health_description:
        yield f": {cloud.health_description}"
    spot = "spot" if cloud.spot else ""
    request = f"queued resource {cloud.queued_resource}" if cloud.queued_resource else ""
    for part in filter(None, (cloud.accelerator, cloud.runtime_version, spot, request)):
        yield f" · {part}"
    for symptom in cloud.symptoms:
        yield join(f" · worker {symptom.worker} had {symptom.kind}", *_at(symptom.at, now))
    if cloud.maintenance is not None:
        start = cloud.maintenance.start
        yield f" · maintenance {cloud.maintenance.status}" + ("" if start is None else f" from {clock(start)}")


def _named(node: NodeStatus) -> Markup:
    """A node's name, which leads to all that is known of it, with its zone."""
    link = element("a", node.node or _NONE, href=f"/api/v1/nodes?node={quote(node.node, safe='')}")
    here = join(" ", tag("here", "plain")) if node.own else ""
    return join(link, here, element("div", node.zone, class_="quiet"))


def _since(epoch: float | None, now: float) -> list[str]:
    return [] if epoch is None else [" ", moment(epoch, now)]


def _counts(nodes: Sequence[NodeStatus]) -> str:
    counted: dict[str, int] = {}
    for node in worst_first(nodes):
        words = verdict_words(node.judgement.verdict)
        counted[words] = counted.get(words, 0) + 1
    return ", ".join(f"{number} {words}" for words, number in counted.items())


def _chip(chip: Chip) -> tuple[str, ...]:
    return (
        chip.id,
        _memory(chip),
        _NONE if chip.duty_cycle is None else f"{chip.duty_cycle:.0%}",
        _NONE if chip.idle_seconds is None else format_seconds(chip.idle_seconds),
    )


def _memory(chip: Chip) -> str:
    used, total = chip.hbm_used_bytes, chip.hbm_total_bytes
    if used is None:
        return _NONE
    if not total:
        return format_size(used)
    share = used / total
    bar = element("meter", value=f"{min(1.0, max(0.0, share)):.3f}", high="0.95", max="1", min="0", optimum="0")
    return join(bar, f" {format_size(used)} of {format_size(total)}, {share:.0%}")


def _ports(runtime: Runtime) -> Iterator[Markup]:
    """What is to be told of a process's runtime metrics besides its chips."""
    for port in runtime.ports:
        if port.problem is not None:
            yield element("p", tag(port.problem.value, "warn"), f" Port {port.port}: {port.detail}")
        elif port.hlo_queue:
            yield element("p", f"Port {port.port}: {port.hlo_queue} programs wait.", class_="quiet")


def _holders(host: Host, now: float) -> Iterator[tuple[str, ...]]:
    for holder in host.holders:
        held = [*holder.devices, *(["the lock file"] if holder.locks else [])]
        yield (
            f"{holder.pid} {holder.user}",
            ", ".join(held) or _NONE,
            _NONE if holder.started is None else moment(holder.started, now),
            _NONE if holder.cpu_cores is None else f"{holder.cpu_cores:.1f}",
            element("code", holder.command),
        )


def _free(host: Host) -> str:
    """What to say where no holder is seen: that there is none only if all could be looked at."""
    return "No process is seen to hold the TPU." if host.unseen else "No process holds the TPU."


def _host(host: Host, now: float) -> Iterator[Markup]:
    """Memory, kills, uptime; and what could not be looked at."""
    known: list[str] = []
    if host.memory_available_bytes is not None and host.memory_total_bytes is not None:
        known.append(
            f"Memory: {format_size(host.memory_available_bytes)} of {format_size(host.memory_total_bytes)} free"
        )
    if host.memory_pinned_bytes is not None:
        known.append(f"pinned: {format_size(host.memory_pinned_bytes)}")
    if host.oom_kills:
        last = "" if host.last_oom_kill is None else join(", last ", moment(host.last_oom_kill, now))
        known.append(join(f"killed for want of memory: {host.oom_kills}", last))
    if host.booted is not None:
        known.append(join("booted ", moment(host.booted, now)))
    if known:
        yield element("p", known[0], *(join(" · ", one) for one in known[1:]), class_="quiet")
    if host.unseen:
        yield element("p", f"Not seen: {' '.join(host.unseen)}", class_="quiet")


def _problem(witness: WitnessStatus) -> Markup:
    if witness.problem is None:
        return tag("answers", "good") if witness.at is not None else tag("not asked yet", "plain")
    colour = "plain" if witness.problem in _NOTHING_WRONG else "warn"
    return join(tag(witness.problem.value.replace("_", " "), colour), " ", witness.detail)
