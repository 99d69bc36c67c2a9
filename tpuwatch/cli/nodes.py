"""`tpuwatch nodes`: all watched nodes, those first that somebody must see to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import daemon, options
from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.export.paper import Paper


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("names", nargs="*", metavar="NODE", help="only these nodes, each with why and what to do")
    parser.add_argument("--all", action="store_true", help="under the table, each node that is bad in full")
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when no node that is shown is bad, 1 when one is, 3 when nobody answers or a node is not watched."""
    address = daemon.address(options.load(args))
    with daemon.understood(address):
        return _run(args, address)


def _run(args: argparse.Namespace, address: str) -> int:
    from tpuwatch.export.api import MAX_NODES
    from tpuwatch.export.words import is_bad

    document = daemon.ask(address, "nodes", "nodes", f"?limit={MAX_NODES}")
    if args.names:
        document["nodes"] = _named(document["nodes"], args.names)
    if args.json:
        options.print_json(document)
    else:
        from tpuwatch.export.paper import Paper

        _tell(Paper(sys.stdout), document, named=bool(args.names), all_bad=args.all)
    return 1 if any(is_bad(node["verdict"]) for node in document["nodes"]) else 0


def _named(nodes: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The nodes of these names, in the order in which all are listed."""
    known = {node["node"] for node in nodes}
    for name in names:
        if name not in known:
            raise TpuwatchError(f"no node {name!r} is watched{_nearest(name, known)}")
    return [node for node in nodes if node["node"] in names]


def _nearest(name: str, known: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return "; `tpuwatch nodes` lists those that are, and `nodes` under [cloud] sets them"


def _tell(paper: Paper, document: Any, *, named: bool, all_bad: bool) -> None:
    from tpuwatch.export.node_terminal import tell_node, tell_table
    from tpuwatch.export.words import is_bad, verdict_words

    nodes, now = document["nodes"], document["now_epoch"]
    if not nodes:
        paper.line("No node is watched. Set `nodes`, `project` and `zone` under [cloud], or run on a TPU VM.")
        return
    tell_table(paper, nodes, now)
    for node in nodes:
        if named or (all_bad and is_bad(node["verdict"])):
            paper.line()
            tell_node(paper, node, now)
    if not named and document["watched"] > 1:
        counts = ", ".join(f"{number} {verdict_words(verdict)}" for verdict, number in document["verdicts"].items())
        paper.line()
        paper.line(f"{document['watched']} nodes: {counts}.", style="dim")
