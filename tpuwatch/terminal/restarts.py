"""What `tpuwatch restarts` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import counted, format_time, length
from tpuwatch.model import Phase
from tpuwatch.restart import left, words
from tpuwatch.terminal.console import print_text
from tpuwatch.terminal.restart import STYLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import PastRestartDocument, RestartRecord, Target
    from tpuwatch.restart import LedgerAccess, LedgerStatus, RestartState
    from tpuwatch.terminal.console import Console

_MAX_ENDED: Final = 5  # restarts that have ended, in the status


def print_restarts(console: Console, status: LedgerStatus, access: LedgerAccess, now: float) -> None:
    """What is in progress, then the breaker and the budget of all nodes, and what ended last."""
    if status.ledger_problem:
        print_text(console, status.ledger_problem, style="red")
    unfinished = [state for state in status.restarts if state.record.open]
    console.line("In progress" if unfinished else "Nothing is in progress.", style="bold")
    for state in sorted(unfinished, key=lambda state: not state.needs_attention):
        _print_unfinished(console, state, access, now)
    console.line()
    _print_breaker(console, status, access, now)
    budget = status.budget
    print_text(
        console,
        f"Restarts of all nodes within {length(budget.window_seconds)}: {budget.restarts}; tpuwatch itself does at "
        f"most {budget.max_restarts}.",
    )
    if access.location:
        print_text(console, f"The ledger is in {access.location}.", style="dim")
    _print_ended(console, [state.record for state in status.restarts if not state.record.open], access, now)


def _print_breaker(console: Console, status: LedgerStatus, access: LedgerAccess, now: float) -> None:
    breaker = status.breaker
    hint = f"When the cause is fixed: `{access.command('restarts', 'reset-breaker')}`"
    if breaker.opened is not None:
        text = f"The breaker has been OPEN for {length(now - breaker.opened)}: tpuwatch itself restarts nothing."
        print_text(console, f"{text} {breaker.reason} {hint}", style="red")
    elif status.budget.breaker_opens:
        text = "The breaker opens before the next restart by tpuwatch itself."
        print_text(console, f"{text} {status.budget.breaker_opens} {hint}", style="red")
    else:
        console.line("The breaker is closed.", style="green")


def _print_unfinished(console: Console, state: RestartState, access: LedgerAccess, now: float) -> None:
    record = state.record
    print_text(
        console,
        f"{_short_name(record.target)}: {words(record.phase)} for {length(now - record.entered)}",
        indent=2,
        style="red" if state.needs_attention else "",
    )
    if state.is_alone:
        headline = left(record, "", access.command("restart", record.target.path))
        print_text(console, f"{headline}", indent=4, style="bold red")
    requested = f"Requested by {record.actor} {length(now - record.requested)} ago: {record.reason}"
    print_text(console, requested, indent=4)
    print_text(console, _describe_driver(state), indent=4)
    if record.failure and record.tries:
        print_text(console, f"Tried {counted(record.tries, 'time')}: {record.failure}", indent=4)
    if record.note and not (record.tries and record.note == record.failure):
        print_text(console, record.note, indent=4, style="yellow")


def _describe_driver(state: RestartState) -> str:
    if state.is_alone:
        return f"Its driver, {state.driver}, has ended." if state.driver else "It has no driver."
    if state.is_driven:
        return f"Driven by {state.driver}, as far as is known."
    return "Requested by the node's own daemon; nobody has begun it yet."


def _print_ended(console: Console, records: Sequence[RestartRecord], access: LedgerAccess, now: float) -> None:
    if not records:
        return
    console.line()
    console.line("Ended last", style="bold")
    for record in sorted(records, key=lambda record: -record.entered)[:_MAX_ENDED]:
        text = f"{_short_name(record.target)}: {words(record.phase)} {length(now - record.entered)} ago"
        print_text(console, text, indent=2, style="" if record.phase is Phase.DONE else STYLES.get(record.phase, ""))
        if record.note and record.phase is not Phase.DONE:
            print_text(console, record.note, indent=4)
    if len(records) > _MAX_ENDED:
        more = f"{len(records) - _MAX_ENDED} more: `{access.command('restarts', 'history')}` lists all."
        print_text(console, more, indent=2, style="dim")


def print_restart_history(console: Console, past: Sequence[PastRestartDocument], location: str) -> None:
    """All restarts that have ended. `location` is the ledger's."""
    for one in past:
        heading = f"{format_time(one.began)}  {_short_name(one)}: {words(one.phase)}"
        print_text(console, f"{heading} after {length(one.seconds)}", style=STYLES.get(one.phase, ""))
        stops = counted(one.stops, "stop") if one.stops else "nothing was stopped"
        details = f"{words(one.action)}, {stops}; requested by {one.actor}, cause: {one.cause}"
        print_text(console, details, indent=4, style="dim")
        if one.reason:
            print_text(console, f"Why: {one.reason}", indent=4)
        if one.note and one.phase is not Phase.DONE:
            print_text(console, f"Then: {one.note}", indent=4)
    if not past:
        print_text(console, f"No restart is recorded in {location}.")


def _short_name(named: Target | PastRestartDocument) -> str:
    return f"{named.node} ({named.zone})"
