"""What `tpuwatch profile` prints for a person, from its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import counted, format_seconds, printable
from tpuwatch.terminal.findings import print_remedy

if TYPE_CHECKING:
    from tpuwatch.model import Profile
    from tpuwatch.terminal.console import Console

PROFILE_SHARES: Final = (  # figures that are shares of the steps' time, and what they are of
    ("input_share", "waiting for input"),
    ("host_share", "computing on the host"),
    ("compile_share", "compiling"),
    ("other_share", "between the steps"),
    ("transfer_share", "passing values to the host"),
    ("idle_share", "device idle"),
    ("mxu_share", "use of the matrix units"),
)
_CATEGORIES: Final = 4


def print_profile(console: Console, document: Profile) -> None:
    """The figures, what took longest, and each finding with its change."""
    figures = document.figures
    took = f", {format_seconds(figures.step_seconds)} each on average" if figures.step_seconds else ""
    console.line(f"{counted(figures.steps, 'step')}{took}, on {printable(figures.hardware)}.", style="bold")
    for name, words in PROFILE_SHARES:
        if (share := getattr(figures, name)) is not None:
            console.line(f"{share:4.0%}  {words}", indent=3)
    for operation in figures.operations:
        where = operation.where.lower()
        console.line(
            f"{operation.share:4.0%}  of the {where}'s time: {printable(operation.name)}", indent=3, style="dim"
        )
    for name, share in figures.categories[:_CATEGORIES]:
        console.line(f"{share:4.0%}  of its operations' time: {printable(name)}", indent=3, style="dim")
    if figures.conclusion:
        console.line(f"xprof says: {printable(figures.conclusion)}", indent=3, style="dim")
    for number, finding in enumerate(document.findings, 1):
        console.line()
        console.line(f"{number}. {printable(finding.summary)}", style="bold yellow")
        print_remedy(console, finding.remedy, indent=3)
    if not document.findings:
        console.line("There is nothing to change by these figures.")
