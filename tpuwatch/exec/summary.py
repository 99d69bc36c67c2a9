"""What is said after the command's end, on standard error. Nothing, where there is nothing to say."""

from __future__ import annotations

import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.model import Cause
from tpuwatch.tune.model import SIZE, THRESHOLD
from tpuwatch.units import format_size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.exec.beginning import Beginning
    from tpuwatch.exec.ending import End
    from tpuwatch.tune.model import Plan

_ASKED = {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}  # somebody ended it
_SHOWN = 3  # findings


def findings_to_tell(end: End) -> list[Mapping[str, Any]]:
    """The findings that a person is to see: of a command that failed, and that nobody ended."""
    found = list(end.found.get("findings", ())) if end.found is not None and end.status else []
    return [one for one in found if not (end.status in _ASKED and one["cause"] == Cause.INTERRUPTED.value)]


def tell(begun: Beginning, end: End, plan: Plan | None) -> None:
    """Why the command failed and what to do, and what the next launch gets. `plan`: what was decided by us."""
    from tpuwatch.export.paper import Paper
    from tpuwatch.export.terminal import tell_finding

    findings = findings_to_tell(end)
    try:
        paper = Paper(sys.stderr)
        if findings:
            paper.line(f"tpuwatch: the command ended with status {end.status}.", style="bold")
        for number, finding in enumerate(findings[:_SHOWN], 1):
            tell_finding(paper, finding, number=number)
        if len(findings) > _SHOWN:
            paper.line(f"There are {len(findings) - _SHOWN} more; `tpuwatch diagnose` tells them.", style="dim")
        if end.oom:
            paper.line("tpuwatch: the command was killed while the kernel freed memory: the host had too little.")
        for line in tuning(begun, plan):
            paper.line(f"tpuwatch: {line}", hang=3)
    except (OSError, ValueError, AttributeError):
        return


def tuning(begun: Beginning, plan: Plan | None) -> list[str]:
    """What tuning set, and what it changes for the next launch; empty when it changes nothing."""
    if plan is None:
        return []
    before, after = {} if begun.plan is None else _values(begun.plan), _values(plan)
    changed = [name for name in (SIZE, THRESHOLD) if before.get(name) != after.get(name)]
    if not changed:
        return []
    had = [f"{name}={begun.environ[name]}, {_whose(begun, name)}" for name in changed if name in begun.environ]
    gets = " and ".join(_told(name, after.get(name)) for name in changed)
    reason = plan.decision.reasons[0] if plan.decision.reasons else ""
    this = f"this launch had {' and '.join(had)}; " if had else ""
    return [" ".join(filter(None, (f"{this}the next one gets {gets}.", reason, plan.decision.conflict)))]


def undecided(begun: Beginning, config: Path | None) -> str:
    """Where the next launch gets another buffer perhaps, and the daemon has not come to that yet."""
    words = ["tpuwatch", "tune", "--workload", begun.workload, *(["--config", str(config)] if config else [])]
    return (
        "what the next launch gets is decided by tpuwatch's daemon, within seconds where it runs; "
        f"`{shlex.join(words)}` shows it."
    )


def _values(plan: Plan) -> dict[str, str]:
    return {setting.name: setting.value for setting in plan.settings}


def _whose(begun: Beginning, name: str) -> str:
    return "set by tpuwatch" if name in begun.given.set else "your own"


def _told(name: str, value: str | None) -> str:
    if value is None:
        return f"libtpu's own {name}"
    return f"{name}={value} ({format_size(int(value))})" if value.isdecimal() else f"{name}={value}"
