"""`tpuwatch restart`: restart nodes by hand, safely; see what was restarted, and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse

_FORCED = ("restart_node", "reset_queued_resource")
_EPILOG = (
    "Each step is in a ledger before it is done. Ctrl-C leaves the restart as it stands; the same command goes on with "
    "it. Exit codes: 0 done, 1 not restarted, or a person is needed, 2 wrong use, 3 could not find out."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "nodes",
        nargs="*",
        metavar="NODE",
        help="train-1, us-east5-a/train-1 or projects/P/locations/Z/nodes/N; several are restarted one after the other",
    )
    parser.add_argument("--zone", default="", help="where the nodes are; else as [cloud] or the metadata server says")
    parser.add_argument("--project", default="", help="likewise")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the ledger")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument(
        "--force-rung", choices=_FORCED, metavar="RUNG", help=f"do this, even to the own node: {' or '.join(_FORCED)}"
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--status", action="store_true", help="what is under way, the last restarts, budgets, breaker")
    others.add_argument("--history", action="store_true", help="all restarts that are recorded here, or of these nodes")
    others.add_argument("--cancel", action="store_true", help="take a restart back to which nothing has been done yet")
    others.add_argument("--reset-breaker", action="store_true", help="let tpuwatch restart nodes by itself again")
    options.add_config(parser)
    options.add_json(parser, "print JSON, a line for each node; what is going on is told on standard error")
    parser.set_defaults(misused=parser.error)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 not restarted or a person is needed, 2 wrong use, 3 could not find out, 130 interrupted."""
    from tpuwatch.cli.restart_place import MisuseError

    if wrong := _misused(args):
        args.misused(wrong)
    config = options.load(args)
    try:
        if _asks(args):
            from tpuwatch.cli import restart_book

            return restart_book.run(args, config)
        from tpuwatch.cli import restart_nodes

        return restart_nodes.run(args, config)
    except MisuseError as error:
        args.misused(str(error))
        raise


def _asks(args: argparse.Namespace) -> bool:
    """Whether it is about the ledger, and nothing is to be restarted."""
    return bool(args.status or args.history or args.cancel or args.reset_breaker)


def _misused(args: argparse.Namespace) -> str:
    """What does not go together; "" if all does."""
    if args.reset_breaker and args.nodes:
        return "--reset-breaker is about all nodes: name none"
    if _asks(args) and (args.yes or args.dry_run or args.force_rung):
        return "--yes, --dry-run and --force-rung are about a restart: leave them out here"
    if args.nodes or args.status or args.history or args.reset_breaker:
        return ""
    return (
        "name the node whose restart is to be cancelled"
        if args.cancel
        else "name the node to restart, or give --status"
    )
