"""`tpuwatch tune` itself: decide now, show it, and write what was asked for."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuwatch.cli import options, tune_show
from tpuwatch.cli.tune_document import document
from tpuwatch.cli.tune_history import UNREAD, read_history
from tpuwatch.cli.tune_outlook import Here, look_ahead, tune_directory
from tpuwatch.clock import SystemClock
from tpuwatch.errors import TuneError
from tpuwatch.export.terminal import printable
from tpuwatch.health.words import listed
from tpuwatch.tune.deciding import bounds_of, workloads
from tpuwatch.tune.envfile import environment_path, render, write_environment
from tpuwatch.tune.model import Step
from tpuwatch.tune.plan import PLANS, environment, plan_path, write_plan
from tpuwatch.tune.resets import read_resets, reset_path, write_reset

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from tpuwatch.cli.tune_history import History
    from tpuwatch.cli.tune_outlook import Outlook
    from tpuwatch.config import Config

_DONE, _WRONG = 0, 1


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was done, or would be done."""

    sentence: str
    path: Path
    text: str = ""  # of the file, where it is to be shown


def run(args: argparse.Namespace, config: Config) -> int:
    """0, or 1 where a decision is stuck or in conflict. Raises TpuwatchError."""
    now, environ = SystemClock().time(), os.environ
    directory = tune_directory(config, environ)
    history = read_history(config, directory)
    acts = _reset(args.workload, directory, history, now, dry=args.dry_run) if args.reset else []
    forgotten = {args.workload: now} if args.reset else {}
    outlooks = look_ahead(Here(config, directory, environ, now), history, args.workload, forgotten)
    known = workloads(history.launches)
    if args.workload and known and args.workload not in known:
        outlooks = [replace(one, warnings=(_unknown(args.workload, known), *one.warnings)) for one in outlooks]
    if not outlooks:
        raise TuneError(f"{history.where}; run it with sudo")
    if args.plot and len(outlooks) > 1:
        names = ", ".join(outlook.plan.workload for outlook in outlooks)
        args.misused(f"--plot draws one workload: name it with --workload; there are {names}")
    for outlook in outlooks:
        acts += _writes(outlook, directory, apply=args.apply, reset=args.reset, dry=args.dry_run)
    if args.plot:
        acts.append(_draw(outlooks[0], args.plot, config))
    if args.json:
        options.print_json(document(config, history, directory, outlooks, acts, dry=args.dry_run))
    else:
        _tell(args, config, history, directory, outlooks, acts)
    return _WRONG if any(_is_wrong(outlook) for outlook in outlooks) else _DONE


def _unknown(workload: str, known: Iterable[str]) -> str:
    return f"No launch of {workload} is known; there are launches of {listed(known)}."


def _is_wrong(outlook: Outlook) -> bool:
    decision = outlook.plan.decision
    return decision.step is Step.STUCK or bool(decision.conflict)


# -- what is written


def _reset(workload: str, directory: Path, history: History, now: float, *, dry: bool) -> list[Act]:
    known = workloads(history.launches)
    if workload not in known:
        there = f"there are {listed(known)}" if known else f"none is in {history.where}"
        raise TuneError(f"no launch of {workload} is known that could be forgotten; {there}")
    since = read_resets(directory).get(workload, 0.0)
    counted = sum(since <= one.started < now for one in known[workload])
    if not dry:
        _require_writable(directory)
        write_reset(directory, workload, now)
    launches = {0: "no launch", 1: "one launch"}.get(counted, f"{counted} launches")
    return [Act(f"{'Would forget' if dry else 'Forgot'} {launches} of {workload}:", reset_path(directory, workload))]


def _writes(outlook: Outlook, directory: Path, *, apply: bool, reset: bool, dry: bool) -> list[Act]:
    """Write plan and environment file, or say what would be written.

    After a reset those files are renewed that are there; else they would still give what is forgotten.
    """
    plan = outlook.plan
    paths = (plan_path(directory, plan.workload), environment_path(directory, plan.workload))
    wanted = [path for path in paths if apply or (dry and not reset) or (reset and path.exists())]
    if not wanted:
        return []
    if dry:
        text = render(plan, environment(plan, {}), "systemd")
        return [Act("Would write", path, text if path == paths[1] else "") for path in wanted]
    _require_writable(directory)
    for path in wanted:
        if path == paths[0]:
            write_plan(directory, plan)
        else:
            write_environment(directory, plan)
    return [Act("Wrote", path) for path in wanted]


def _require_writable(directory: Path) -> None:
    """Raises TuneError with what to do where this user may not write into the tune directory."""
    there = directory / PLANS
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        raise TuneError(f"you may not write into {there}: run the same command with sudo")


def _draw(outlook: Outlook, path: Path, config: Config) -> Act:
    from tpuwatch.tune.picture import save

    workload = outlook.plan.workload
    graph = tune_show.graph_of(outlook, bounds_of(config))
    if graph is None:
        raise TuneError(f"there is nothing to draw: no launch of {workload} told both its size and its time")
    save(graph, path, title=f"Workload {workload}: initialisation time and premapped buffer")
    return Act("Wrote", path)


# -- what is shown


def _tell(
    args: argparse.Namespace,
    config: Config,
    history: History,
    directory: Path,
    outlooks: list[Outlook],
    acts: list[Act],
) -> None:
    paper = tune_show.paper_for(sys.stdout)
    for number, outlook in enumerate(outlooks):
        if number:
            paper.line()
        if args.explain:
            tune_show.tell_all(paper, outlook, bounds_of(config))
        else:
            tune_show.tell_short(paper, outlook)
    paper.line()
    tune_show.tell_warnings(paper, outlooks)
    if history.kind == UNREAD:
        paper.line(f"These are the plans as they stand: {printable(history.where)}.", style="yellow")
    elif args.explain:
        paper.line(f"Launches are from {printable(history.where)}.", style="dim")
    for act in acts:
        tune_show.tell_act(paper, act.sentence, act.path, act.text)
    if not (args.apply or args.reset or args.dry_run):
        advises = directory == config.tune_dir and config.tune.mode == "observe"
        tune_show.tell_standing(paper, outlooks, directory, advises=advises)
    names = [outlook.plan.workload for outlook in outlooks]
    written = [act.path for act in acts if act.path.suffix == ".env" and not args.dry_run]
    tune_show.tell_use(paper, names, written)
