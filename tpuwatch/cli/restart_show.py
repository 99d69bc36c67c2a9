"""What `tpuwatch restart` shows while it is at work: a line for each phase, the last of them alive on a terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.export.paper import WIDTH, Paper
from tpuwatch.export.terminal import printable
from tpuwatch.health.words import length
from tpuwatch.restart.record import Phase
from tpuwatch.waker import Waker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tpuwatch.clock import Clock
    from tpuwatch.restart.api import NodeApi
    from tpuwatch.restart.executor import Progress
    from tpuwatch.restart.machine.sights import Call, CallAnswer, Sight
    from tpuwatch.restart.record import Record, Target

_TICK_SECONDS: Final = 1.0
_COMMAND: Final = re.compile(r"`([^`]{30,})`")
_ENDS: Final = (signal.SIGINT, signal.SIGTERM)
_STYLES: Final = {Phase.DONE: "green", Phase.FAILED: "red", Phase.NEEDS_PERSON: "red"}
_PHASE_WIDTH: Final = max(len(phase.value) for phase in Phase)
INDENT: Final = 7 + 2 + _PHASE_WIDTH + 2  # of what is told beside the phases


def elapsed(seconds: float) -> str:
    """0:07, 12:30, 1:02:30."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def phase_words(phase: Phase) -> str:
    """A phase as people write it: `needs person`."""
    return phase.value.replace("_", " ")


def tell(paper: Paper, text: str, *, style: str = "", indent: int = 0, hang: int = 0) -> None:
    """Text that may come from outside, wrapped; each long command in it on a line of its own, to be copied."""
    if not text:
        paper.line()
    for number, part in enumerate(_COMMAND.split(printable(text))):
        if number % 2:
            paper.row(f"{' ' * (indent + hang + 2)}{part}", style="bold")
        elif words := part.strip(" ,.") if number else part.rstrip():
            paper.line(words, style=style, indent=indent + (hang if number else 0), hang=0 if number else hang)


class Show:
    """Shows how a restart comes along, and waits for it. A terminal that has gone away is no reason to break it off."""

    def __init__(self, paper: Paper, clock: Clock) -> None:
        self.paper = paper
        self.interrupted = False
        self._clock = clock
        self._live = paper.stream.isatty() and os.environ.get("TERM") != "dumb"
        self._waker = Waker()
        self._shown: tuple[Any, ...] | None = None  # what the last whole line was of
        self._latest: Progress | None = None
        self._heard = 0.0  # when that came
        self._dirty = False  # a live line stands there

    # -- for the driver

    def tell(self, progress: Progress) -> None:
        """Show a step: a new line if it is another phase, or there is something that a person should know."""
        record = progress.record
        key = (record.phase, record.note, record.tries)
        self._latest, self._heard = progress, self._clock.monotonic()
        if key == self._shown:
            self._refresh()
            return
        self._shown = key
        self.quietly(lambda: self._whole(progress))

    def wait(self, seconds: float) -> bool:
        """Wait, and keep the live line going; whether somebody wants an end."""
        end = self._clock.monotonic() + seconds
        while not self.interrupted:
            left = end - self._clock.monotonic()
            if left <= 0:
                break
            self._waker.wait(min(left, _TICK_SECONDS) if self._live else left)
            self._refresh()
        return self.interrupted

    # -- lines

    def line(self, text: str = "", *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """One line, wrapped, of text that may come from outside."""

        def write() -> None:
            self._clear()
            tell(self.paper, text, style=style, indent=indent, hang=hang)

        self.quietly(write)

    def end(self) -> None:
        """Nothing more comes of this restart."""
        self.quietly(self._clear)
        self._latest = self._shown = None

    def _whole(self, progress: Progress) -> None:
        self._clear()
        record = progress.record
        head = f"{elapsed(progress.elapsed):>7}  {phase_words(record.phase):<{_PHASE_WIDTH}}  "
        style = _STYLES.get(record.phase, "yellow" if record.note else "")
        tell(self.paper, head + progress.sentence, style=style, hang=len(head))

    def _refresh(self) -> None:
        """The live line: how long this phase has lasted, and what is being waited for."""
        if self._live and self._latest is not None:
            self.quietly(self._paint)

    def _paint(self) -> None:
        latest = self._latest
        if latest is None or not latest.record.open:
            return
        total = latest.elapsed + self._clock.monotonic() - self._heard
        phase = max(0.0, self._clock.time() - latest.record.entered)
        text = f"{elapsed(total):>7}  … {phase_words(latest.phase)} for {elapsed(phase)}; Ctrl-C leaves it as it stands"
        columns = min(WIDTH, shutil.get_terminal_size().columns)
        self.paper.stream.write(f"\r\x1b[K{text[: columns - 1]}")
        self.paper.stream.flush()
        self._dirty = True

    def _clear(self) -> None:
        if self._dirty:
            self.paper.stream.write("\r\x1b[K")
            self._dirty = False

    def quietly(self, write: Callable[[], None]) -> None:
        """Write; once the terminal, or the reader of the pipe, has gone away, what is told goes nowhere."""
        try:
            write()
        except OSError:
            self._live = self._dirty = False
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.paper.stream.fileno())
            os.close(nowhere)

    # -- signals, and what tpuwatch's own parts have to say

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """While a restart is driven: Ctrl-C ends it in an orderly way, and the end of the session does not."""
        before = {number: signal.signal(number, self._interrupt) for number in _ENDS}
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the node is not to be left stopped
        log, logger = _Log(self), logging.getLogger("tpuwatch")
        logger.addHandler(log)
        try:
            yield
        finally:
            logger.removeHandler(log)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """The first time: end after this step. The second time: at once; the ledger stands it."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._waker.wake()


class _Log(logging.Handler):
    """Warnings of the driver, between the lines."""

    def __init__(self, show: Show) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show.line(record.getMessage(), indent=INDENT, style="yellow")


@dataclass(slots=True)
class ToldApi:
    """The API, whose refusals are shown as they come: a NodeApi."""

    api: NodeApi
    show: Show

    def look(self, target: Target, *, since: float) -> Sight:
        return self.api.look(target, since=since)

    def call(self, call: Call, target: Target, queued_resource: str) -> CallAnswer:
        answer = self.api.call(call, target, queued_resource)
        if answer.message:
            self.show.line(answer.message, indent=INDENT, style="yellow")
        return answer

    def close(self) -> None:
        self.api.close()


def ask(paper: Paper, question: str) -> str:
    """What a person answers, in lower case; "" for nothing."""
    paper.stream.write(f"{question} ")
    paper.stream.flush()
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):
            paper.line()
    return answer.strip().lower()


def standing(record: Record) -> str:
    """What a person must know of a restart that is left unfinished."""
    node = record.target.node
    return {
        Phase.REQUESTED: f"Nothing has been done to {node} yet.",
        Phase.INTENT: f"The stop of {node} may have been called.",
        Phase.STOPPING: f"{node} is being stopped, and stays stopped until somebody goes on.",
        Phase.STOPPED: f"{node} is STOPPED, and stays so until somebody goes on.",
        Phase.STARTING: f"{node} is being started; if that fails, nobody tries again until somebody goes on.",
        Phase.VERIFYING: f"{node} runs again; whether it stays well has not been seen.",
    }.get(record.phase, "")


def begun_there(record: Record, now: float) -> str:
    """What the node's own tpuwatch is at."""
    since = length(now - record.requested)
    return (
        f"The node's own tpuwatch has begun something on it {since} ago, which ends with this restart: "
        f"{record.rung.value.replace('_', ' ')}, at {phase_words(record.phase)!r}."
    )
