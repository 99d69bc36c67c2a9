"""Where the time of trainings goes, for a person at a terminal. Printed from the document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tpuwatch.core import counted, format_age, format_time, length, listed, printable
from tpuwatch.terminal.table import print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.model import EstimateDocument, GoodputDocument
    from tpuwatch.terminal.console import Console

_SHOWN: Final = 10  # interruptions, the latest
_MAX_TRAININGS: Final = 20  # the latest
_STATE_COLUMNS: Final = ("STATE", "SECONDS", "TIME", "SHARE")
_TRAINING_COLUMNS: Final = ("WORKLOAD", "USER", "BEGAN", "LAUNCHES", "STEP", "STEP_TIME", "TIME", "GOODPUT")
_INTERRUPTION_COLUMNS: Final = ("AT", "REASON", "CAUSE", "RECOVERY")


def print_goodput(console: Console, document: GoodputDocument) -> None:
    """One table of states, interruptions and the figures from them, and the trainings."""
    if not document.trainings:
        console.line(f"No training since {format_time(document.since)}.")
        return
    span = f"{format_time(document.since)} to {format_time(document.until)}"
    if document.goodput is None:
        console.line(f"Goodput: not known: no step was seen ({span})", style="bold yellow", hang=3)
    else:
        console.line(f"Goodput: {_percent(document.goodput)} ({span})", style="bold", hang=3)
    rows = [
        ("", (one.state, f"{one.seconds:.0f}", format_age(round(one.seconds)), _percent(one.share).replace(" ", "")))
        for one in document.states
        if one.seconds > 0
    ]
    total = ("bold", ("all", f"{document.total_seconds:.0f}", format_age(round(document.total_seconds)), "100.00%"))
    print_table(console, _STATE_COLUMNS, [*rows, total])
    console.line()
    _print_figures(console, document)
    _print_interruptions(console, document)
    _print_trainings(console, document)


def _print_figures(console: Console, document: GoodputDocument) -> None:
    reasons = Counter(one.reason for one in document.interruptions)
    named = f": {listed(f'{number} {reason}' for reason, number in reasons.most_common())}" if reasons else ""
    console.line(f"{counted(len(document.interruptions), 'interruption')}{named}", hang=3)
    _print_estimate(console, "Mean time between interruptions", document.time_between_interruptions, length)
    _print_estimate(console, "Mean time to recover", document.time_to_recover, length)
    _print_estimate(console, "Availability", document.availability, _percent)
    if document.google_goodput is not None:
        console.line(f"In Google's terms (stuck, slow and paused steps included): {_percent(document.google_goodput)}")


def _print_estimate(
    console: Console, name: str, estimate: EstimateDocument | None, words: Callable[[float], str]
) -> None:
    if estimate is None:
        return
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        interval = f" (95 % interval: {words(estimate.low)} to {words(estimate.high)})"
    console.line(f"{name}: {words(estimate.value)}{interval}", hang=3)


def _print_interruptions(console: Console, document: GoodputDocument) -> None:
    if not document.interruptions:
        return
    console.line()
    rows = [
        (
            "",
            (
                format_time(one.at).removesuffix(" UTC").replace(" ", "T") + "Z",
                one.reason,
                one.cause,
                "-" if one.recovery_seconds is None else format_age(round(one.recovery_seconds)),
            ),
        )
        for one in document.interruptions[-_SHOWN:]
    ]
    print_table(console, _INTERRUPTION_COLUMNS, rows)


def _print_trainings(console: Console, document: GoodputDocument) -> None:
    console.line()
    rows = []
    for one in document.trainings[-_MAX_TRAININGS:]:
        seconds = {each.state: each for each in one.states}
        known = one.step is not None
        cells = (
            printable(one.workload),
            printable(one.user),
            format_time(one.began).removesuffix(" UTC").replace(" ", "T") + "Z",
            str(one.launches),
            str(one.step) if known else "-",
            f"{one.step_seconds:.3g}s" if one.step_seconds else "-",
            format_age(round(sum(each.seconds for each in one.states))),
            _percent(seconds["productive"].share).replace(" ", "") if known else "-",
        )
        rows.append(("", cells))
    print_table(console, _TRAINING_COLUMNS, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
