"""`tpuwatch top`: what one daemon or several know, on the whole screen, kept up to date."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.core import Clock
    from tpuwatch.top import Reading
    from tpuwatch.web import DaemonAddress

_SECONDS = 2.0
_SHORTEST = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "keys: q leaves, arrows choose a node or scroll, enter opens it, escape goes back, s and r change the order, "
        "/ filters, ? explains. Where standard output is no terminal, once and as text"
    )
    parser.add_argument(
        "urls",
        nargs="*",
        type=_address,
        metavar="URL",
        help="daemons to ask, as http://HOST:PORT, https://HOST:PORT or HOST:PORT (default: the one on this machine)",
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="the certificate that the daemons of https:// URLs have: a copy of their http.certificate_file",
    )
    parser.add_argument("--token-file", metavar="FILE", help="the token to ask those of the URLs with")
    parser.add_argument(
        "--interval", type=_interval, default=_SECONDS, metavar="S", help="seconds between questions (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="print it once, as text")
    options.add_config(parser)
    options.add_json(parser, "print it once, as one JSON document")


def run(args: argparse.Namespace) -> int:
    """On a screen 0. Once, as `tpuwatch status`: 0 when nothing is wrong, 1 when something is, 3 when a daemon does not
    answer."""
    from tpuwatch.web import daemon_address

    if args.urls:  # and nothing of the configuration is needed
        return _show([_daemon(url, args) for url in dict.fromkeys(args.urls)], args)
    with options.config_to_look(args) as (config, _):
        return _show([daemon_address(config)], args)


def _daemon(url: tuple[str, str], args: argparse.Namespace) -> DaemonAddress:
    from tpuwatch.core import ConfigError
    from tpuwatch.web import DaemonAddress

    scheme, address = url
    if scheme == "http":
        return DaemonAddress(address, token_file=args.token_file or "")
    if not args.certificate:
        raise ConfigError(f"https://{address} needs --certificate FILE: a copy of that daemon's http.certificate_file")
    return DaemonAddress(address, args.certificate, args.token_file or "")


def _show(addresses: Sequence[DaemonAddress], args: argparse.Namespace) -> int:
    from tpuwatch.core import SystemClock
    from tpuwatch.top import TopView, WatchedDaemon, run_on_screen

    clock = SystemClock()
    if args.once or args.json or not _on_terminal():
        return _once(addresses, clock, as_json=args.json)
    daemons = [WatchedDaemon(address, args.interval, clock) for address in addresses]
    for daemon in daemons:
        daemon.start()
    try:
        run_on_screen(TopView(), daemons, clock)
    finally:
        for daemon in daemons:
            daemon.stop()
    return 0


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _once(addresses: Sequence[DaemonAddress], clock: Clock, *, as_json: bool) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from tpuwatch.core import encode
    from tpuwatch.model import AskedDaemonDocument

    with ThreadPoolExecutor(max_workers=min(len(addresses), 16)) as pool:
        readings = list(pool.map(lambda address: _reading(address, clock), addresses))
    if as_json:
        shown = [one.documents or AskedDaemonDocument(address=one.address, error=one.error) for one in readings]
        options.print_json({"daemons": [encode(one) for one in shown]})
    else:
        _print(readings)
    if any(one.error for one in readings):
        return 3
    return 1 if any(_is_wrong(one) for one in readings) else 0


def _reading(address: DaemonAddress, clock: Clock) -> Reading:
    from tpuwatch.core import TpuwatchError
    from tpuwatch.top import Reading, read_daemon

    try:
        return read_daemon(address, clock)
    except TpuwatchError as error:
        return Reading(str(address), error=str(error))


def _print(readings: Sequence[Reading]) -> None:
    from tpuwatch.terminal import Console
    from tpuwatch.top import snapshot

    console = Console(sys.stdout)
    for number, reading in enumerate(readings):
        if number:
            console.line()
        if len(readings) > 1:
            console.line(reading.address, style="bold")
        if reading.documents is not None:
            snapshot(console, reading.documents)
        else:
            options.print_note(reading.error)


def _is_wrong(reading: Reading) -> bool:
    return reading.documents is not None and any(reading.documents.status.problem_counts.values())


def _address(text: str) -> tuple[str, str]:
    """The scheme and HOST:PORT of what was given."""
    from urllib.parse import urlsplit

    url = urlsplit(text if "://" in text else f"http://{text}")
    if (
        url.scheme not in ("http", "https")
        or not url.hostname
        or url.path.strip("/")
        or url.query
        or url.username is not None
    ):
        raise ValueError(text)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return url.scheme, f"{host}:{url.port or 9478}"


def _interval(text: str) -> float:
    seconds = float(text)
    if not _SHORTEST <= seconds <= 3600:
        raise ValueError(text)
    return seconds


_address.__name__, _interval.__name__ = "URL such as http://10.0.0.2:9478", "number of seconds from 0.5 to 3600"
