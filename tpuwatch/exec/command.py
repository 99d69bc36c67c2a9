"""`tpuwatch exec`: the command is started, served while it runs, and its end is ours."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NoReturn

from tpuwatch.exec import foreground
from tpuwatch.exec.messages import print_message
from tpuwatch.exec.process import become, start
from tpuwatch.exec.signal_sentinel import SignalSentinel
from tpuwatch.exec.streams import open_streams
from tpuwatch.host import oom

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.exec.preparation import PreparedRun

_DESCRIPTORS: Final = 16  # that are opened when the command runs, at most: pipes, copies of its output, what is loaded


def run_command(
    command: Sequence[str], prepared: PreparedRun, *, config: Path | None, report: Path | None = None
) -> NoReturn:
    """Run the command, and end as it does. `report`: where the outcome is written, as JSON. Raises CommandError."""
    for note in prepared.notes:
        print_message(note)
    counters = oom.read_counters(prepared.root)  # the command may be killed before anything else is loaded
    started = time.time()
    mask = foreground.block()
    sentinel = None
    try:
        streams = open_streams(_reserve_standard_descriptors())
        sentinel = SignalSentinel()
        _require_descriptors()
        pid = start(command, prepared.environ, streams, mask)
    except OSError as error:  # there can be no further process, or too many files are open
        print_message(f"this run goes unwatched: {error.strerror}.")
        if sentinel is not None:
            sentinel.end()
        become(command, prepared.environ, mask)
    streams.forget_given()

    from tpuwatch.exec.run import Run, serve  # while the command is on its way

    serve(Run(pid, prepared, streams, sentinel, started, counters, config), prepared, config, report)


def _reserve_standard_descriptors() -> set[int]:
    """Where standard input, output or error is closed, see to it that nothing that we open takes its number.

    The numbers that were closed. They are so for the command.
    """
    closed = set()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    while null <= 2:
        closed.add(null)
        null = os.dup(null)
    return closed


def _require_descriptors() -> None:
    """Serving a command cannot stop half way. Raises OSError where too few files may be open for that."""
    room: list[int] = []
    try:
        room += (os.dup(0) for _ in range(_DESCRIPTORS))
    finally:
        for number in room:
            os.close(number)
