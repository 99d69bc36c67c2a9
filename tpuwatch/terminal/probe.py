"""What `tpuwatch probe` prints for a person, from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, format_seconds, listed, printable
from tpuwatch.model import ProbeVerdict
from tpuwatch.terminal.findings import print_remedy

if TYPE_CHECKING:
    from tpuwatch.model import ProbeAttemptDocument, ProbeReport
    from tpuwatch.terminal.console import Console

_STYLES: Final = {ProbeVerdict.WORKS: "green", ProbeVerdict.INCONCLUSIVE: "yellow"}  # red for the others
_WORDS: Final = {
    ProbeVerdict.WORKS: "The TPU works",
    ProbeVerdict.TPU_FAULT: "The TPU is at fault",
    ProbeVerdict.STACK_FAULT: "The software or the host is at fault",
    ProbeVerdict.PROGRAM_FAULT: "The program is at fault",
    ProbeVerdict.WRONG_BUILD: "The framework is a build without TPUs",
    ProbeVerdict.NO_TPU: "There is no TPU",
    ProbeVerdict.INCONCLUSIVE: "It could not be found out",
}
_SHOWN_LINES: Final = 8
_SHOWN_FINDINGS: Final = 3
_SHOWN_DIFFERENCES: Final = 5


def print_probe(console: Console, document: ProbeReport) -> None:
    """The verdict, why, what was done where with its seconds, and what to do."""
    verdict = document.verdict
    console.line(f"{_WORDS[verdict]} ({verdict.value}).", style=f"bold {_STYLES.get(verdict, 'red')}")
    console.line(document.summary, indent=3)
    for difference in document.differences[:_SHOWN_DIFFERENCES]:
        console.line(difference.what, indent=5, style="dim")
    for attempt in document.attempts:
        console.line()
        _print_attempt(console, attempt)
    console.line()
    print_remedy(console, document.remedy, indent=0)
    if not document.recorded:
        console.line("tpuwatch's daemon does not learn of it: that takes `sudo tpuwatch probe`.", style="dim")
    elif document.objection:
        objection = printable(document.objection)
        console.line(f"It is stored, and is no evidence for the judge: {objection}", style="dim")


def _print_attempt(console: Console, attempt: ProbeAttemptDocument) -> None:
    facts, problem = attempt.facts, attempt.problem
    where = "On the TPU" if attempt.platform == "tpu" else "On the CPU"
    known = [f"{facts.get('framework')} {facts.get('version', '')}".strip()] if "framework" in facts else []
    known += [f"Python {facts['python']}"] if "python" in facts else []
    with_what = f", with {printable(listed(known))}" if known else ""
    went = "all went well" if problem is None else f"it failed in the stage {problem['stage']!r}"
    console.line(f"{where}{with_what}: {went}.", style="bold")
    stages = ", ".join(f"{one.name} {format_seconds(one.seconds)}" for one in attempt.stages)
    if stages:
        console.line(f"{capital(stages)}.", indent=3, style="dim")
    if problem is None:
        return
    console.line(
        printable(problem["message"].strip().splitlines()[0] if problem["message"].strip() else "", 400), indent=3
    )
    for finding in attempt.findings[:_SHOWN_FINDINGS]:
        console.line(f"{finding.cause}: {finding.summary}", indent=3)
    if not attempt.ended:
        console.line("Its process cannot be ended: a call in the kernel has blocked it.", indent=3)
    if not attempt.findings:
        for line in attempt.output.strip().splitlines()[-_SHOWN_LINES:]:
            console.row(f"     {printable(line)}", style="dim")
