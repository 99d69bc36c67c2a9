"""`tpuwatch status`: what the daemon on this machine knows, on one screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import daemon, options

if TYPE_CHECKING:
    import argparse

    from tpuwatch.export.paper import Paper

_LAUNCHES = 5
_SHOWN = 3  # launches, files and other nodes, where a person reads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when nothing is wrong with this machine, 1 when something is, 3 when the daemon does not answer."""
    address = daemon.address(options.load(args))
    with daemon.understood(address):
        return _run(args, address)


def _run(args: argparse.Namespace, address: str) -> int:
    from tpuwatch.export.words import is_bad

    status = daemon.ask(address, "status", "version")
    findings = daemon.ask(address, "findings", "findings")["findings"]
    launches = daemon.ask(address, "launches", "launches")["launches"][:_LAUNCHES]
    others = _others(daemon.ask(address, "nodes", "nodes", f"?limit={_SHOWN + 1}"))
    if args.json:
        options.print_json({**status, "findings": findings, "launches": launches})
    else:
        from tpuwatch.export.paper import Paper

        _tell(Paper(sys.stdout), address, status, findings, launches, others)
    node = status.get("node")
    return 1 if findings or not status["ready"] or (node and is_bad(node["verdict"])) else 0


def _others(document: Any) -> list[Any]:
    """The worst of the other nodes that are watched from here, if they are bad."""
    from tpuwatch.export.words import is_bad

    return [node for node in document["nodes"] if not node["own"] and is_bad(node["verdict"])][:_SHOWN]


def _tell(paper: Paper, address: str, status: Any, findings: list[Any], launches: list[Any], others: list[Any]) -> None:
    from tpuwatch.export.node_terminal import tell_machine, tell_node, tell_others
    from tpuwatch.export.terminal import describe_launch, printable, tell_finding

    paper.line(f"tpuwatch {status['version']} at http://{address}/, up since {status['started']}", style="bold")
    paper.line(printable(status["state"]))
    for line in [*status["notices"], *status["not_ready"], *status.get("restarts", ())]:
        paper.line(printable(line), style="yellow")
    paper.line()
    if status.get("node"):
        tell_node(paper, status["node"], status["now_epoch"], witnesses=status["witnesses"])
    tell_machine(paper, status)
    tell_others(paper, others)
    if status.get("node") or status.get("identity"):
        paper.line()
    if not findings:
        paper.line("Nothing was wrong in the last 24 hours that tpuwatch knows of.", style="green")
    for number, finding in enumerate(findings, 1):
        tell_finding(paper, finding, number=number)
        paper.line(f"last at {finding['seen']}", indent=3, style="dim")
    _tell_next(paper, status.get("tune"))
    if launches:
        paper.line()
        paper.line("Launches, the newest first", style="bold")
    for launch in launches[:_SHOWN]:
        paper.line(f"{launch['started']}  {describe_launch(launch)}", indent=2, hang=2)
    if status["problems"]:
        paper.line()
        paper.line("Not read", style="bold")
    for problem in status["problems"][:_SHOWN]:
        paper.line(printable(f"{problem['path']}: {problem['reason']}"), indent=2, hang=2, style="yellow")


def _tell_next(paper: Paper, document: Any) -> None:
    """What the next launches get, and why; nothing where nothing is decided or an older daemon answers."""
    from tpuwatch.export.terminal import printable
    from tpuwatch.export.tunes import lines

    told = lines(document, _SHOWN) if document else []
    if told:
        paper.line()
        paper.line("Next launch", style="bold")
    for line in told:
        paper.line(printable(line), indent=2, hang=2)
