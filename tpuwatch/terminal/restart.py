"""What `tpuwatch restart` prints: what is known and planned, then a line for each phase, and what goes wrong first."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import Waker, clean, cut, length, printable
from tpuwatch.model import Phase
from tpuwatch.restart import RETRYING, UsageError, full_name, words
from tpuwatch.terminal.console import Console, print_text
from tpuwatch.terminal.node import print_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from tpuwatch.core import Clock
    from tpuwatch.model import RestartRecord, Target
    from tpuwatch.restart import Headline, NodeReport, Progress, RestartResult

_TICK_SECONDS: Final = 1.0
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)
STYLES: Final = {
    Phase.DONE: "green",
    Phase.NOT_VERIFIED: "yellow",
    Phase.FAILED: "red",
    Phase.NEEDS_OPERATOR: "red",
}
_PHASE_WIDTH: Final = max(len(phase.value) for phase in Phase)
_INDENT: Final = 3
_PROGRESS_INDENT: Final = 7 + 2 + _PHASE_WIDTH + 2  # of what is shown beside the phases
_REFUSAL: Final = 600  # characters, as in the record
_SENTENCE_END: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_DOWN: Final = frozenset({Phase.STOPPING, *RETRYING})
# A phase in a few words, where the driver has nothing to say but what it waits for.
_PHASES: Final = {
    Phase.STOPPING: "The stop was accepted.",
    Phase.STOPPED: "It is stopped, and is started now.",
    Phase.STARTING: "The start was accepted.",
}


class RestartDisplay:
    """Shows the restart of nodes: a line for each phase, the last one live on a terminal. See SessionDisplay.

    Calls that are refused again and again are one line, and what has to be known and done about them comes first;
    `verbose` shows each of them. A terminal that goes away does not end the restart.
    """

    def __init__(self, console: Console, clock: Clock, *, verbose: bool = False) -> None:
        self.console = console
        self.verbose = verbose
        self.interrupted = False
        self._alone = False  # whether nobody would continue the restart, as far as is known
        self._clock = clock
        self._live = console.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._waker = Waker()
        self._latest: Progress | None = None
        self._latest_at = 0.0  # when that came
        self._live_line = False  # whether one is on the screen
        self._headline = ""  # what was shown last
        self._stage: tuple[str, str] | None = None  # likewise
        self._refusal = ""  # what the API has said last
        self._warning = ""

    # -- what the session reports

    def show_report(self, report: NodeReport, target: Target) -> None:
        document = replace(report.document, node=full_name(target), remedy=())
        self._write(lambda: print_node(self.console, document, self._clock.time()))

    def show_plan(self, steps: str, costs: Iterable[str], notes: Iterable[str]) -> None:
        for title, lines in (("What will be done", [steps]), ("What it costs", costs), ("Also", notes)):
            self._line(f"{title}:", style="bold", indent=_INDENT)
            for line in lines:
                self._line(f"- {line}", indent=_INDENT, hang=2)

    def show_headline(self, headline: Headline) -> None:
        self._line(headline.text, style="bold red")
        for command in headline.commands:
            self._command(command)

    def show_record(self, record: RestartRecord, now: float) -> None:
        self._line(full_name(record.target), style="bold")
        self._line(
            f"A restart of it is in progress, which {record.actor} requested {length(now - record.requested)} ago "
            f"({record.reason.rstrip('.')}). Its phase is {words(record.phase)!r}.",
            indent=_INDENT,
        )

    def show_note(self, text: str, *, warning: bool = False) -> None:
        self._line(text, indent=_INDENT, style="yellow" if warning else "")

    def show_result(self, result: RestartResult) -> None:
        self._write(self._clear)
        self._latest = self._stage = None
        self._headline = self._refusal = self._warning = ""
        if result.headline is not None:
            self.show_headline(result.headline)
        if result.note:
            plain = result.outcome == "dry_run" or result.headline is not None
            self._line(result.note, style="" if plain else "green" if result.exit_code == 0 else "red", indent=_INDENT)

    def on_progress(self, progress: Progress, headline: Headline | None) -> None:
        """Print what has changed; else refresh the live line."""
        record, before = progress.record, self._latest.record if self._latest is not None else None
        self._latest, self._latest_at = progress, self._clock.monotonic()
        if headline is not None and headline.text != self._headline:
            self.show_headline(headline)
        stage = _stage(record)
        if headline is not None or self._stage is None or stage[0] != self._stage[0]:
            self._headline = headline.text if headline is not None else ""
        if self._refusal and self._refusal != record.failure and self._refusal not in record.note:
            why = self._why(record, self._refusal, _PROGRESS_INDENT)
            self._line(why, indent=_PROGRESS_INDENT, style="yellow")
        self._refusal = ""
        is_new = before is None or _details(before) != _details(record)
        if stage != self._stage:
            self._show_phase(progress)
        elif self.verbose and is_new:
            self._line(progress.sentence, indent=_PROGRESS_INDENT, style="dim")
        if self.verbose and is_new and record.operation:
            self._line(f"Operation: {record.operation}", indent=_PROGRESS_INDENT, style="dim")
        self._stage = stage
        self._refresh()

    def _show_phase(self, progress: Progress) -> None:
        record = progress.record
        heading = f"{elapsed(progress.elapsed):>7}  {words(record.phase):<{_PHASE_WIDTH}}  "
        text = progress.sentence
        if record.open and not self.verbose:
            waits = text.startswith("Node ")  # with it begins what the driver says of a node that goes its way
            text = self._short(_PHASES.get(record.phase, text) if waits else text)
            text = self._why(record, record.failure, len(heading)) if _is_retried(record) else text
        style = STYLES.get(record.phase, "yellow" if _is_retried(record) else "")
        self._line(heading + text, style=style, hang=len(heading))

    def _short(self, text: str) -> str:
        """The text's first sentence on a terminal; in a pipe all of it."""
        return _SENTENCE_END.split(text, maxsplit=1)[0] if self.console.wraps else text

    def _why(self, record: RestartRecord, failure: str, indent: int) -> str:
        """Why a call failed, cut to three lines of a terminal; the node is known."""
        name = record.target.node
        return clean(
            failure.replace(f" of node {name}", "").replace(f" of {name}", ""), 3 * (self.console.width - indent)
        )

    def on_refusal(self, message: str) -> None:
        """The API refused a call."""
        if self.verbose:
            self._line(message, indent=_PROGRESS_INDENT, style="yellow")
        else:
            self._refusal = clean(message, _REFUSAL)  # shown with what the driver makes of it

    def on_warning(self, message: str) -> None:
        """The driver logs a warning; one that it repeats is shown once."""
        if self.verbose or message != self._warning:
            self._line(message, indent=_PROGRESS_INDENT, style="yellow")
        self._warning = message

    # -- the operator

    def confirm(self, target: Target, *, healthy: bool) -> bool:
        """Ask whether to restart it. To restart a healthy node its name has to be typed, so that no slip does it.

        Raises UsageError if there is no terminal to ask on.
        """
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("there is no terminal to ask on: give --yes to confirm")
        if healthy:
            question = "Nothing is known to be wrong with it. To restart it, type its name:"
            return self._ask(question) == target.node
        return self._ask(f"Restart {target.node}? [y/N]") in ("y", "yes")

    def _ask(self, question: str) -> str:
        """The answer, in lower case; "" if there is none."""
        self.console.stream.write(f"{' ' * _INDENT}{question} ")
        self.console.stream.flush()
        answer = ""
        try:
            answer = sys.stdin.readline()
        finally:
            if not answer.endswith("\n"):
                self.console.line()
        return answer.strip().lower()

    def wait(self, seconds: float) -> bool:
        """Wait, and refresh the live line; whether the operator interrupted it."""
        end = self._clock.monotonic() + seconds
        while not self.interrupted:
            left = end - self._clock.monotonic()
            if left <= 0:
                break
            self._waker.wait(min(left, _TICK_SECONDS) if self._live else left)
            self._refresh()
        return self.interrupted

    def linger(self, seconds: float) -> None:
        """Wait after an interruption; a second one raises KeyboardInterrupt."""
        self._waker.wait(seconds)

    @contextlib.contextmanager
    def driving(self, *, alone: bool = False) -> Iterator[None]:
        """While a restart is driven: Ctrl-C ends it in an orderly way, and a lost connection does not end it.

        `alone`: after Ctrl-C nobody continues it, as far as is known.
        """
        self._alone = alone
        before = {number: signal.signal(number, self._interrupt) for number in _INTERRUPTS}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the node must not be left stopped
        handler, logger = _WarningHandler(self), logging.getLogger("tpuwatch")
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            for number, previous in before.items():
                signal.signal(number, previous)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """The first signal ends the restart after this step, the second at once: the ledger allows for it."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._waker.wake()

    # -- lines

    def _line(self, text: str, *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        def write() -> None:
            self._clear()
            print_text(self.console, text, style=style, indent=indent, hang=hang)

        self._write(write)

    def _command(self, command: str) -> None:
        def write() -> None:
            self._clear()
            self.console.row(f"  {printable(command)}", style="bold")

        self._write(write)

    def _refresh(self) -> None:
        """Print the live line: how long the restart and its phase have lasted."""
        if self._live and self._latest is not None and self._latest.record.open:
            latest = self._latest
            self._write(lambda: self._print_live_line(latest))

    def _print_live_line(self, latest: Progress) -> None:
        total = latest.elapsed + self._clock.monotonic() - self._latest_at
        waiting = _waiting(latest.record, self._clock.time())
        text = f"{elapsed(total):>7}  … {waiting}; {self._on_interrupt(latest.record)}"
        room = shutil.get_terminal_size().columns - 1
        self.console.stream.write(f"\r\x1b[K{text if len(text) <= room else cut(text, room - 1)}")
        self.console.stream.flush()
        self._live_line = True

    def _on_interrupt(self, record: RestartRecord) -> str:
        if not self._alone:
            return "Ctrl-C ends only this command"
        return f"Ctrl-C leaves it {'STOPPED' if record.phase in _DOWN else 'as it is'}"

    def _clear(self) -> None:
        if self._live_line:
            self.console.stream.write("\r\x1b[K")
            self._live_line = False

    def _write(self, write: Callable[[], None]) -> None:
        """Write; once the terminal, or the reader of the pipe, has gone away, all output is dropped."""
        try:
            write()
        except OSError:
            self._live = self._live_line = False
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.console.stream.fileno())
            os.close(null)


class _WarningHandler(logging.Handler):
    """Shows the driver's warnings between the lines."""

    def __init__(self, display: RestartDisplay) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "is_alarm", False):  # it is the headline
            self._display.on_warning(record.getMessage())


def elapsed(seconds: float) -> str:
    """0:07, 12:30, 1:02:30."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _stage(record: RestartRecord) -> tuple[str, str]:
    """What is a line of its own: a phase, or calls that fail for one reason, whatever phases they go through."""
    if _is_retried(record):
        return ("start" if record.phase in RETRYING else "stop", record.failure)
    return (record.phase.value, "")


def _is_retried(record: RestartRecord) -> bool:
    """Whether a call has failed that is made again."""
    return record.tries > 0 and record.phase in (Phase.REQUESTED, Phase.INTENT, Phase.STOPPING, *RETRYING)


def _details(record: RestartRecord) -> tuple[object, ...]:
    return record.phase, record.note, record.tries, record.operation


def _waiting(record: RestartRecord, now: float) -> str:
    """The live line: for how long what has lasted."""
    since = record.down if _is_retried(record) and record.down else record.entered
    parts = [f"{words(record.phase)} {elapsed(now - since)}"]
    if _is_retried(record):
        parts.append("1 try" if record.tries == 1 else f"{record.tries} tries")
        if record.not_before > now:
            parts.append(f"next in {elapsed(record.not_before - now)}")
    return ", ".join(parts)
