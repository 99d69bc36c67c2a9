"""`tpuwatch nodes`: all watched nodes, those that need attention first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import options
from tpuwatch.core import TpuwatchError
from tpuwatch.web import ask_daemon, daemon_address, reading_documents

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.terminal import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NODE", help="only these nodes, each with why and what to do")
    parser.add_argument("--all", action="store_true", help="under the table, each node that is bad in full")
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when no node that is shown is bad, 1 when one is, 3 when nobody answers or a node is not watched."""
    from tpuwatch.model import is_bad
    from tpuwatch.web import MAX_NODES

    address = daemon_address(options.load(args))
    with reading_documents(address):
        document = ask_daemon(address, "nodes", "nodes", f"?limit={MAX_NODES}")
        if args.names:
            document["nodes"] = _named(document["nodes"], args.names)
        if args.json:
            options.print_json(document)
        else:
            from tpuwatch.terminal import Console

            _print(Console(sys.stdout), document, named=bool(args.names), all_bad=args.all)
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


def _print(console: Console, document: Any, *, named: bool, all_bad: bool) -> None:
    from tpuwatch.model import is_bad, verdict_words
    from tpuwatch.terminal import print_node, print_table

    nodes, now = document["nodes"], document["now_epoch"]
    if not nodes:
        console.line("No node is watched. Set `nodes`, `project` and `zone` under [cloud], or run on a TPU VM.")
        return
    print_table(console, nodes, now)
    for node in nodes:
        if named or (all_bad and is_bad(node["verdict"])):
            console.line()
            print_node(console, node, now)
    if not named and document["watched"] > 1:
        counts = ", ".join(f"{number} {verdict_words(verdict)}" for verdict, number in document["verdicts"].items())
        console.line()
        console.line(f"{document['watched']} nodes: {counts}.", style="dim")
