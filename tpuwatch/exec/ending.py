"""After the command's end: the record of the run, the decision on the next launch, and the summary on standard error.

Nothing here changes how the command ended.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tpuwatch.core import ConfigError, TpuwatchError
from tpuwatch.exec.messages import PREFIX, print_message
from tpuwatch.exec.next_launch import (
    decide,
    decided_by_daemon,
    needs_decision,
    tuning_lines,
    undecided_message,
    with_decision,
)
from tpuwatch.exec.oom_finding import with_oom_finding
from tpuwatch.exec.recording import launches_of, write_run
from tpuwatch.exec.run_result import findings_to_report
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.exec.run_result import RunResult
    from tpuwatch.model import TunePlan

_SHOWN = 3  # findings


def conclude(prepared: PreparedRun, end: RunResult, config: Path | None, report: Path | None) -> None:
    """Print what was wrong, record the run, decide the next launch where no daemon does, and print that.

    A decision takes longer than all else, and nobody who waits for the cause waits for it, but where the decision is
    what to do about the cause.
    """
    end = with_oom_finding(prepared, end)
    launches = launches_of(prepared, end)
    causes = {one.cause for one in findings_to_report(end)}
    waits = Cause.PREMAPPED_EXHAUSTED.value in causes
    if not waits and causes:
        print_cause(end)
    trouble = write_run(prepared, end, launches)
    plan: TunePlan | None = None
    if not trouble and launches:
        try:
            plan = decide(prepared, config) if prepared.own else decided_by_daemon(prepared, launches, waits=waits)
        except TpuwatchError as error:
            trouble = f"{error}."
    if waits:
        print_cause(with_decision(end, launches, plan, prepared.command))
    if prepared.usable_config and not prepared.own:
        trouble = trouble or config_trouble(config)
    lines = tuning_lines(prepared, plan)
    if lines:
        print_decision(lines)
    if not (prepared.own or lines or trouble) and needs_decision(launches):
        print_message(undecided_message(prepared, config))
    if trouble:
        print_message(trouble)
    if report is not None:
        from tpuwatch.exec.report import write_report

        write_report(report, prepared, end, plan)


def config_trouble(config: Path | None) -> str:
    """What is wrong with the whole configuration, of which a start reads a part; empty where nothing is."""
    from tpuwatch.config import load_config

    try:
        load_config(config, os.environ)
    except ConfigError as error:
        first, *more = str(error).splitlines()
        others = f" ({len(more)} more)" if more else ""
        return f"{first.rstrip('.')}{others}. `tpuwatch config check` shows it; the command ran all the same."
    return ""


def print_cause(end: RunResult) -> None:
    """Why the command failed, and what to do."""
    from tpuwatch.terminal import Console, print_finding

    findings = findings_to_report(end)
    try:
        console = Console(sys.stderr, prefix=PREFIX)
        if findings:
            console.line(f"the command ended with status {end.status}.", style="bold")
        for number, finding in enumerate(findings[:_SHOWN], 1):
            print_finding(console, finding, number=number)
        if len(findings) > _SHOWN:
            console.line(f"There are {len(findings) - _SHOWN} more; `tpuwatch diagnose` lists them.", style="dim")
    except (OSError, ValueError, AttributeError):
        return


def print_decision(lines: Sequence[str]) -> None:
    """What the next launch gets, and why."""
    from tpuwatch.terminal import Console

    try:
        console = Console(sys.stderr, prefix=PREFIX)
        for line in lines:
            console.line(line, hang=3)
    except (OSError, ValueError, AttributeError):
        return
