"""`tpuwatch events`: what was recognised, from the store; the daemon need not run where the user may read that."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tpuwatch.cli import options
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.config import Config
    from tpuwatch.logs import Catalogue
    from tpuwatch.model import Event
    from tpuwatch.store import StoreReader
    from tpuwatch.terminal import Console
    from tpuwatch.web import DaemonEvents

FOLLOW_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_config(parser)
    options.add_json(parser, "print one JSON object a line")
    parser.add_argument("--follow", "-f", action="store_true", help="print new events until Ctrl-C")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=options.since,
        help="from then on: 2h, 30m, 2026-11-20T13:00:00Z, or seconds since the epoch",
    )
    parser.add_argument(
        "--cause", metavar="CAUSE", type=_cause, help="only of this cause, for instance premapped_exhausted"
    )
    parser.add_argument("--limit", metavar="N", type=_limit, default=100, help="at most the N newest (default 100)")
    parser.add_argument(
        "--history", action="store_true", help="also what was in the logs before tpuwatch first ran here"
    )


def run(args: argparse.Namespace) -> int:
    """Print the events, oldest first."""
    with options.config_to_look(args) as (config, unread):
        return _print_all(args, config, _reader(config, args, unread))


def _reader(config: Config, args: argparse.Namespace, unread: str) -> StoreReader | DaemonEvents:
    """The store, or where this user may not read it the daemon, which has the same."""
    from tpuwatch.core import StoreDeniedError, TpuwatchError
    from tpuwatch.store import StoreReader
    from tpuwatch.web import MAX_LIMIT, DaemonEvents, daemon_address

    denied = StoreDeniedError(unread)  # its directory is not known, either
    if not unread:
        try:
            return StoreReader.open(config.state.dir)
        except StoreDeniedError as error:
            denied = error
    events = DaemonEvents(daemon_address(config))
    try:
        events.last_id()
    except TpuwatchError as error:
        raise options.denied_and_unanswered(denied, error) from error
    if args.limit > MAX_LIMIT:
        options.print_note(f"{denied}; the daemon shows at most the {MAX_LIMIT} newest events.")
    return events


def _print_all(args: argparse.Namespace, config: Config, reader: StoreReader | DaemonEvents) -> int:
    from tpuwatch.logs import load_catalogue
    from tpuwatch.terminal import Console

    printer = _Printer(Console(sys.stdout), load_catalogue(config.logs.rules), as_json=args.json)
    last = reader.last_id()
    history = None if args.history else False
    found = reader.events(since=args.since, cause=args.cause, history=history, limit=args.limit, newest_first=True)
    found = [event for event in found if (event.id or 0) <= last]  # later ones are printed by --follow
    for event in reversed(found):
        printer.print(event)
    if not found and not args.json and not args.follow:
        print("No events.")
    while args.follow:
        time.sleep(FOLLOW_SECONDS)
        last = _print_new(reader, printer, args, last)
    return 0


def _print_new(reader: StoreReader | DaemonEvents, printer: _Printer, args: argparse.Namespace, last: int) -> int:
    """Print what came after the event `last`; the number of the last one now."""
    for event in reader.events(after_id=last, since=args.since, cause=args.cause, limit=1000):
        last = max(last, event.id or 0)
        if args.history or not event.history:
            printer.print(event)
    return last


class _Printer:
    """Prints events as lines for people, or as JSON."""

    def __init__(self, console: Console, catalogue: Catalogue, *, as_json: bool) -> None:
        self._console = console
        self._rules = {rule.id: rule for rule in catalogue.rules}
        self._json = as_json

    def print(self, event: Event) -> None:
        if self._json:
            from tpuwatch.core import encode
            from tpuwatch.model import EventDocument

            options.print_json(encode(EventDocument.of(event)), indent=None)
            return
        from tpuwatch.core import format_time, printable

        rule = self._rules.get(event.rule)
        known = rule is not None and rule.cause is event.cause
        summary = rule.describe({**event.details, **event.spread}) if rule and known else event.text.partition("\n")[0]
        process = f"pid {event.pid}" if event.pid else ""
        place = ", ".join(filter(None, ["history" if event.history else "", process, printable(event.file)]))
        self._console.line(f"{format_time(event.when)}  {event.cause.value}", style="bold")
        self._console.line(printable(summary), indent=4)
        if event.repeats and event.since is not None:
            times = f"{event.repeats + 1:,} times, since {format_time(event.since)}; this is the last"
            self._console.line(times, indent=4)
        self._console.line(place, indent=4, style="dim")
        if others := ", ".join(dict.fromkeys(printable(other.file) for other in event.places)):
            self._console.line(f"reported again in {others}", indent=4, style="dim")


def _cause(text: str) -> Cause:
    try:
        return Cause(text)
    except ValueError:
        import difflib

        known = [cause.value for cause in Cause]
        near = [name for name in known if text and name.startswith(text)] or difflib.get_close_matches(text, known, 1)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(f"there is no cause {text!r}; {hint}") from None


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= 100_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 100000")
