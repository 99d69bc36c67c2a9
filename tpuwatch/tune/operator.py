"""What an operator has done with `tpuwatch tune`: plans and environment files written now, launches forgotten."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.core import TuneError, listed
from tpuwatch.tune.environment import environment_path, launch_environment, render, write_environment
from tpuwatch.tune.plan import PLANS, plan_path, read_resets, reset_path, write_plan, write_reset
from tpuwatch.tune.planner import launches_by_workload

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.model import TunePlan
    from tpuwatch.tune.outlook import History


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that was written, or would be."""

    sentence: str
    path: Path
    text: str = ""  # of the file, where it is to be shown


def reset(workload: str, directory: Path, history: History, now: float, *, dry_run: bool) -> FileChange:
    """Have the workload's launches before `now` count no more. Raises TuneError for a workload without launches."""
    known = launches_by_workload(history.launches)
    if workload not in known:
        there = f"there are {listed(known)}" if known else f"none is in {history.where}"
        raise TuneError(f"no launch of {workload} is known that could be forgotten; {there}")
    since = read_resets(directory).get(workload, 0.0)
    count = sum(since <= one.started < now for one in known[workload])
    if not dry_run:
        _require_writable(directory)
        write_reset(directory, workload, now)
    launches = {0: "no launch", 1: "one launch"}.get(count, f"{count} launches")
    verb = "Would forget" if dry_run else "Forgot"
    return FileChange(f"{verb} {launches} of {workload}:", reset_path(directory, workload))


def write_next(directory: Path, plan: TunePlan, *, only_existing: bool, dry_run: bool) -> list[FileChange]:
    """Write the plan and its environment file. `only_existing`: renew the files that exist, and create none, as after
    a reset: they would still give what is forgotten. Raises TuneError.
    """
    env_file = environment_path(directory, plan.workload)
    writers = {plan_path(directory, plan.workload): write_plan, env_file: write_environment}
    wanted = {path: write for path, write in writers.items() if not only_existing or path.exists()}
    if dry_run:
        text = render(plan, launch_environment(plan, {}), "systemd")
        return [FileChange("Would write", path, text if path == env_file else "") for path in wanted]
    if wanted:
        _require_writable(directory)
    for write in wanted.values():
        write(directory, plan)
    return [FileChange("Wrote", path) for path in wanted]


def _require_writable(directory: Path) -> None:
    """Raises TuneError with what to do where this user may not write into the tune directory."""
    there = directory / PLANS
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        raise TuneError(f"you may not write into {there}: run the same command with sudo")
