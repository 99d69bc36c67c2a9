"""What `tpuwatch probe` prints for a person, from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import capital, format_seconds, listed, printable
from tpuwatch.model import Remedy
from tpuwatch.terminal.findings import print_remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.terminal.console import Console

_STYLES: Final = {"works": "green", "inconclusive": "yellow"}  # red for the others
_WORDS: Final = {
    "works": "The TPU works",
    "tpu_fault": "The TPU is at fault",
    "stack_fault": "The software or the host is at fault",
    "program_fault": "The program is at fault",
    "wrong_build": "The framework is a build without TPUs",
    "no_tpu": "There is no TPU",
    "inconclusive": "It could not be found out",
}
_SHOWN_LINES: Final = 8
_SHOWN_FINDINGS: Final = 3
_SHOWN_DIFFERENCES: Final = 5


def print_probe(console: Console, document: Mapping[str, Any]) -> None:
    """The verdict, why, what was done where with its seconds, and what to do."""
    verdict = document["verdict"]
    console.line(f"{_WORDS[verdict]} ({verdict}).", style=f"bold {_STYLES.get(verdict, 'red')}")
    console.line(document["summary"], indent=3)
    for difference in document["differences"][:_SHOWN_DIFFERENCES]:
        console.line(difference["what"], indent=5, style="dim")
    for attempt in document["attempts"]:
        console.line()
        _print_attempt(console, attempt)
    console.line()
    print_remedy(console, [Remedy(**step) for step in document["remedy"]], indent=0)
    if not document["recorded"]:
        console.line("tpuwatch's daemon does not learn of it: that takes `sudo tpuwatch probe`.", style="dim")
    elif document["objection"]:
        objection = printable(document["objection"])
        console.line(f"It is stored, and is no evidence for the judge: {objection}", style="dim")


def _print_attempt(console: Console, attempt: Mapping[str, Any]) -> None:
    facts, problem = attempt["facts"], attempt["problem"]
    where = "On the TPU" if attempt["platform"] == "tpu" else "On the CPU"
    known = [f"{facts.get('framework')} {facts.get('version', '')}".strip()] if "framework" in facts else []
    known += [f"Python {facts['python']}"] if "python" in facts else []
    with_what = f", with {printable(listed(known))}" if known else ""
    went = "all went well" if problem is None else f"it failed in the stage {problem['stage']!r}"
    console.line(f"{where}{with_what}: {went}.", style="bold")
    stages = ", ".join(f"{one['name']} {format_seconds(one['seconds'])}" for one in attempt["stages"])
    if stages:
        console.line(f"{capital(stages)}.", indent=3, style="dim")
    if problem is None:
        return
    console.line(
        printable(problem["message"].strip().splitlines()[0] if problem["message"].strip() else "", 400), indent=3
    )
    for finding in attempt["findings"][:_SHOWN_FINDINGS]:
        console.line(f"{finding['cause']}: {finding['summary']}", indent=3)
    if not attempt["ended"]:
        console.line("Its process cannot be ended: a call in the kernel has blocked it.", indent=3)
    if not attempt["findings"]:
        for line in attempt["output"].strip().splitlines()[-_SHOWN_LINES:]:
            console.row(f"     {printable(line)}", style="dim")
