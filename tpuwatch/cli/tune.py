"""`tpuwatch tune`: what the next launch's environment will be, and why; on request, write it."""

from __future__ import annotations

import argparse
from pathlib import Path

from tpuwatch.cli import options

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
    parser.add_argument(
        "--workload", type=options.workload, metavar="NAME", help="only this one, as `tpuwatch exec --name` calls it"
    )
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
    """0 done, 1 where a decision is stuck or in conflict, 2 wrong use, 3 could not find out or write."""
    if wrong := _misused(args):
        args.misused(wrong)
    config = options.load(args)
    if args.prune_logs:
        from tpuwatch.cli import tune_prune

        return tune_prune.run(args, config)
    from tpuwatch.cli import tune_next

    return tune_next.run(args, config)


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
