"""`tpuwatch status`: what the daemon on this machine knows, on one screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import options
from tpuwatch.web import ask_daemon, daemon_address, reading_documents

if TYPE_CHECKING:
    import argparse

    from tpuwatch.terminal import Console

_LAUNCHES = 5
_SHOWN = 3  # launches, files and other nodes, where a person reads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when nothing is wrong with this machine, 1 when something is, 3 when the daemon does not answer."""
    address = daemon_address(options.load(args))
    with reading_documents(address):
        return _run(args, address)


def _run(args: argparse.Namespace, address: str) -> int:
    from tpuwatch.model import is_bad

    status = ask_daemon(address, "status", "version")
    findings = ask_daemon(address, "findings", "findings")["findings"]
    launches = ask_daemon(address, "launches", "launches")["launches"][:_LAUNCHES]
    others = _others(ask_daemon(address, "nodes", "nodes", f"?limit={_SHOWN + 1}"))
    if args.json:
        options.print_json({**status, "findings": findings, "launches": launches})
    else:
        from tpuwatch.terminal import Console

        _print(Console(sys.stdout), address, status, findings, launches, others)
    node = status.get("node")
    return 1 if findings or not status["ready"] or (node and is_bad(node["verdict"])) else 0


def _others(document: Any) -> list[Any]:
    """The worst of the other nodes that are watched from here, if they are bad."""
    from tpuwatch.model import is_bad

    return [node for node in document["nodes"] if not node["own"] and is_bad(node["verdict"])][:_SHOWN]


def _print(
    console: Console, address: str, status: Any, findings: list[Any], launches: list[Any], others: list[Any]
) -> None:
    from tpuwatch.core import printable
    from tpuwatch.terminal import (
        describe_launch,
        print_finding,
        print_machine,
        print_node,
        print_other_nodes,
    )

    console.line(f"tpuwatch {status['version']} at http://{address}/, up since {status['started']}", style="bold")
    console.line(printable(status["state"]))
    for line in [*status["notices"], *status["not_ready"], *status.get("restarts", ())]:
        console.line(printable(line), style="yellow")
    console.line()
    if status.get("node"):
        print_node(console, status["node"], status["now_epoch"], signals=status["signals"])
    print_machine(console, status)
    print_other_nodes(console, others)
    if status.get("node") or status.get("identity"):
        console.line()
    if not findings:
        console.line("Nothing was wrong in the last 24 hours that tpuwatch knows of.", style="green")
    for number, finding in enumerate(findings, 1):
        print_finding(console, finding, number=number)
        console.line(f"last at {finding['seen']}", indent=3, style="dim")
    _print_next_launches(console, status.get("tune"))
    if launches:
        console.line()
        console.line("Launches, the newest first", style="bold")
    for launch in launches[:_SHOWN]:
        console.line(f"{launch['started']}  {describe_launch(launch)}", indent=2, hang=2)
    if status["problems"]:
        console.line()
        console.line("Not read", style="bold")
    for problem in status["problems"][:_SHOWN]:
        console.line(printable(f"{problem['path']}: {problem['reason']}"), indent=2, hang=2, style="yellow")


def _print_next_launches(console: Console, document: Any) -> None:
    """What the next launches get, and why; nothing if nothing is decided or an older daemon answers."""
    from tpuwatch.core import printable
    from tpuwatch.web import tune_sentences

    sentences = tune_sentences(document, _SHOWN) if document else []
    if sentences:
        console.line()
        console.line("Next launch", style="bold")
    for line in sentences:
        console.line(printable(line), indent=2, hang=2)
