"""`tpuwatch nodes`: all watched nodes and their queued resources, those that need attention first."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.cli import options
from tpuwatch.core import TpuwatchError, encode, printable
from tpuwatch.web import ask_daemon, daemon_address

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from tpuwatch.model import JudgedQueuedResourceDocument, NodeDocument, NodesDocument
    from tpuwatch.terminal import Console
    from tpuwatch.web import DaemonAddress

WATCH_SECONDS: Final = 5.0
_WILD: Final = re.compile(r"[*?\[]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NODE",
        help="only these nodes, as NODE or ZONE/NODE, each with why and what to do; * and ? stand for any, and several "
        "nodes that they find have a line each",
    )
    parser.add_argument("--zone", metavar="ZONE", help="only nodes of this zone")
    parser.add_argument(
        "--problems", action="store_true", help="only nodes and queued resources with which something is wrong"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="under the table, each node that is bad in full, or each that is named"
    )
    parser.add_argument("--watch", action="store_true", help="go on: a line for each node that changes, until Ctrl-C")
    parser.add_argument(
        "-o",
        "--output",
        choices=("wide", "name", "json"),
        help="wide: more columns; name: a line each, as ZONE/NODE, which `tpuwatch restart` takes; json: as --json",
    )
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace, wait: Callable[[float], bool] | None = None) -> int:
    """0 when no node that is shown is bad, 1 when one is or a queued resource has a problem, 3 when nobody answers,
    none is judged yet, or a node is not watched.

    `wait` returns whether to end after so many seconds.
    """
    wait = wait or threading.Event().wait
    with options.config_to_look(args) as (config, _):
        address = daemon_address(config)
        shown = _Shown(args, address)
        bad = shown.all()
        while args.watch and not wait(WATCH_SECONDS):
            bad = shown.changed()
    return 1 if bad else 0 if shown.judged else 3


class _Shown:
    """Prints the nodes, and those that have changed since."""

    def __init__(self, args: argparse.Namespace, address: DaemonAddress) -> None:
        self._args = args
        self._address = address
        self.judged = True  # False: no node has a verdict yet, as after the daemon's start
        self._printed: dict[tuple[str, str], Any] = {}

    def all(self) -> bool:
        """Print all; whether one is bad."""
        document = self._ask()
        self._print(document)
        return self._note(document)

    def changed(self) -> bool:
        """Print those that were not there or had another verdict or state; whether one of all is bad."""
        document = self._ask()
        changed = tuple(node for node in document.nodes if self._printed.get(_key(node)) != _state(node))
        if changed:
            self._print(replace(document, nodes=changed), more=True)
        return self._note(document)

    def _ask(self) -> NodesDocument:
        from tpuwatch.model import NodesDocument, StatusDocument, is_bad
        from tpuwatch.web import MAX_NODES

        document = ask_daemon(self._address, "nodes", NodesDocument, f"?limit={MAX_NODES}")
        self.judged = bool(document.watched) or ask_daemon(self._address, "status", StatusDocument).judged
        if not self.judged:
            return document
        nodes: Sequence[NodeDocument] = document.nodes
        if self._args.zone:
            nodes = _of_zone(nodes, self._args.zone)
        if self._args.names:
            nodes = _named(nodes, self._args.names)
        if self._args.problems:
            nodes = [node for node in nodes if is_bad(node.verdict)]
        return replace(document, nodes=tuple(nodes), queued_resources=tuple(self._queued(document, nodes)))

    def _queued(self, document: NodesDocument, nodes: Sequence[NodeDocument]) -> Iterator[JudgedQueuedResourceDocument]:
        """The queued resources of the zone, or of the nodes that are named."""
        from tpuwatch.model import node_label

        args, labels = self._args, {node.label for node in nodes}
        for one in document.queued_resources:
            of_them = any(node_label(one.zone, name) in labels for name in one.nodes)
            if args.zone in (None, one.zone) and (of_them or not args.names) and (one.problem or not args.problems):
                yield one

    def _note(self, document: NodesDocument) -> bool:
        from tpuwatch.model import is_bad

        self._printed = {_key(node): _state(node) for node in document.nodes}
        wrong = any(one.problem for one in document.queued_resources)
        return wrong or any(is_bad(node.verdict) for node in document.nodes)

    def _print(self, document: NodesDocument, *, more: bool = False) -> None:
        from tpuwatch.terminal import Console

        args = self._args
        if args.json or args.output == "json":
            options.print_json(encode(document), indent=None if args.watch else 2)
        elif args.output == "name":
            for node in document.nodes:
                print(printable(node.label), flush=True)
        else:
            console = Console(sys.stdout)
            if self.judged:
                _print(console, document, args, more=more)
            else:
                console.line("No node is judged yet.")


def _key(node: NodeDocument) -> tuple[str, str]:
    return node.node, node.zone


def _state(node: NodeDocument) -> tuple[Any, ...]:
    cloud = node.cloud
    return node.verdict, node.last_known, node.action, cloud and (cloud.state, cloud.health)


def _named(nodes: Sequence[NodeDocument], patterns: Sequence[str]) -> list[NodeDocument]:
    """The nodes with these names, in the order in which all are listed."""
    for pattern in patterns:
        if not any(_is_named(node, pattern) for node in nodes):
            known = {node.label if "/" in pattern else node.node for node in nodes}
            raise TpuwatchError(f"no node {pattern!r} is watched{_nearest(pattern, known)}")
    return [node for node in nodes if any(_is_named(node, pattern) for pattern in patterns)]


def _is_named(node: NodeDocument, pattern: str) -> bool:
    return fnmatchcase(node.label if "/" in pattern else node.node, pattern)


def _of_zone(nodes: Sequence[NodeDocument], zone: str) -> list[NodeDocument]:
    known = {node.zone for node in nodes}
    if zone not in known:
        raise TpuwatchError(f"no node of the zone {zone!r} is watched{_nearest(zone, known)}")
    return [node for node in nodes if node.zone == zone]


def _nearest(name: str, known: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return "; `tpuwatch nodes` lists those that are, and `nodes` under [cloud] sets them"


def _print(console: Console, document: NodesDocument, args: argparse.Namespace, *, more: bool) -> None:
    from tpuwatch.terminal import print_node, print_nodes, print_queued_resources

    nodes, now = document.nodes, document.now
    if not document.watched:
        console.line("No node is watched. Set `nodes`, `project` and `zone` under [cloud], or run on a TPU VM.")
        return
    if nodes:
        print_nodes(console, nodes, now, wide=args.output == "wide", header=not more)
    elif args.names and args.problems:
        console.line("None of these nodes is bad.")
    for node in _in_full(nodes, args):
        console.line()
        print_node(console, node, now)
    if document.queued_resources and not more:
        console.line()
        print_queued_resources(console, document.queued_resources, now)
    if not args.names and not more and document.watched > 1:
        if nodes:
            console.line()
        console.line(_summary(document), style="dim")


def _in_full(nodes: Sequence[NodeDocument], args: argparse.Namespace) -> list[NodeDocument]:
    """The nodes that are shown with why and what to do: those that are named, but not all that a pattern finds."""
    from tpuwatch.model import is_bad

    named = args.names and not args.watch
    if named and (args.verbose or len(nodes) == 1):
        return list(nodes)
    if args.verbose:
        return [node for node in nodes if is_bad(node.verdict)]
    return list(nodes) if named and not any(_WILD.search(name) for name in args.names) else []


def _summary(document: NodesDocument) -> str:
    counts = ", ".join(f"{number} {verdict}" for verdict, number in document.verdicts.items())
    own = next((f" This machine is {node.node}." for node in document.nodes if node.own and node.node), "")
    bad = f", {document.bad} bad" if document.bad else ""
    return f"{document.watched} nodes{bad}: {counts}.{own}"
