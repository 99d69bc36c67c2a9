"""Findings and launches for a person at a terminal.

They are printed from their documents, so that a command prints the same whether it found them itself or read them from
the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpuwatch.core import format_seconds, format_size, printable
from tpuwatch.terminal.console import print_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tpuwatch.model import FindingDocument, LaunchDocument, Remedy
    from tpuwatch.terminal.console import Console

SHOWN_ALLOCATIONS = 3
_PADDED = 1.05  # an allocation that is this many times its contents is mentioned
_EXCERPT = 160


def print_finding(console: Console, finding: FindingDocument, *, number: int) -> None:
    """A finding: its cause, numbers, place and remedy."""
    times = f", {finding.count} times" if finding.count > 1 else ""
    console.line(f"{number}. {finding.cause}{finding.confidence.doubt}{times}", style="bold red")
    console.line(finding.summary, indent=3)
    for fact in facts(finding.details, finding.summary):
        console.line(fact, indent=3, hang=2, style="dim")
    _print_place(console, finding)
    print_remedy(console, finding.remedy, indent=3)


def _print_place(console: Console, finding: FindingDocument) -> None:
    """Where a finding was seen first, with the recognised text."""
    first = finding.first
    place = first.file + (f", line {first.line}" if first.line else "")
    excerpt = next((line.strip() for line in first.text.splitlines() if line.strip()), "")
    console.line(f"Seen in {printable(place)}:", indent=3, style="dim")
    console.line(printable(excerpt, _EXCERPT), indent=5, style="dim")


def print_remedy(console: Console, remedy: Sequence[Remedy], *, indent: int, title: str = "What to do") -> None:
    """What to do, step by step, each with its source."""
    if remedy:
        console.line(f"{title}:", indent=indent, style="bold")
    for number, step in enumerate(remedy, 1):
        print_text(console, f"{number}. {step.do}", indent=indent, hang=3)
        if step.source:
            console.line(step.source, indent=indent + 3, style="dim")


def describe_launch(launch: LaunchDocument) -> str:
    """A launch in one line."""
    named = f" of {launch.workload}" if launch.workload else ""
    process = f"process {launch.pid}" if launch.pid is not None else f"a process of {launch.output}"
    parts = [f"{process}{named}: {launch.outcome}"]
    if launch.cause:
        parts[0] += f" ({launch.cause})"
    if launch.failed_after_start:
        parts[0] += f", then failed ({launch.failed_after_start})"
    if launch.init_seconds is not None:
        parts.append(f"TPU up after {format_seconds(launch.init_seconds)}")
    if launch.chips:
        parts.append(" ".join(filter(None, (str(launch.chips), launch.chip_kind, "chips"))))
    if launch.premapped_bytes:
        parts.append(f"premapped buffer {format_size(launch.premapped_bytes)}")
    if launch.premapped_failures:
        need = launch.premapped_need_bytes
        parts.append("too small" + (f": {format_size(need)} were needed" if need else ""))
    if launch.exit_status:
        parts.append(f"ended with {launch.exit_status}")
    return ", ".join(parts)


def facts(details: Mapping[str, Any], summary: str) -> Iterator[str]:
    """A finding's numbers and names that are not in its summary, and its largest allocations."""
    numbers = [fact for name, value in details.items() if (fact := _fact(name, value)) and fact[1] not in summary]
    if numbers:
        yield ", ".join(f"{name} {value}" for name, value in numbers)
    allocations = [_allocation(one) for one in details.get("allocations", ())[:SHOWN_ALLOCATIONS]]
    said = "\n".join((summary, *allocations))
    names = [f"{name}: {printable(value, _EXCERPT)}" for name, value in _names(details) if value not in said]
    if names:
        yield "; ".join(names)
    yield from allocations


def _fact(name: str, value: object) -> tuple[str, str] | None:
    word, _, unit = name.rpartition("_")
    if word == "largest":  # the list of allocations begins with it
        return None
    if isinstance(value, (int, float)) and unit == "bytes":
        return word.replace("_", " "), format_size(value)
    if isinstance(value, (int, float)) and unit == "seconds":
        return word.replace("_", " "), format_seconds(value)
    return None


def _names(details: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names in the details: of an op, a module, a device, a host."""
    for name, value in details.items():
        if isinstance(value, str) and value and not name.startswith("padded_"):  # one of the list of allocations
            yield name.replace("_", " "), value


def _allocation(allocation: Mapping[str, Any]) -> str:
    what = " in ".join(filter(None, map(allocation.get, ("shape", "op")))) or "a buffer"
    text = f"{format_size(allocation['size_bytes'])} for {what}"
    expansion = allocation.get("expansion")
    return f"{text}, {expansion:.1f} times its contents by padding" if expansion and expansion > _PADDED else text


def print_findings(
    console: Console,
    findings: Iterable[FindingDocument],
    launches: Iterable[LaunchDocument],
    *,
    complete: bool = True,
) -> None:
    """A whole diagnosis. `complete`: of all that there is to read."""
    number = 0
    for number, finding in enumerate(findings, 1):
        if number > 1:
            console.line()
        print_finding(console, finding, number=number)
    if number == 0 and complete:
        console.line("Nothing is wrong that tpuwatch knows of.", style="green")
    elif number == 0:
        console.line("Nothing was found in what could be read.")
    launches = list(launches)
    if launches:
        console.line()
        console.line("Launches", style="bold")
    for launch in launches:
        console.line(describe_launch(launch), indent=3)
