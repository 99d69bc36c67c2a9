"""Nodes for a person at a terminal, told from their JSON documents (tpuwatch.export.jsonable)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpuwatch.export.terminal import printable, tell_remedy
from tpuwatch.export.words import cloud_words, help_words, is_bad, tone, verdict_words
from tpuwatch.health.evidence import Problem
from tpuwatch.health.verdict import Rung
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.export.paper import Paper
    from tpuwatch.export.words import Tone

STYLES: dict[Tone, str] = {"good": "green", "plain": "", "warn": "yellow", "bad": "red"}
COLUMNS = ("NODE", "ZONE", "CLOUD SAYS", "VERDICT", "SINCE", "WHAT WOULD HELP")
_SHOWN = 3  # holders
_BEGINNING = 60  # of a sentence: enough to know it by
_ORDINARY = (Problem.OFF.value, Problem.ABSENT.value)  # nothing that anybody must see to
# How each thing that is known of a machine is told; "{}" stands for its value.
_KNOWN = {
    "project": "project {}",
    "zone": "zone {}",
    "node": "node {}",
    "worker": "worker {}",
    "accelerator": "{}",
    "chips": "chips: {}",
    "hosts": "hosts: {}",
    "spot": "spot: {}",
    "metrics_ports": "metrics at {}",
}


def tell_node(
    paper: Paper, node: Mapping[str, Any], now: float, *, witnesses: Iterable[Mapping[str, Any]] = ()
) -> None:
    """A node: what it is and since when, why tpuwatch thinks so, what speaks against it, and what to do.

    Of silent `witnesses` nothing is told that `tell_machine` tells in full.
    """
    elsewhere = [witness["detail"][:_BEGINNING] for witness in _silent(witnesses)]
    verdict = node["verdict"]
    since = f" since {_when(node['since_epoch'], node['since'], now)}" if node["since"] else ""
    headline = f"{_name(node)}: {verdict_words(verdict)}{since} ({node['sureness']})"
    paper.line(printable(headline), style=f"bold {STYLES[tone(verdict)]}".strip(), hang=3)
    paper.line(printable(node["summary"]), indent=3)
    if node["reasons"] and tone(verdict) != "good":  # what is well is told in few lines
        paper.line("Why:", indent=3, style="bold")
    for reason in node["reasons"]:
        age = f", {_age(reason['at_epoch'], now)}" if reason["at_epoch"] is not None else ""
        paper.line(printable(f"- {reason['text']} ({reason['witness']}{age})"), indent=3, hang=2)
    for contradiction in node["contradictions"]:
        paper.line(printable(f"But: {contradiction}"), indent=3, hang=5, style="yellow")
    for missing in node["missing"]:
        if any(beginning in missing for beginning in elsewhere):
            continue
        paper.line(printable(f"Not known: {missing}"), indent=3, hang=2, style="dim")
    if node["remedy"]:
        aim = "" if node["rung"] == Rung.NOTHING.value else f" ({help_words(node['rung'])})"
        tell_remedy(paper, node, indent=3, title=f"What to do{aim}")
    elif is_bad(verdict):
        paper.line(f"What would help: {help_words(node['rung'])}.", indent=3, style="bold")


def tell_machine(paper: Paper, status: Mapping[str, Any]) -> None:
    """Who this machine is and where each value is from, its chips, who holds them, and witnesses that fail."""
    now = status["now_epoch"]
    for line in [*_identity(status.get("identity")), *_chips(status.get("runtime")), *_holders(status, now)]:
        paper.line(printable(line), indent=3, hang=2, style="dim")
    for witness in _silent(status.get("witnesses", ())):
        text = f"{witness['name']}: {witness['detail']}{_last_word(witness, now)}"
        paper.line(printable(text), indent=3, hang=2, style="yellow")


def _silent(witnesses: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that do not answer though they should, and say why."""
    return [one for one in witnesses if one["problem"] not in (None, *_ORDINARY) and one["detail"]]


def _last_word(witness: Mapping[str, Any], now: float) -> str:
    """How long a witness that was asked has been silent."""
    if witness["tried_epoch"] is None or witness["problem"] == Problem.UNCONFIGURED.value:
        return ""
    if witness["at_epoch"] is None:
        return " It has not answered yet."
    return f" Its last answer came {_age(witness['at_epoch'], now)}."


