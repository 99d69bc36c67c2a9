"""`tpuwatch status`: what the daemon on this machine knows, on one screen."""

from __future__ import annotations

import http.client
import json
import sys
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import options
from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.export.paper import Paper

_SECONDS = 5.0
_SHOWN = 5  # launches and files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 when nothing is wrong, 1 when something is, 3 when the daemon does not answer."""
    address = _address(options.load(args))
    status = _get(address, "status", "version")
    findings = _get(address, "findings", "findings")["findings"]
    launches = _get(address, "launches", "launches")["launches"][:_SHOWN]
    if args.json:
        options.print_json({**status, "findings": findings, "launches": launches})
    else:
        from tpuwatch.export.paper import Paper

        _tell(Paper(sys.stdout), address, status, findings, launches)
    return 1 if findings or not status["ready"] else 0


def _address(config: Config) -> str:
    """Where the daemon serves: it leaves a note in its state directory, for port 0; else as configured."""
    from tpuwatch.export.view import ADDRESS_FILE

    try:
        return (config.state.dir / ADDRESS_FILE).read_text().strip() or config.http.listen
    except OSError:
        return config.http.listen


def _get(address: str, name: str, key: str) -> Any:
    """A document of the daemon's, which has this key; else it is some other program that answers."""
    connection = http.client.HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request("GET", f"/api/v1/{name}")
        reply = connection.getresponse()
        document = json.loads(reply.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silence(address, str(error)) from error
    finally:
        connection.close()
    if not isinstance(document, dict) or (reply.status == http.client.OK and key not in document):
        raise _silence(address, "some other program does")
    if reply.status != http.client.OK:
        raise TpuwatchError(f"the daemon at {address} cannot tell its {name}: {document.get('error', reply.status)}")
    return document


def _silence(address: str, reason: str) -> TpuwatchError:
    return TpuwatchError(
        f"no daemon answers at {address} ({reason}); start it with `tpuwatch run` or `systemctl start tpuwatch`, "
        "or read what it left behind with `tpuwatch events`"
    )


def _tell(paper: Paper, address: str, status: Any, findings: list[Any], launches: list[Any]) -> None:
    from tpuwatch.export.terminal import describe_launch, printable, tell_finding

    paper.line(f"tpuwatch {status['version']} at http://{address}/, up since {status['started']}", style="bold")
    paper.line(printable(status["state"]))
    for notice in [*status["notices"], *status["not_ready"]]:
        paper.line(printable(notice), style="yellow")
    paper.line()
    if not findings:
        paper.line("Nothing was wrong in the last 24 hours that tpuwatch knows of.", style="green")
    for number, finding in enumerate(findings, 1):
        tell_finding(paper, finding, number=number)
        paper.line(f"last at {finding['last']['time']}", indent=3, style="dim")
    if launches:
        paper.line()
        paper.line("Launches, the newest first", style="bold")
    for launch in launches:
        paper.line(f"{launch['started']}  {describe_launch(launch)}", indent=2, hang=2)
    if status["problems"]:
        paper.line()
        paper.line("Not read", style="bold")
    for problem in status["problems"][:_SHOWN]:
        paper.line(printable(f"{problem['path']}: {problem['reason']}"), indent=2, hang=2, style="yellow")
