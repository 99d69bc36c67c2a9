"""`tpuwatch restart`: restart nodes safely."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tpuwatch.cli import options, probe

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import ProbeReport, Target
    from tpuwatch.restart import OwnNode

_FORCED = ("restart_node", "reset_queued_resource")
_RESTARTED = ("done", "not_verified")
_EPILOG = (
    "Each step is in a ledger before it is done. A restart that runs already is followed to its end. Ctrl-C ends the "
    "command, which says who continues the restart; the same command follows it, or continues it. "
    "`tpuwatch restarts` shows and cancels restarts. Exit codes: 0 done, 1 not restarted, or an operator is needed, "
    "2 wrong use, 3 could not find out, or restarted and not verified."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "nodes",
        nargs="+",
        metavar="NODE",
        help="train-1, us-east5-a/train-1 or projects/P/locations/Z/nodes/N; several are restarted one after the other",
    )
    add_location(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the ledger")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument(
        "--force-action",
        choices=_FORCED,
        metavar="ACTION",
        help=f"do this ({' or '.join(_FORCED)}) even if this machine belongs to the node, or a reset restarts other "
        "nodes that are not known to be bad",
    )
    parser.add_argument(
        "--probe",
        action="store_true",
        help="then probe the TPU, as `tpuwatch probe` does; only on a machine of that node",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show each try, whole messages of the API, and operations' names"
    )
    options.add_config(parser)
    options.add_json(parser, "print JSON, a line for each node; progress is on standard error")
    parser.set_defaults(usage_error=parser.error)


def add_location(parser: argparse.ArgumentParser) -> None:
    """--zone and --project."""
    default = "default: that of [cloud], else that of the metadata server"
    parser.add_argument("--zone", default="", help=f"of the nodes; {default}")
    parser.add_argument("--project", default="", help=f"of the nodes; {default}")


def run(args: argparse.Namespace) -> int:
    """0 done, 1 not restarted or an operator is needed, 2 wrong use, 3 could not find out, 130 interrupted."""
    from tpuwatch.restart import UsageError

    try:
        return _restart(args, options.load(args))
    except UsageError as error:
        args.usage_error(str(error))
        raise


def _restart(args: argparse.Namespace, config: Config) -> int:
    from tpuwatch.core import encode
    from tpuwatch.model import NodesDocument, StatusDocument
    from tpuwatch.restart import (
        CloudNodeApi,
        NodeReporter,
        RestartRequest,
        RestartSession,
        UsageError,
        find_own_node,
        open_access,
        parse_targets,
    )
    from tpuwatch.terminal import Console, RestartDisplay, print_probe
    from tpuwatch.web import MAX_NODES, ask_daemon, daemon_address

    if not config.cloud.enabled:
        raise UsageError("`enabled` under [cloud] is false, so that the Cloud TPU API is not used: set it to true")
    clock = make_clock()
    own_node = find_own_node(config.cloud, clock)
    targets = parse_targets(args.nodes, args.zone, args.project, config, own_node)
    request = RestartRequest(
        reason=args.reason,
        confirmed=args.yes,
        dry_run=args.dry_run,
        forced_action=args.force_action or "",
    )
    address = daemon_address(config)
    session = RestartSession(
        request,
        config,
        clock,
        open_access(config, clock, args.config),
        CloudNodeApi(config.cloud, clock=clock),
        own_node,
        NodeReporter(
            config,
            clock,
            str(address),
            lambda: ask_daemon(address, "nodes", NodesDocument, f"?limit={MAX_NODES}").nodes,
            lambda: ask_daemon(address, "status", StatusDocument),
        ),
        RestartDisplay(Console(sys.stderr if args.json else sys.stdout), clock, verbose=args.verbose),
    )
    code = 0
    try:
        for result in session.restart_all(targets):
            document = encode(result.document())
            if args.probe and result.outcome in _RESTARTED:
                found = _probe(result.target, own_node, config)
                document["probe"] = None if found is None else encode(found)
                code = max(code, 0 if found is None else probe.exit_code(found))
                if found is not None and not args.json:
                    print_probe(Console(sys.stdout), found)
            if args.json:
                options.print_json(document, indent=None)
            code = max(code, result.exit_code)
    finally:
        session.close()
    return code


def _probe(target: Target, own_node: OwnNode, config: Config) -> ProbeReport | None:
    """The document of a probe of the restarted node; None where it could not be made, which a note says."""
    from tpuwatch.core import TpuwatchError

    if not own_node.matches(target):
        options.print_note(
            f"{target.node} was not probed, since this machine is none of it. Probe there: `gcloud compute tpus tpu-vm "
            f"ssh {target.node} --zone={target.zone} --project={target.project} --worker=all "
            "--command='sudo tpuwatch probe'`"
        )
        return None
    try:
        return probe.probe(config)
    except TpuwatchError as error:
        options.print_note(f"{target.node} was not probed: {error}")
        return None


def make_clock() -> Clock:
    """The clock of the whole command."""
    from tpuwatch.core import SystemClock

    return SystemClock()
