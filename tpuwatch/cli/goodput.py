"""`tpuwatch goodput`: where the time of trainings went, from the store; the daemon need not run where the user may read
that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.model import GoodputDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=options.since,
        help="from then on: 7d (the default), 12h, 2026-11-20T13:00:00Z, or seconds since the epoch",
    )
    options.add_workload(parser, "only this one, as `tpuwatch exec --workload` calls it")
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Always 0: lost time is no judgement. Raises TpuwatchError."""
    from tpuwatch.terminal import print_goodput

    with options.config_to_look(args) as (config, unread):
        options.show(_document(args, config, unread), print_goodput, as_json=args.json)
    return 0


def _document(args: argparse.Namespace, config: Config, unread: str) -> GoodputDocument:
    """From the store, or where this user may not read it from the daemon, which has the same."""
    from urllib.parse import urlencode

    from tpuwatch.core import StoreDeniedError, TpuwatchError
    from tpuwatch.goodput import stored_goodput
    from tpuwatch.model import GOODPUT_SECONDS, GoodputDocument
    from tpuwatch.store import StoreReader
    from tpuwatch.web import ask_daemon, daemon_address

    now = time.time()
    since = now - GOODPUT_SECONDS if args.since is None else args.since
    denied = StoreDeniedError(unread)  # its directory is not known, either
    if not unread:
        try:
            store = StoreReader.open(config.state.dir)
            return GoodputDocument.of(stored_goodput(store, since=since, now=now, workload=args.workload or ""))
        except StoreDeniedError as error:
            denied = error
    query = {"since": since, **({"workload": args.workload} if args.workload else {})}
    try:
        return ask_daemon(daemon_address(config), "goodput", GoodputDocument, f"?{urlencode(query)}")
    except TpuwatchError as error:
        raise options.denied_and_unanswered(denied, error) from error
