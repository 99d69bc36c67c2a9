"""`tpuwatch exec`: run a command with the environment that was decided for it, and print what was wrong with it."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    from tpuwatch.exec import PreparedRun

_EPILOG = (
    "The command runs in the foreground as its own: its exit code, its signals, its terminal and what it prints are "
    "as they would be without tpuwatch. Variables that are set already stay as they are. 126: it cannot be executed; "
    "127: it is not there."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from tpuwatch.model import WorkloadKind

    parser.usage = (
        "tpuwatch exec [--workload NAME] [--kind KIND] [--no-tune] [--dry-run]\n"
        "                     [--config FILE] [--json FILE] -- COMMAND …"
    )
    parser.epilog = _EPILOG
    options.add_workload(parser, "what is launched; workloads are tuned apart. Else $TPUWATCH_WORKLOAD")
    parser.add_argument(
        "--kind",
        choices=[kind.value for kind in WorkloadKind],
        help="what the command does when all is well: it trains, it serves, or it waits for its user. Idle chips are "
        "no fault of the last two. Else $TPUWATCH_KIND, else as its command line shows",
    )
    parser.add_argument("--no-tune", action="store_true", help="leave the environment alone; watch and record it only")
    parser.add_argument("--dry-run", action="store_true", help="print what would be set and run, and run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write how it went to a file, as JSON")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command and its arguments")
    options.add_config(parser)
    parser.set_defaults(misused=parser.error)


def run(args: argparse.Namespace) -> int:
    """Ends as the command does. 126 or 127 where it cannot be started. Raises TuneError."""
    from tpuwatch.exec import prepare_run

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        args.misused("there is no command; give it after --")
    prepared = prepare_run(
        args.workload,
        os.environ,
        time.time(),
        config=args.config,
        tune=not args.no_tune,
        kind=args.kind,
        command=command,
    )
    if args.dry_run:
        _show(prepared, command)
        return 0
    from tpuwatch.exec import CommandError, run_command

    try:
        run_command(command, prepared, config=args.config, report=args.json)
    except CommandError as error:
        options.print_note(str(error))
        return error.status


def _show(prepared: PreparedRun, command: list[str]) -> None:
    import shlex

    for note in prepared.notes:
        options.print_note(note)
    for name in prepared.given.unset:
        print(f"unset {name}")
    for name, value in prepared.given.set.items():
        print(f"export {name}={shlex.quote(value)}")
    print(shlex.join(command))
