"""What `tpuwatch top` shows of one daemon, a part each, from the daemon's documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_age, format_seconds, format_size, printable
from tpuwatch.libtpu import unit
from tpuwatch.model import Phase, Problem
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.node import print_brief_node
from tpuwatch.terminal.status import print_brief_finding, print_headline, print_others, print_training
from tpuwatch.web import tune_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.model import (
        AttemptDocument,
        Chip,
        DaemonDocument,
        LaunchDocument,
        RestartDocument,
        StatusDocument,
    )
    from tpuwatch.terminal.console import Console

_MAX_FINDINGS: Final = 10
_MAX_LOOPS: Final = 4
_MAX_LAUNCHES: Final = 8
_MAX_RESTARTS: Final = 5
_MAX_WORKLOADS: Final = 3
_MAX_HOLDERS: Final = 3
_FULL: Final = 0.95  # of a chip's HBM
_BAR: Final = (6, 24)  # characters between the brackets
_UNBARRED: Final = 27  # of a chip's line: all but its two bars and its size
_LAUNCH_COLUMNS: Final = ("STARTED", "PID", "WORKLOAD", "TPU UP", "PREMAPPED", "OUTCOME")
_LAUNCH_STYLES: Final = {"ok": "green", "starting": "", "slow": "yellow"}


def print_now(console: Console, documents: DaemonDocument) -> None:
    """What is wrong, the verdict on the own node, what to do first, training, and other nodes that are bad."""
    status = documents.status
    print_headline(console, status)
    if status.node:
        print_brief_node(console, status.node, status.now)
    print_training(console, status, _MAX_LOOPS)
    print_others(console, status, documents.nodes.nodes)


def print_present_findings(console: Console, documents: DaemonDocument) -> None:
    """Findings that are not over, each with the first thing to do; and how many are over."""
    findings, now = documents.findings, documents.status.now
    present = [one for one in findings if not one.over]
    past = len(findings) - len(present)
    title = f"Findings: {len(present)}" if present else "Findings: none"
    console.line(f"{title}{f', and {past} past' if past else ''}", style="bold")
    for finding in present[:_MAX_FINDINGS]:
        print_brief_finding(console, finding, now)
    if len(present) > _MAX_FINDINGS:
        console.line(f"and {len(present) - _MAX_FINDINGS} more: tpuwatch status --verbose", style="red")


def print_chips(console: Console, documents: DaemonDocument) -> None:
    """A line for each chip: HBM and duty cycle with a bar each, how long it has been idle; then who holds it."""
    status = documents.status
    chips = status.runtime.chips if status.runtime else ()
    sizes = [_hbm_words(chip) for chip in chips]
    size = max(map(len, sizes), default=0)
    bar = min(max((console.width - _UNBARRED - size) // 2, _BAR[0]), _BAR[1])
    if chips:
        identity = status.identity
        entry = unit(identity.accelerator.value if identity else "").capitalize()
        first = max(5, len(entry) + 1)
        heads = f"{entry:<{first}}{'HBM':<{bar + 8 - first}}{'':{size}}  {'Duty cycle':<{bar + 7}} {'Idle':>9}"
        console.cut(heads, style="bold")
    else:
        console.line(f"Chips: {_without_chips(status)}", style="bold")
    for chip, words in zip(chips, sizes, strict=True):
        _print_chip(console, chip, words.rjust(size), bar)
    holders = status.host.holders if status.host else ()
    for holder in holders[:_MAX_HOLDERS]:
        console.line(f"Held by process {holder.pid} of {holder.user}: {holder.command}", hang=3, style="dim")
    if len(holders) > _MAX_HOLDERS:
        console.line(f"and by {len(holders) - _MAX_HOLDERS} more processes", style="dim")


def _hbm_words(chip: Chip) -> str:
    used, total = ("?" if one is None else format_size(one) for one in (chip.hbm_used_bytes, chip.hbm_total_bytes))
    return f"{used} of {total}"


def _print_chip(console: Console, chip: Chip, size: str, bar: int) -> None:
    used, total, duty, idle = chip.hbm_used_bytes, chip.hbm_total_bytes, chip.duty_cycle, chip.idle_seconds
    share = used / total if used is not None and total else None
    duty_words = "?" if duty is None else f"{duty:.0%}"
    idle_words = "?" if idle is None else format_seconds(idle)
    console.cut(
        f"{printable(chip.id, 4):>4} {_bar(share, bar)} {size}  {_bar(duty, bar)} {duty_words:>4} {idle_words:>9}",
        style="yellow" if share is not None and share >= _FULL else "",
    )


def _bar(share: float | None, width: int) -> str:
    if share is None:
        return f"[{'?':^{width}}]"
    return f"[{'|' * round(min(max(share, 0.0), 1.0) * width):<{width}}]"


def _without_chips(status: StatusDocument) -> str:
    """Why no chip is known."""
    for signal in status.signals:
        if signal.name == "runtime" and signal.problem not in (None, Problem.OFF.value) and signal.detail:
            return printable(signal.detail)
    return "no process reports any"


def print_recent_launches(console: Console, documents: DaemonDocument) -> None:
    """A line for each of the latest launches, the newest first."""
    launches, now = documents.launches, documents.status.now
    if not launches:
        console.line("Launches: none", style="bold")
        return
    rows = [("bold", _LAUNCH_COLUMNS), *(_launch_row(one, now) for one in launches[:_MAX_LAUNCHES])]
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(_LAUNCH_COLUMNS))]
    for style, cells in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        console.cut(line.rstrip(), style=style)


def _launch_row(launch: LaunchDocument, now: float) -> tuple[str, Sequence[str]]:
    outcome = f"{launch.outcome}: {launch.cause}" if launch.cause else launch.outcome
    if launch.failed_after_start:
        outcome += f", then {launch.failed_after_start}"
    cells = (
        f"{format_age(now - launch.started)} ago",
        "-" if launch.pid is None else str(launch.pid),
        printable(launch.workload, 15) or "-",
        "-" if launch.init_seconds is None else format_seconds(launch.init_seconds),
        format_size(launch.premapped_bytes) if launch.premapped_bytes else "-",
        outcome,
    )
    style = "red" if launch.failed_after_start else _LAUNCH_STYLES.get(launch.outcome, "red")
    return style, [printable(cell, 40) for cell in cells]


def print_recent_restarts(console: Console, documents: DaemonDocument) -> None:
    """Whether tpuwatch restarts by itself, what is left of the budget, and the latest restarts."""
    restarts = documents.restarts
    budget = restarts.budget
    words = f"mode {restarts.mode}"
    if budget:
        window = format_age(budget.window_seconds)
        words += f", {budget.restarts} of {budget.max_restarts} within {window}"
    if restarts.breaker.open:
        words += ", the breaker is open"
    console.line(f"Restarts: {printable(words)}", style="bold")
    lines = sorted(_restarts(restarts.restarts), reverse=True)
    for began, style, text in lines[:_MAX_RESTARTS]:
        console.line(f"{format_age(restarts.now - began)} ago  {text}", hang=3, style=style)


def _restarts(records: Sequence[RestartDocument]) -> Iterator[tuple[float, str, str]]:
    """When each restart began, and it in a line. What a record has of one that has ended, its history has too."""
    for record in records:
        if record.open:
            yield record.began or record.requested, "yellow", _restart_words(record, record)
        for one in record.history:
            yield one.began, _restart_style(one.phase), _restart_words(record, one)


def _restart_style(phase: Phase) -> str:
    return "" if phase is Phase.DONE else "red"


def _restart_words(record: RestartDocument, one: RestartDocument | AttemptDocument) -> str:
    return f"{record.node}: {one.action.value} {one.phase.value} ({one.cause}), by {one.actor}"


def print_next_launches(console: Console, documents: DaemonDocument) -> None:
    """What the next launch of each workload gets, and why."""
    document = documents.status.tune
    sentences = tune_sentences(document, _MAX_WORKLOADS) if document else []
    if not sentences:
        console.line("Next launch: nothing is decided", style="bold")
        return
    console.line("Next launch", style="bold")
    for sentence in sentences:
        print_text(console, sentence, indent=2, hang=2)
