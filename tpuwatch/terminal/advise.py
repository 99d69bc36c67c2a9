"""What `tpuwatch advise` prints for a person, from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import capital, format_seconds, format_size, printable
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.table import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import AdviceDocument, AdviceResultDocument, ProgramAdvice, TensorDocument
    from tpuwatch.terminal.console import Console

_FIRST = 10
_COLUMNS = ("SHAPE", "PART", "NUMBER", "BYTES", "PADDED", "TIMES", "AS-WRITTEN", "NEAREST")
_GIVEN = ("asked for", "reported")
_TENSORS = 20
_LEAST_SHOWN = 0.01
_PADDED = 1.1


def print_advice(console: Console, document: AdviceDocument, *, verbose: bool = False) -> None:
    """For each TPU what a step takes at best and what fills the HBM, then the findings, the first ten or all."""
    for number, result in enumerate(document.results):
        if number:
            console.line()
        _print_head(console, document.subject, result)
        _print_tensors(console, result.tensors, verbose=verbose)
        findings = result.findings
        shown = findings if verbose else findings[:_FIRST]
        for place, one in enumerate(shown, 1):
            console.line()
            _print_one(console, one, place)
        if len(shown) < len(findings):
            console.line()
            console.line(f"{len(findings) - len(shown)} more with --verbose.", style="dim")
        _print_checked(console, result)


def _print_checked(console: Console, result: AdviceResultDocument) -> None:
    """Print the rules that looked and those that could not, so that the reader sees what the answer covers."""
    checked, not_checked = result.checked, result.not_checked
    console.line()
    if not checked:
        console.line("Nothing was checked.", indent=3, style="yellow")
    elif not result.findings and result.problem is None:
        console.line("The rules that were checked find nothing to change.", indent=3, style="green")
    if checked:
        console.line(f"Checked: {', '.join(checked)}.", indent=3, hang=2, style="dim")
    for one in not_checked:
        names = f"{', '.join(one.rules)}: " if one.rules else ""
        console.line(f"Not checked: {names}{printable(one.reason)}.", indent=3, hang=2, style="dim")


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{name} ({count} times)"


def _print_head(console: Console, subject: str, result: AdviceResultDocument) -> None:
    batch = f" with batch {result.batch} a device" if result.batch is not None else ""
    console.line(f"{result.tpu}: {printable(subject)}{batch}", style="bold")
    if result.problem is not None:
        place = result.problem["place"]
        where = f" ({place['file']}, line {place['line']})" if place else ""
        text = f"It could not be compiled: {printable(result.problem['message'])}{where}"
        console.line(text, indent=3, style="red")
    line, memory = result.roofline, result.memory
    if line is not None:
        console.line(
            f"At best a step takes {_short(line.seconds)}, an estimate: {line.flops / 1e12:.3g} TFLOPs and "
            f"{format_size(line.moved_bytes)} of HBM a device; the limit is {line.bound}, and the shapes allow "
            f"{line.mxu_bound:.0%} of the matrix units.",
            indent=3,
        )
    elif result.flops is not None and result.problem is None:
        least = result.flops.matrix_flops_at_least
        known = f"FLOPs: at least {least / 1e12:.3g} T; " if least else "FLOPs: "
        missing = ", ".join(_times(name, count) for name, count in result.flops.not_counted.items())
        console.line(f"{known}not counted: {printable(missing)}. So the least time of a step is not known.", indent=3)
    if memory:
        parts = ", ".join(f"{name} {format_size(size)}" for name, size in memory.items() if size)
        console.line(f"HBM: {parts}, of {format_size(result.available_bytes)}.", indent=3)
    if result.fits is False:
        space = (result.memory_space or "hbm").upper()
        console.line(f"It does not fit in the {space}.", indent=3, style="red")
    if result.code_made is False:
        text = (
            "It fits by the memory that is assigned. Its code, which takes some MiB more, was not made; preflight does."
        )
        console.line(text, indent=3, style="dim")
    for sentence in result.corrected:
        console.line(sentence, indent=3, hang=2, style="dim")
    for one in result.not_compiled:
        reason = printable(one.reason.splitlines()[0], 120)
        console.line(f"{capital(one.change)} could not be tried: {reason}", indent=3, hang=2, style="dim")


def _print_tensors(console: Console, tensors: Sequence[TensorDocument], *, verbose: bool) -> None:
    """The tensors that were asked for or reported, or with `verbose` all of a program."""
    shown = tensors[:_TENSORS] if verbose else [one for one in tensors if one.part in _GIVEN]
    if not shown:
        return
    console.line()
    rows = [
        (
            "yellow" if one.expansion > _PADDED else "",
            [
                one.shape,
                one.part.replace(" ", "-"),
                str(one.count),
                _size(one.bytes),
                _size(one.padded_bytes),
                f"{one.expansion:.2f}",
                _size(one.padded_bytes_as_written),
                ",".join(one.nearest) or "-",
            ],
        )
        for one in shown
    ]
    print_table(console, _COLUMNS, rows)


def _size(size: float) -> str:
    return format_size(size).replace(" ", "")


def _print_one(console: Console, one: ProgramAdvice, place: int) -> None:
    gain = f", up to {one.gain:.0%}" if one.gain >= _LEAST_SHOWN else ""
    console.line(f"{place}. {one.id} ({one.of.value}{gain})", style="bold yellow")
    console.line(one.number, indent=3, hang=2)
    console.line(one.reason, indent=3, hang=2)
    print_text(console, one.change, indent=3, hang=2, style="bold")
    if one.place:
        console.line(f"{printable(one.place['file'])}, line {one.place['line']}", indent=3, style="dim")
    console.line(f"{one.source.title}: {one.source.url}", indent=3, hang=2, style="dim")


def _short(seconds: float) -> str:
    """Below a second in milliseconds or microseconds, as steps take."""
    if seconds >= 1:
        return format_seconds(seconds)
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
