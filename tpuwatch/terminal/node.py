"""Nodes for a person at a terminal, printed from their documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import format_age, format_seconds, format_size, format_time, iso
from tpuwatch.libtpu import counted
from tpuwatch.model import (
    Action,
    PeerState,
    Problem,
    cloud_words,
    is_bad,
    node_label,
    queued_words,
    tone,
    verdict_words,
)
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.findings import print_remedy
from tpuwatch.terminal.table import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpuwatch.model import Identity, NodeDocument, ReasonDocument, SignalStatusDocument, StatusDocument, Tone
    from tpuwatch.terminal.console import Console

STYLES: dict[Tone, str] = {"good": "green", "plain": "", "warn": "yellow", "bad": "red"}
COLUMNS = ("NODE", "ZONE", "ACCELERATOR", "CLOUD", "VERDICT", "AGE", "ACTION")
WIDE_COLUMNS = (*COLUMNS, "KIND", "CONFIDENCE", "SINCE", "HOSTS", "ADDRESS", "RUNTIME-VERSION", "PROJECT")
_MAX_HOLDERS = 3
_BEGINNING = 60  # of a sentence: enough to know it by
_EXPECTED_PROBLEMS = (Problem.OFF.value, Problem.ABSENT.value)  # needs no action
# The format of each known fact about a machine.
_FACTS = {
    "project": "project {}",
    "zone": "zone {}",
    "node": "node {}",
    "worker": "worker {}",
    "accelerator": "{}",
    "chips": "chips: {}",
    "hosts": "hosts: {}",
    "spot": "spot: {}",
    "metrics_ports": "metrics at {}",
    "kubernetes": "node {} of Kubernetes",
}


def print_node(
    console: Console, node: NodeDocument, now: float, *, signals: Iterable[SignalStatusDocument] = ()
) -> None:
    """A node: its verdict and since when, the reasons, the contradictions, and what to do.

    What is unknown because one of `signals` failed is left out: `print_machine` prints it in full.
    """
    printed = [signal.detail[:_BEGINNING] for signal in _failed(signals)]
    verdict = node.verdict
    _print_verdict(console, node, now)
    _print_slice(console, node)
    if node.reasons and tone(verdict) != "good":  # a good verdict takes few lines
        console.line("Why:", indent=3, style="bold")
    for reason in node.reasons:
        age = f", {_age(reason.at, now)}" if reason.at is not None else ""
        console.line(f"- {reason.text} ({_origin(reason)}{age})", indent=3, hang=2)
    for contradiction in node.contradictions:
        console.line(f"But: {contradiction}", indent=3, hang=5, style="yellow")
    for missing in node.missing:
        if any(beginning in missing for beginning in printed):
            continue
        console.line(f"Not known: {missing}", indent=3, hang=2, style="dim")
    if node.remedy:
        aim = "" if node.action == Action.NONE.value else f" ({node.action})"
        print_remedy(console, node.remedy, indent=3, title=f"What to do{aim}")
    elif is_bad(verdict):
        console.line(f"Action: {node.action}.", indent=3, style="bold")


def print_brief_node(console: Console, node: NodeDocument, now: float) -> None:
    """A node in a few lines: its verdict and since when, what it means, the first reason, and the first thing to do."""
    _print_verdict(console, node, now)
    if node.slice is not None and node.slice.workers:
        _print_slice(console, node)
    if tone(node.verdict) in ("bad", "warn"):
        if node.reasons:
            console.line(f"Why: {node.reasons[0].text}", indent=3, hang=5)
        if node.remedy:
            print_text(console, f"Do: {node.remedy[0].do}", indent=3, hang=4)
        elif is_bad(node.verdict):
            console.line(f"Action: {node.action}.", indent=3)


def _print_verdict(console: Console, node: NodeDocument, now: float) -> None:
    verdict = node.verdict
    since = f" since {_when(node.since, now)}" if node.since is not None else ""
    headline = f"{_name(node)}: {_verdict_words(node)}{since} ({node.confidence})"
    console.line(headline, style=f"bold {STYLES[tone(verdict)]}".strip(), hang=3)
    console.line(node.summary, indent=3)


def _print_slice(console: Console, node: NodeDocument) -> None:
    """How it stands with the workers of a node with several."""
    if node.slice is not None:
        lost = node.slice.states[PeerState.SILENT.value] or node.slice.first_failed is not None
        console.line(f"Slice: {node.slice.sentence}", indent=3, hang=2, style="yellow" if lost else "dim")


def _verdict_words(node: NodeDocument) -> str:
    return verdict_words(node.verdict, node.kind, last_known=node.last_known)


def _origin(reason: ReasonDocument) -> str:
    """The signal, with what it rests on where that is something else: `host: kernel; no fault`."""
    others = ", ".join(one for one in reason.sources if one != reason.signal)
    return f"{reason.signal}{f': {others}' if others else ''}{'; no fault' if reason.idle else ''}"


def print_machine(console: Console, status: StatusDocument) -> None:
    """The identity of this machine with the source of each value, its chips, their holders, and failing signals but
    those that are blind spots, which the headline has."""
    now = status.now
    for line in [*_identity(status.identity), *_chips(status), *_holders(status, now)]:
        console.line(line, indent=3, hang=2, style="dim")
    blind = {spot.signal for spot in status.blind_spots}
    for signal in _failed(status.signals):
        if signal.name in blind:
            continue
        text = f"{signal.name}: {signal.detail}{_last_answer(signal, now)}"
        print_text(console, text, indent=3, hang=2, style="yellow")


def _failed(signals: Iterable[SignalStatusDocument]) -> list[SignalStatusDocument]:
    """Signals that should answer and do not, with a reason."""
    return [one for one in signals if one.problem not in (None, *_EXPECTED_PROBLEMS) and one.detail]


def _last_answer(signal: SignalStatusDocument, now: float) -> str:
    """When a failed signal last answered."""
    if signal.tried is None or signal.problem == Problem.UNCONFIGURED.value:
        return ""
    if signal.at is None:
        return " It has not answered yet."
    return f" Its last answer came {_age(signal.at, now)}."


def print_other_nodes(console: Console, nodes: Iterable[NodeDocument]) -> None:
    """Nodes that are watched from here and are bad, a line each."""
    for node in nodes:
        words = verdict_words(node.verdict, None, last_known=node.last_known)
        text = f"Other node {_name(node)}: {words}. {node.summary}"
        print_text(console, f"{text} The reasons: `tpuwatch nodes {_name(node)}`", indent=3, hang=2, style="red")


def print_nodes(
    console: Console, nodes: Iterable[NodeDocument], now: float, *, wide: bool = False, header: bool = True
) -> None:
    """A table with one line for each node."""
    columns = WIDE_COLUMNS if wide else COLUMNS
    rows = [(STYLES[tone(node.verdict)], [_cell(node, column, now) for column in columns]) for node in nodes]
    print_table(console, columns, rows, header=header)


def _cell(node: NodeDocument, column: str, now: float) -> str:
    cloud = node.cloud
    cells = {
        "NODE": node.node,
        "ZONE": node.zone,
        "ACCELERATOR": cloud and cloud.accelerator,
        "CLOUD": _cloud(node),
        "VERDICT": f"{node.verdict}{',last_known' if node.last_known else ''}",
        "KIND": node.kind,
        "CONFIDENCE": node.confidence,
        "AGE": "" if node.since is None else format_age(now - node.since),
        "ACTION": node.action,
        "SINCE": iso(node.since),
        "HOSTS": cloud and cloud.hosts,
        "ADDRESS": cloud and cloud.address,
        "RUNTIME-VERSION": cloud and cloud.runtime_version,
        "PROJECT": node.project,
    }
    return str(cells[column] or "")


def _cloud(node: NodeDocument) -> str:
    """The node's state in the cloud; of one that is not listed the state of its queued resource, where it is known."""
    if node.queued_resource:
        return queued_words(node.queued_resource.state)
    cloud = node.cloud
    return cloud_words(cloud.state, cloud.health) if cloud else ""