def tell_others(paper: Paper, nodes: Iterable[Mapping[str, Any]]) -> None:
    """Nodes that are watched from here and are bad, a line each."""
    for node in nodes:
        text = f"Other node {_name(node)}: {verdict_words(node['verdict'])}. {node['summary']}"
        paper.line(printable(f"{text} `tpuwatch nodes {_name(node)}` tells more."), indent=3, hang=2, style="red")


def tell_table(paper: Paper, nodes: Iterable[Mapping[str, Any]], now: float) -> None:
    """One line for each node, in columns as wide as what stands in them."""
    rows = [(tone(node["verdict"]), _row(node, now)) for node in nodes]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *(row for _, row in rows), strict=True)]
    paper.row(_aligned(COLUMNS, widths), style="bold")
    for colour, row in rows:
        paper.row(_aligned(row, widths), style=STYLES[colour])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def _row(node: Mapping[str, Any], now: float) -> tuple[str, ...]:
    cloud = node["cloud"]
    cells = (
        _name(node) + (" (here)" if node["own"] else ""),
        node["zone"] or "-",
        cloud_words(cloud["state"], cloud["health"]) if cloud else "-",
        verdict_words(node["verdict"]),
        _age(node["since_epoch"], now, "") if node["since_epoch"] is not None else "-",
        help_words(node["rung"]),
    )
    return tuple(map(printable, cells))


def _name(node: Mapping[str, Any]) -> str:
    return str(node["node"]) or "this machine"


def _identity(identity: Mapping[str, Any] | None) -> Iterator[str]:
    """What is known of this machine, by where it is known from, in one line."""
    if not identity:
        return
    by_source: dict[str, list[str]] = {}
    for name, words in _KNOWN.items():
        known = identity[name]
        if known["value"]:
            by_source.setdefault(known["source"], []).append(words.format(known["value"]))
    parts = [f"{', '.join(values)} ({source})" for source, values in by_source.items()]
    unknown = [name.replace("_", " ") for name in _KNOWN if not identity[name]["value"]]
    parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
    yield f"Machine: {'; '.join(parts)}."


def _chips(runtime: Mapping[str, Any] | None) -> Iterator[str]:
    """All chips in one line: the fullest, the busiest and the longest idle."""
    chips = [chip for port in runtime["ports"] for chip in port["chips"]] if runtime else []
    if not chips:
        return
    words = ["1 chip" if len(chips) == 1 else f"{len(chips)} chips"]
    sized = [chip for chip in chips if chip["hbm_used_bytes"] is not None and chip["hbm_total_bytes"]]
    if sized:
        full = max(sized, key=lambda chip: chip["hbm_used_bytes"] / chip["hbm_total_bytes"])
        words.append(f"HBM up to {format_size(full['hbm_used_bytes'])} of {format_size(full['hbm_total_bytes'])}")
    duties = [chip["duty_cycle"] for chip in chips if chip["duty_cycle"] is not None]
    if duties:
        words.append(f"duty cycle {_range([f'{duty:.0%}' for duty in (min(duties), max(duties))])}")
    idle = [chip["idle_seconds"] for chip in chips if chip["idle_seconds"] is not None]
    if idle:
        words.append(f"idle for {_range([format_seconds(seconds) for seconds in (min(idle), max(idle))])}")
    yield f"{', '.join(words)}."


def _range(ends: Sequence[str]) -> str:
    """The least and the most, or the one value where they read the same: `3% to 92%`."""
    return " to ".join(dict.fromkeys(ends))


def _holders(status: Mapping[str, Any], now: float) -> Iterator[str]:
    holders = status["host"]["holders"] if status.get("host") else []
    for holder in holders[:_SHOWN]:
        what = " and ".join(filter(None, [", ".join(holder["devices"]), "the lock file" if holder["locks"] else ""]))
        since = f", since {_when(holder['started_epoch'], holder['started'], now)}" if holder["started"] else ""
        yield f"Process {holder['pid']} of {holder['user']} holds {what}{since}: {holder['command']}"
    if len(holders) > _SHOWN:
        yield f"{len(holders) - _SHOWN} more processes hold the TPU; --json lists them."


def _when(epoch: float, iso: str, now: float) -> str:
    """A time of the day, or the date where it is of another one, with its age."""
    return f"{iso[:10]} {iso[11:19]} UTC, {_age(epoch, now)}"


def _age(epoch: float, now: float, word: str = " ago") -> str:
    seconds = now - epoch
    if seconds < 1:  # the clocks of two machines differ a little
        return "now"
    return f"{format_seconds(seconds)}{word}"
