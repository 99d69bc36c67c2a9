"""The daemon's status for a person at a terminal: in brief, or all of it. Printed from the daemon's documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import counted, format_age, format_time, printable
from tpuwatch.model import is_bad
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.findings import describe_launch, print_finding
from tpuwatch.terminal.node import print_brief_node, print_machine, print_node, print_other_nodes
from tpuwatch.terminal.queued_resources import print_queued_problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import KnownFindingDocument, LaunchDocument, NodeDocument, StatusDocument
    from tpuwatch.terminal.console import Console

_MAX_NODES: Final = 3  # other bad nodes, the worst first
_MAX_FINDINGS: Final = 3
_MAX_LISTED: Final = 3  # launches and files
_BRIEF_LOOPS: Final = 1
_MAX_LOOPS: Final = 8


def print_status(
    console: Console, status: StatusDocument, findings: Sequence[KnownFindingDocument], nodes: Sequence[NodeDocument]
) -> None:
    """What is wrong, the verdict on the own node, and what to do first. `nodes`: the worst of the watched ones."""
    print_headline(console, status)
    if status.node:
        print_brief_node(console, status.node, status.now)
    print_training(console, status, _BRIEF_LOOPS)
    print_others(console, status, nodes)
    present = [one for one in findings if not one.over]
    for finding in present[:_MAX_FINDINGS]:
        print_brief_finding(console, finding, status.now)
    if len(present) > _MAX_FINDINGS:
        console.line(f"and {len(present) - _MAX_FINDINGS} more findings: tpuwatch status --verbose", style="red")
    past = len(findings) - len(present)
    more = f", {past} past finding{'s' * (past > 1)}" if past else ""
    console.line(f"--verbose: all reasons, machine, signals, launches{more}", style="dim")


def print_whole_status(
    console: Console,
    address: str,
    status: StatusDocument,
    findings: Sequence[KnownFindingDocument],
    nodes: Sequence[NodeDocument],
    launches: Sequence[LaunchDocument],
    next_launches: Sequence[str],
) -> None:
    """All of it."""
    print_headline(console, status)
    console.line(
        f"tpuwatch {status.version} at http://{address}/, up since {format_time(status.started)}",
        style="dim",
    )
    console.line(status.state, style="dim")
    console.line()
    if status.node:
        print_node(console, status.node, status.now, signals=status.signals)
    print_machine(console, status)
    print_training(console, status, _MAX_LOOPS)
    print_others(console, status, nodes)
    present = [one for one in findings if not one.over]
    for number, finding in enumerate(present, 1):
        console.line()
        print_finding(console, finding, number=number)
        console.line(f"last at {format_time(finding.seen)}", indent=3, style="dim")
    _print_past(console, [one for one in findings if one.over], status.now)
    _print_list(console, "Next launch", [printable(sentence) for sentence in next_launches])
    listed = [f"{format_time(one.started)}  {describe_launch(one)}" for one in launches[:_MAX_LISTED]]
    _print_list(console, "Launches, the newest first", listed)
    problems = [printable(f"{one.path}: {one.reason}") for one in status.problems[:_MAX_LISTED]]
    _print_list(console, "Not read", problems, style="yellow")


def print_headline(console: Console, status: StatusDocument) -> None:
    wrong = any(status.problem_counts.values())
    lost = status.node is not None and status.node.slice is not None and status.node.slice.states["silent"]
    well = status.judged and not status.unknown_nodes and not lost
    style = "red" if wrong else "green" if well else "yellow"
    console.line(status.headline, style=f"bold {style}")
    blind = [spot.sentence for spot in status.blind_spots]
    for line in [*blind, *status.not_ready, *status.notices, *status.restarts]:
        print_text(console, line, style="yellow")


def print_training(console: Console, status: StatusDocument, limit: int) -> None:
    """How far the training loops have come, a line each, those that run first."""
    loops = status.training
    for loop in loops[:limit]:
        title = "Training" if loop.running else "Last training"
        console.line(f"{title}: {loop.sentence}", indent=3, hang=2, style="yellow" if loop.faults else "dim")
    if status.goodput is not None and status.goodput.sentence:
        console.line(status.goodput.sentence, indent=3, hang=2, style="dim")
    if any(loop.running for loop in loops[limit:]):
        console.line(f"{counted(len(loops) - limit, 'more training loop')}; --json lists them.", indent=3, style="dim")


def print_others(console: Console, status: StatusDocument, nodes: Sequence[NodeDocument]) -> None:
    """The worst of the other nodes, how many more are bad, and queued resources that have a problem."""
    others = [node for node in nodes if not node.own and is_bad(node.verdict)][:_MAX_NODES]
    print_other_nodes(console, others)
    own = status.node
    more = status.problem_counts.get("node", 0) - len(others) - (1 if own and is_bad(own.verdict) else 0)
    if more > 0:
        console.line(f"and {more} more: tpuwatch nodes --problems", style="red")
    print_queued_problems(console, status.queued_resources)


def print_brief_finding(console: Console, finding: KnownFindingDocument, now: float) -> None:
    """A finding in one line, and the first thing to do."""
    times = f"{finding.count} times, last " if finding.count > 1 else ""
    text = f"{finding.cause}{finding.confidence.doubt} ({times}{format_age(now - finding.seen)} ago): {finding.summary}"
    console.line(text, hang=3, style="red")
    if finding.remedy:
        print_text(console, f"Do: {finding.remedy[0].do}", indent=3, hang=4)


def _print_past(console: Console, findings: Sequence[KnownFindingDocument], now: float) -> None:
    """Findings that are over, a line each, and why."""
    lines = [
        printable(
            f"{one.cause}{one.confidence.doubt} ({format_age(now - one.seen)} ago): {one.summary} {one.over_because}"
        )
        for one in findings
    ]
    _print_list(console, "Past, last 24 h", lines)


def _print_list(console: Console, title: str, lines: Sequence[str], *, style: str = "") -> None:
    if lines:
        console.line()
        console.line(title, style="bold")
    for line in lines:
        console.line(line, indent=2, hang=2, style=style)
