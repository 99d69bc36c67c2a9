"""What `tpuwatch preflight` prints for a person, from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpuwatch.core import capital, format_seconds, format_size, printable
from tpuwatch.terminal.findings import facts, print_remedy
from tpuwatch.terminal.table import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.model import PreflightDocument, PreflightResultDocument, TrialDocument
    from tpuwatch.terminal.console import Console

_COLUMNS = ("TPU", "TOPOLOGY", "FITS", "NEEDED", "AVAILABLE", "USE", "COMPILED")
_STYLES = {True: "green", False: "red", None: "yellow"}
_PARTS = (
    ("arguments_bytes", "arguments"),
    ("outputs_bytes", "outputs"),
    ("shared_bytes", "of which in the place of donated arguments"),
    ("temporaries_bytes", "temporaries"),
    ("code_bytes", "code"),
)
_MAX_LINES, _MAX_LENGTH = 8, 200  # of what the child printed, from its end


def print_preflight(console: Console, document: PreflightDocument) -> None:
    """A table of all TPUs, and below it what each needs, or why it does not fit and what to do."""
    results = document.results
    print_table(console, _COLUMNS, [(_STYLES[result.fits], _cells(result)) for result in results])
    for result in results:
        console.line()
        console.line(_headline(document.function, result), style=f"bold {_STYLES[result.fits]}")
        if result.problem is not None:
            _print_problem(console, result.problem, document.python)
        elif result.trial is not None and result.fits:
            _print_memory(console, result.trial)
        elif result.trial is not None:
            _print_refusal(console, result, result.trial)
        if len(result.trials) > 1:
            tried = ", ".join(f"{one.batch} {'fits' if one.fits else 'does not'}" for one in result.trials)
            console.line(f"Tried: {tried}.", indent=3, hang=2, style="dim")


def _cells(result: PreflightResultDocument) -> list[str]:
    trial = result.trial
    answer = {True: "yes", False: "no", None: "unknown"}[result.fits]
    if trial is None:
        return [result.tpu, result.topology, answer, "", "", "", ""]
    needed, available = trial.needed_bytes, trial.available_bytes
    share = f"{needed / available:.0%}" if needed and available else ""
    sizes = ["" if size is None else format_size(size).replace(" ", "") for size in (needed, available)]
    return [
        result.tpu,
        result.topology,
        answer,
        *sizes,
        share,
        format_seconds(trial.compile_seconds).replace(" ", ""),
    ]


def _headline(function: str, result: PreflightResultDocument) -> str:
    trial, tpu = result.trial, result.tpu
    if result.fits is None or trial is None:
        return f"{tpu}: whether {function} fits could not be found out."
    batch = f" with batch {trial.batch}" if trial.batch is not None else ""
    needed, available = (
        "an unknown amount" if size is None else format_size(size)
        for size in (trial.needed_bytes, trial.available_bytes)
    )
    verb = "fits" if result.fits else "does not fit"
    if result.largest_batch is not None:
        beyond = any(not one.fits for one in result.trials)
        batch = f" fits with batch {trial.batch}"
        verb = "and with no larger one" if beyond else "and was not tried with a larger one (--max-batch)"
    if trial.memory_space and trial.memory_space != "hbm":
        return f"{tpu}: {function}{batch} {verb}: {trial.memory_space.upper()}, memory of the chip itself, ran out."
    if trial.needed_bytes is None:
        return f"{tpu}: {function}{batch} {verb}."
    return f"{tpu}: {function}{batch} {verb}: it needs {needed} of HBM on each device, and {available} is there."


def _print_memory(console: Console, trial: TrialDocument) -> None:
    parts = [f"{name} {format_size(size)}" for key, name in _PARTS if (size := getattr(trial, key))]
    if parts:
        console.line(f"{capital(', '.join(parts))}.", indent=3)
    if trial.unfinished is not None:
        console.line(
            f"Its memory is assigned, its code was not made ({printable(trial.unfinished)}): it may yet be "
            "refused for the MiB that the code takes, or for the memory of the chip itself.",
            indent=3,
            hang=2,
            style="yellow",
        )
    _print_devices(console, trial)


def _print_devices(console: Console, trial: TrialDocument) -> None:
    if trial.devices > 1 and not trial.sharded:
        console.line(
            f"Compiled for one of its {trial.devices} devices, with all arguments on that one: so runs each "
            "device of a data parallel job.",
            indent=3,
            style="dim",
        )


def _print_refusal(console: Console, result: PreflightResultDocument, trial: TrialDocument) -> None:
    for finding in result.findings:
        console.line(finding.summary, indent=3)
        for fact in facts(finding.details, finding.summary):
            console.line(fact, indent=3, hang=2, style="dim")
        print_remedy(console, finding.remedy, indent=3)
    if not result.findings:
        console.line(trial.message.splitlines()[0], indent=3)
    _print_devices(console, trial)


def _print_problem(console: Console, problem: Mapping[str, Any], python: str) -> None:
    place = problem["place"]
    where = f" ({place['file']}, line {place['line']})" if place else ""
    console.line(f"At the stage {problem['stage']!r}: {printable(problem['message'])}{where}", indent=3)
    if problem["kind"] == "interpreter":
        console.line(
            "Install JAX and libtpu there, for PyTorch torchax too, or name the interpreter that has them:", indent=3
        )
        console.row(f"     {python} -m pip install jax libtpu")
        console.row("     tpuwatch preflight … --python PATH")
    if not place:  # else the output is the traceback of what is said already
        for line in problem["output"].strip().splitlines()[-_MAX_LINES:]:
            console.row(f"     {printable(line)[:_MAX_LENGTH]}", style="dim")