def _name(node: NodeDocument) -> str:
    """What a node is called in a sentence: others with their zone, as commands take them."""
    return str(node.node) if node.own else node_label(node.zone, node.node)


def _identity(identity: Identity | None) -> Iterator[str]:
    """The identity of this machine in one line, grouped by source."""
    if not identity:
        return
    by_source: dict[str, list[str]] = {}
    for name, words in _FACTS.items():
        known = getattr(identity, name)
        if known.value:
            by_source.setdefault(known.source, []).append(words.format(known.value))
    parts = [f"{', '.join(values)} ({source})" for source, values in by_source.items()]
    spared = "node" if identity.kubernetes.value else "kubernetes"  # a machine is of the one or of the other
    unknown = [name.replace("_", " ") for name in _FACTS if name != spared and not getattr(identity, name).value]
    parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
    yield f"Machine: {'; '.join(parts)}."


def _chips(status: StatusDocument) -> Iterator[str]:
    """All chips in one line: the fullest, the busiest and the longest idle."""
    runtime, identity = status.runtime, status.identity
    chips = runtime.chips if runtime else ()
    if not chips:
        return
    words = [counted(len(chips), identity.accelerator.value if identity else "")]
    sizes = ((chip.hbm_used_bytes, chip.hbm_total_bytes) for chip in chips)
    if sized := [(used, total) for used, total in sizes if used is not None and total]:
        used, total = max(sized, key=lambda one: one[0] / one[1])
        words.append(f"HBM up to {format_size(used)} of {format_size(total)}")
    duties = [chip.duty_cycle for chip in chips if chip.duty_cycle is not None]
    if duties:
        words.append(f"duty cycle {_range([f'{duty:.0%}' for duty in (min(duties), max(duties))])}")
    idle = [chip.idle_seconds for chip in chips if chip.idle_seconds is not None]
    if idle:
        words.append(f"idle for {_range([format_seconds(seconds) for seconds in (min(idle), max(idle))])}")
    yield f"{', '.join(words)}."


def _range(ends: Sequence[str]) -> str:
    """The minimum and maximum, or one value if they read the same: `3% to 92%`."""
    return " to ".join(dict.fromkeys(ends))


def _holders(status: StatusDocument, now: float) -> Iterator[str]:
    holders = status.host.holders if status.host else ()
    for holder in holders[:_MAX_HOLDERS]:
        what = " and ".join(filter(None, [", ".join(holder.devices), "the lock file" if holder.locks else ""]))
        since = f", since {_when(holder.started, now)}" if holder.started is not None else ""
        yield f"Process {holder.pid} of {holder.user} holds {what}{since}: {holder.command}"
    if len(holders) > _MAX_HOLDERS:
        yield f"{len(holders) - _MAX_HOLDERS} more processes hold the TPU; --json lists them."


def _when(epoch: float, now: float) -> str:
    """A time with its age."""
    return f"{format_time(epoch)}, {_age(epoch, now)}"


def _age(epoch: float, now: float) -> str:
    seconds = now - epoch
    if seconds < 1:  # the clocks of two machines differ a little
        return "now"
    return f"{format_seconds(seconds)} ago"
