"""`tpuwatch tune`: what the next launch's environment will be, and why; on request, write it."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.config import Config
    from tpuwatch.logs import OldLog, PruneResult
    from tpuwatch.model import Launch, NextLaunchesDocument, PruneDocument
    from tpuwatch.tune import FileChange, History, Outlook

_EPILOG = (
    "Without --apply it only looks. Exit codes: 0 done, 1 a workload cannot have what it needs, or its needs are in "
    "conflict, 2 wrong use, 3 could not find out or write."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--explain", action="store_true", help="show the launches, the fit, all reasons, the bounds, what is kept"
    )
    options.add_workload(parser, "only this one, as `tpuwatch exec --workload` calls it")
    parser.add_argument("--plot", type=_picture, metavar="FILE.png", help="draw the fit into a picture, too")
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--apply", action="store_true", help="write the plan and the environment file now")
    acts.add_argument(
        "--reset", action="store_true", help="forget the workload's launches up to now: they are not looked at any more"
    )
    acts.add_argument(
        "--prune-logs", action="store_true", help="remove libtpu's old log files, as [tune] says; spares open files"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show what would be written, or with --reset or --prune-logs what they would do, and change nothing",
    )
    options.add_config(parser)
    options.add_json(parser)
    parser.set_defaults(misused=parser.error)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 where a decision is unsatisfiable or in conflict, 2 wrong use, 3 could not find out or write."""
    if wrong := _misused(args):
        args.misused(wrong)
    config = _config(args)
    return _prune_logs(args, config) if args.prune_logs else _next_launch(args, config)


def _config(args: argparse.Namespace) -> Config:
    """The configuration; where this user may not read it and nothing is to be changed, the defaults, with a note."""
    from tpuwatch.config import Config
    from tpuwatch.core import ConfigDeniedError

    try:
        args.unread = False
        return options.load(args)
    except ConfigDeniedError as error:
        if args.apply or args.reset or args.prune_logs:
            raise
        options.print_note(f"{error}. This is decided by the defaults; a launch gets the plan that stands.")
        args.unread = True
        return Config()


def _misused(args: argparse.Namespace) -> str:
    """What does not go together; "" if all does."""
    if args.prune_logs and (args.workload or args.explain or args.plot):
        return "--prune-logs is about the log files of all workloads: give it alone, or with --dry-run"
    if args.reset and not args.workload:
        return "--reset forgets: name what, with --workload NAME"
    return ""


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r}: the picture is a PNG file, so let its name end in .png")
    return path


def _next_launch(args: argparse.Namespace, config: Config) -> int:
    """Decide now, show it, and write what was asked for. Raises TpuwatchError."""
    from tpuwatch.core import SystemClock, TuneError, encode, listed
    from tpuwatch.tune import TuneContext, launches_by_workload, look_ahead, plan_directory, reset, write_next

    now, environ = SystemClock().time(), os.environ
    directory = plan_directory(config.tune_dir, environ)
    history = launch_history(config, directory)
    changes = [reset(args.workload, directory, history, now, dry_run=args.dry_run)] if args.reset else []
    forgotten = {args.workload: now} if args.reset else {}
    outlooks = look_ahead(TuneContext(config, directory, environ, now), history, args.workload, forgotten)
    known = launches_by_workload(history.launches)
    if args.workload and known and args.workload not in known:
        unknown = f"No launch of {args.workload} is known; there are launches of {listed(known)}."
        outlooks = [replace(one, warnings=(unknown, *one.warnings)) for one in outlooks]
    if not outlooks:
        raise TuneError(f"{history.where}; run it with sudo")
    if args.plot and len(outlooks) > 1:
        names = ", ".join(outlook.plan.workload for outlook in outlooks)
        args.misused(f"--plot draws one workload: name it with --workload; there are {names}")
    if args.apply or args.reset or args.dry_run:
        for outlook in outlooks:
            changes += write_next(directory, outlook.plan, only_existing=args.reset, dry_run=args.dry_run)
    if args.plot:
        changes.append(_draw(outlooks[0], args.plot, config))
    if args.json:
        document = _document(config, history, directory, outlooks, changes, dry_run=args.dry_run)
        options.print_json(encode(document))
    else:
        _print(args, config, history, directory, outlooks, changes)
    return int(any(outlook.is_wrong for outlook in outlooks))


