"""`tpuwatch status`: what is wrong and what to do first, in ten lines; with --verbose all that the daemon knows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tpuwatch.cli import options
from tpuwatch.core import encode, like
from tpuwatch.model import FindingsDocument, LaunchesDocument, NodesDocument, StatusDocument, StatusReportDocument
from tpuwatch.web import ask_daemon, daemon_address

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.model import KnownFindingDocument, LaunchDocument, NodeDocument
    from tpuwatch.web import DaemonAddress

_LAUNCHES = 5
_NODES = 4  # the worst: the own one, and three others
_WORKLOADS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also all reasons, this machine, its signals, past findings, launches and what the next one gets",
    )
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when nothing is wrong with this machine and the nodes watched from it, 1 when something is, 3 when that is not
    known: the daemon does not answer, or has not judged a node since its start."""
    with options.config_to_look(args) as (config, _):
        return _run(args, daemon_address(config))


def _run(args: argparse.Namespace, address: DaemonAddress) -> int:
    status = ask_daemon(address, "status", StatusDocument)
    findings = ask_daemon(address, "findings", FindingsDocument).findings
    launches = ask_daemon(address, "launches", LaunchesDocument).launches[:_LAUNCHES]
    nodes = ask_daemon(address, "nodes", NodesDocument, f"?limit={_NODES}").nodes
    if args.json:
        options.print_json(encode(like(StatusReportDocument, status, findings=findings, launches=launches)))
    else:
        _print(args, str(address), status, findings, nodes, launches)
    if any(status.problem_counts.values()):
        return 1
    return 0 if status.judged else 3


def _print(
    args: argparse.Namespace,
    address: str,
    status: StatusDocument,
    findings: Sequence[KnownFindingDocument],
    nodes: Sequence[NodeDocument],
    launches: Sequence[LaunchDocument],
) -> None:
    from tpuwatch.terminal import Console, print_status, print_whole_status
    from tpuwatch.web import tune_sentences

    console = Console(sys.stdout)
    if not args.verbose:
        print_status(console, status, findings, nodes)
        return
    sentences = tune_sentences(status.tune, _WORKLOADS) if status.tune else []
    print_whole_status(console, address, status, findings, nodes, launches, sentences)
