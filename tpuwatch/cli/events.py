"""`tpuwatch events`: what was recognised, from the journal; the daemon need not run."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tpuwatch.cli import options
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.export.paper import Paper
    from tpuwatch.journal import JournalReader
    from tpuwatch.logs.catalogue import Catalogue
    from tpuwatch.model import Event

FOLLOW_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    options.add_config(parser)
    options.add_json(parser, "print one JSON object a line")
    parser.add_argument("--follow", "-f", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_since,
        help="from then on: 2h, 30m, 2026-11-20T13:00:00Z, or seconds since the epoch",
    )
    parser.add_argument(
        "--cause", metavar="CAUSE", type=_cause, help="only of this cause, for instance premapped_exhausted"
    )
    parser.add_argument("--limit", metavar="N", type=_limit, default=100, help="at most the N newest (default 100)")
    parser.add_argument(
        "--history", action="store_true", help="also what stood in the logs before tpuwatch first ran here"
    )


def run(args: argparse.Namespace) -> int:
    """Print them, oldest first."""
    from tpuwatch.export.paper import Paper
    from tpuwatch.journal import JournalReader
    from tpuwatch.logs.catalogue import load_catalogue

    config = options.load(args)
    reader = JournalReader.open(config.state.dir)
    printer = _Printer(Paper(sys.stdout), load_catalogue(config.logs.rules), as_json=args.json)
    last = reader.last_id()
    history = None if args.history else False
    found = reader.events(since=args.since, cause=args.cause, history=history, limit=args.limit, newest_first=True)
    found = [event for event in found if (event.id or 0) <= last]  # later ones are told when they are followed
    for event in reversed(found):
        printer.print(event)
    if not found and not args.json and not args.follow:
        print("No events.")
    while args.follow:
        time.sleep(FOLLOW_SECONDS)
        last = _print_new(reader, printer, args, last)
    return 0


def _print_new(reader: JournalReader, printer: _Printer, args: argparse.Namespace, last: int) -> int:
    """Print what came after the event `last`; the number of the last one now."""
    for event in reader.events(after_id=last, since=args.since, cause=args.cause, limit=1000):
        last = max(last, event.id or 0)
        if args.history or not event.history:
            printer.print(event)
    return last


class _Printer:
    """Prints events as lines for people, or as JSON."""

    def __init__(self, paper: Paper, catalogue: Catalogue, *, as_json: bool) -> None:
        self._paper = paper
        self._rules = {rule.id: rule for rule in catalogue.rules}
        self._json = as_json

    def print(self, event: Event) -> None:
        if self._json:
            from tpuwatch.export.jsonable import event as event_document

            options.print_json(event_document(event), indent=None)
            return
        from tpuwatch.logsetup import one_line

        rule = self._rules.get(event.rule)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.when))
        summary = one_line(rule.describe(event.details) if rule else event.text.partition("\n")[0])
        process = f"pid {event.pid}" if event.pid else ""
        place = ", ".join(filter(None, ["history" if event.history else "", process, one_line(event.file)]))
        self._paper.line(f"{when}  {event.cause.value}", style="bold")
        self._paper.line(summary, indent=4)
        self._paper.line(place, indent=4, style="dim")


def _since(text: str) -> float:
    from tpuwatch.jsontext import parse_time
    from tpuwatch.units import parse_seconds

    try:
        return parse_time(text)
    except ValueError:
        pass
    try:
        return time.time() - parse_seconds(text.removesuffix("ago").strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2h, 30m, 2026-11-20T13:00:00Z or seconds since the epoch"
        ) from None


def _cause(text: str) -> Cause:
    try:
        return Cause(text)
    except ValueError:
        import difflib

        near = difflib.get_close_matches(text, [cause.value for cause in Cause], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(cause.value for cause in Cause)}"
        raise argparse.ArgumentTypeError(f"there is no cause {text!r}; {hint}") from None


def _limit(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= 100_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 100000")