def launch_history(config: Config, directory: Path) -> History:
    """This machine's launches, from the store, the daemon or the tune directory. Raises TuneError."""
    from tpuwatch.model import LaunchesDocument
    from tpuwatch.tune import read_history
    from tpuwatch.web import ask_daemon, daemon_address

    address = daemon_address(config)

    def ask(limit: int) -> list[Launch]:
        return [one.launch() for one in ask_daemon(address, "launches", LaunchesDocument, f"?limit={limit}").launches]

    return read_history(config, directory, str(address), ask)


def _draw(outlook: Outlook, path: Path, config: Config) -> FileChange:
    from tpuwatch.core import TuneError
    from tpuwatch.terminal import save, tune
    from tpuwatch.tune import FileChange, bounds_of

    workload = outlook.plan.workload
    graph = tune.graph_of(outlook, bounds_of(config))
    if graph is None:
        raise TuneError(f"there is nothing to draw: no launch of {workload} has both a size and a time")
    save(graph, path, title=f"Workload {workload}: initialisation time and premapped buffer")
    return FileChange("Wrote", path)


def _print(
    args: argparse.Namespace,
    config: Config,
    history: History,
    directory: Path,
    outlooks: list[Outlook],
    changes: list[FileChange],
) -> None:
    from tpuwatch.core import printable
    from tpuwatch.terminal import Console, tune
    from tpuwatch.tune import UNREAD, bounds_of

    console = Console(sys.stdout)
    for number, outlook in enumerate(outlooks):
        if number:
            console.line()
        if args.explain:
            tune.print_explanation(console, outlook, bounds_of(config))
        else:
            tune.print_short(console, outlook)
    console.line()
    tune.print_warnings(console, outlooks)
    if history.kind == UNREAD:
        console.line(f"These are the plans on disk: {printable(history.where)}.", style="yellow")
    elif args.explain:
        console.line(f"Launches are from {printable(history.where)}.", style="dim")
    for change in changes:
        tune.print_change(console, change)
    if not (args.apply or args.reset or args.dry_run):
        advises = directory == config.tune_dir and config.tune.mode == "observe" and not args.unread
        tune.print_stored(console, outlooks, directory, advises=advises)
    names = [outlook.plan.workload for outlook in outlooks]
    written = [change.path for change in changes if change.path.suffix == ".env" and not args.dry_run]
    tune.print_use(console, names, written)


def _prune_logs(args: argparse.Namespace, config: Config) -> int:
    """Always 0. Raises TuneError where no directory could be read. Other users' files are left to root."""
    from tpuwatch.core import SystemClock, TuneError, encode
    from tpuwatch.host import ProcFs
    from tpuwatch.logs import prune
    from tpuwatch.terminal import Console, tune

    directories = list(dict.fromkeys((*config.logs.paths, config.tune.log_dir)))
    uid = os.geteuid()
    result = prune(
        directories,
        days=config.tune.keep_log_days,
        mib=config.tune.keep_log_mib,
        now=SystemClock().time(),
        uid_only=None if uid == 0 else uid,
        processes=ProcFs(config.host.root / "proc"),
        dry_run=args.dry_run,
    )
    if len(result.problems) == len(directories):
        raise TuneError(" ".join(result.problems))
    if args.json:
        options.print_json(encode(_prune_document(result, dry_run=args.dry_run)))
    else:
        tune.print_prune(Console(sys.stdout), result, dry_run=args.dry_run)
    return 0


# -- what --json prints; docs/tune.md describes it


def _document(
    config: Config,
    history: History,
    directory: Path,
    outlooks: Iterable[Outlook],
    changes: Iterable[FileChange],
    *,
    dry_run: bool,
) -> NextLaunchesDocument:
    from tpuwatch.core import like
    from tpuwatch.model import NextLaunchesDocument, TuneSourceDocument
    from tpuwatch.tune import bounds_of

    paths = tuple(str(change.path) for change in changes)
    return NextLaunchesDocument(
        mode=config.tune.mode,
        directory=str(directory),
        source=like(TuneSourceDocument, history),
        bounds=bounds_of(config),
        workloads=tuple(outlook.document() for outlook in outlooks),
        written=() if dry_run else paths,
        would_write=paths if dry_run else (),
    )


def _prune_document(result: PruneResult, *, dry_run: bool) -> PruneDocument:
    from tpuwatch.core import like
    from tpuwatch.model import OldLogDocument, PruneDocument

    def files(found: Iterable[OldLog]) -> tuple[OldLogDocument, ...]:
        return tuple(like(OldLogDocument, old, size_bytes=old.size) for old in found)

    return like(PruneDocument, result, dry_run=dry_run, removed=files(result.removed), spared=files(result.spared))
