"""`tpuwatch restarts`: show what the ledger holds, cancel a restart, reset the breaker."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.cli import options, restart

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.model import PastRestartDocument, Target
    from tpuwatch.restart import LedgerAccess, LedgerStatus

_SHOW, _HISTORY, _CANCEL, _RESET = "show", "history", "cancel", "reset-breaker"
_ACTIONS = {
    _SHOW: "show what is in progress, the latest restarts, budgets and the breaker",
    _HISTORY: "list all recorded restarts",
    _CANCEL: "cancel a restart for which nothing has been done yet",
    _RESET: "close the breaker: let tpuwatch restart nodes by itself again",
}
_VALUED = ("--zone", "--project", "--config")  # options that take a value
_EPILOG = (
    "Exit codes: 0 done, 1 an operator is needed, or a restart was not cancelled, 2 wrong use, 3 could not find out."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = f"`tpuwatch restarts [NODE ...]` is `tpuwatch restarts show [NODE ...]`. {_EPILOG}"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_EPILOG)
        if name != _RESET:
            count, default = ("+", "") if name == _CANCEL else ("*", "; default: all")
            action.add_argument("nodes", nargs=count, metavar="NODE", help=f"as in `tpuwatch restart`{default}")
            restart.add_location(action)
        options.add_config(action)
        options.add_json(action)
        action.set_defaults(usage_error=action.error)


def with_action(words: Sequence[str]) -> list[str]:
    """The command's words with the action first: `tpuwatch restarts [NODE ...]` is `tpuwatch restarts show`."""
    import difflib

    before = 0
    while before < len(words) and words[before].startswith("-"):
        before += 2 if words[before] in _VALUED else 1
    if {"-h", "--help"} & set(words[:before]):
        return list(words)
    word = words[before] if before < len(words) else ""
    if difflib.get_close_matches(word, _ACTIONS, 1, 0.8):  # an action, or a misspelt one, which is refused
        return [word, *words[:before], *words[before + 1 :]]
    return [_SHOW, *words]


def run(args: argparse.Namespace) -> int:
    """0 done, 1 an operator is needed or a restart was not cancelled, 2 wrong use, 3 could not find out."""
    from tpuwatch.core import ConflictError, LedgerDeniedError, LedgerError
    from tpuwatch.model import ledger_down
    from tpuwatch.restart import UsageError

    try:
        if args.action in (_CANCEL, _RESET):
            return _change(args, options.load(args))
        with options.config_to_look(args) as (config, unread):
            return _look(args, config, unread)
    except (ConflictError, LedgerDeniedError):
        raise
    except LedgerError as error:
        raise LedgerError(ledger_down(str(error))) from error
    except UsageError as error:
        args.usage_error(str(error))
        raise


def _look(args: argparse.Namespace, config: Config, unread: str) -> int:
    """Show what is in the ledger, or where this user may not read it what the daemon reports of it."""
    from tpuwatch.core import LedgerDeniedError
    from tpuwatch.restart import open_access

    clock = restart.make_clock()
    targets = _targets(args, config, clock)
    access = open_access(config, clock, args.config)
    try:
        if unread:  # another ledger may be meant
            return _show_reported(args, config, access, targets, clock, unread)
        try:
            return _show(args, config, access, targets, clock)
        except LedgerDeniedError as error:
            return _show_reported(args, config, access, targets, clock, str(error))
    finally:
        access.ledger.close()


def _change(args: argparse.Namespace, config: Config) -> int:
    from tpuwatch.restart import open_access

    clock = restart.make_clock()
    targets = [] if args.action == _RESET else _targets(args, config, clock)
    access = open_access(config, clock, args.config)
    try:
        if args.action == _RESET:
            return _reset_breaker(args, config, access, clock)
        return _cancel(args, access, targets, clock)
    finally:
        access.ledger.close()


def _targets(args: argparse.Namespace, config: Config, clock: Clock) -> list[Target]:
    from tpuwatch.restart import OwnNode, find_own_node, parse_targets

    complete = all(name.startswith("projects/") for name in args.nodes)
    own_node = OwnNode({}) if complete else find_own_node(config.cloud, clock)
    return parse_targets(args.nodes, args.zone, args.project, config, own_node)


def _show(
    args: argparse.Namespace, config: Config, access: LedgerAccess, targets: Sequence[Target], clock: Clock
) -> int:
    from tpuwatch.restart import PolicySettings, read_history, read_status

    if args.action == _HISTORY:
        return _print_history(args, read_history(access, targets), access.location)
    now = clock.time()
    return _print_status(args, read_status(access, targets, PolicySettings.of(config), now), access, now)


def _show_reported(
    args: argparse.Namespace,
    config: Config,
    access: LedgerAccess,
    targets: Sequence[Target],
    clock: Clock,
    why: str,
) -> int:
    """`why` the ledger is not read here, a clause."""
    from tpuwatch.core import TpuwatchError, format_time
    from tpuwatch.model import RestartsDocument
    from tpuwatch.restart import reported_history, reported_status
    from tpuwatch.web import MAX_LIMIT, ask_daemon, daemon_address

    address, now = daemon_address(config), clock.time()
    try:
        document = ask_daemon(address, "restarts", RestartsDocument, f"?limit={MAX_LIMIT}")
    except TpuwatchError as error:
        raise options.denied_and_unanswered(why, error) from error
    status = reported_status(document, targets, now)
    read = "an unknown time" if document.ledger_read is None else format_time(document.ledger_read)
    options.print_note(f"{why}. This is what the daemon last read in the ledger, at {read}.")
    if args.action == _HISTORY:
        return _print_history(args, reported_history(document, targets), "what the daemon has read")
    return _print_status(args, status, replace(access, location=""), now)


def _print_status(args: argparse.Namespace, status: LedgerStatus, access: LedgerAccess, now: float) -> int:
    from tpuwatch.core import encode
    from tpuwatch.terminal import Console, print_restarts

    if args.json:
        options.print_json(encode(status.document()))
    else:
        print_restarts(Console(sys.stdout), status, access, now)
    return int(status.needs_attention)


def _print_history(args: argparse.Namespace, past: Sequence[PastRestartDocument], where: str) -> int:
    from tpuwatch.core import encode
    from tpuwatch.terminal import Console, print_restart_history

    if args.json:
        for one in past:
            options.print_json(encode(one), indent=None)
    else:
        print_restart_history(Console(sys.stdout), past, where)
    return 0


def _cancel(args: argparse.Namespace, access: LedgerAccess, targets: Sequence[Target], clock: Clock) -> int:
    from tpuwatch.core import encode
    from tpuwatch.restart import cancel_restart
    from tpuwatch.terminal import Console, print_text

    code = 0
    for target in targets:
        cancellation = cancel_restart(access, target, clock.time())
        cancelled = cancellation.outcome == "cancelled"
        if args.json:
            options.print_json(encode(cancellation), indent=None)
        else:
            print_text(Console(sys.stdout), cancellation.note, style="green" if cancelled else "red")
        code = max(code, int(not cancelled))
    return code


def _reset_breaker(args: argparse.Namespace, config: Config, access: LedgerAccess, clock: Clock) -> int:
    from tpuwatch.core import encode
    from tpuwatch.restart import PolicySettings, reset_breaker
    from tpuwatch.terminal import Console, print_text

    reset = reset_breaker(access, PolicySettings.of(config), clock.time())
    if args.json:
        options.print_json(encode(reset.document), indent=None)
    else:
        print_text(Console(sys.stdout), reset.note, style="red" if reset.opens_again else "green")
    return int(reset.opens_again)
