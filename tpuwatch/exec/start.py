"""The way to the command's first instruction. Little is loaded and little is done before it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NoReturn

from tpuwatch.exec import foreground
from tpuwatch.exec.bystander import Bystander
from tpuwatch.exec.command import become, start
from tpuwatch.exec.saying import say
from tpuwatch.exec.streams import open_streams

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.exec.beginning import Beginning

_FILES: Final = 16  # that are opened when the command runs, at most: pipes, copies of its output, what is loaded


def run(command: Sequence[str], begun: Beginning, *, config: Path | None, report: Path | None = None) -> NoReturn:
    """Run the command, and end as it does. `report`: where the outcome is written, as JSON. Raises CommandError."""
    for note in begun.notes:
        say(note)
    started = time.time()
    mask = foreground.block()
    bystander = None
    try:
        streams = open_streams(_hold_standard_descriptors())
        bystander = Bystander()
        _try_room()
        pid = start(command, begun.environ, streams, mask)
    except OSError as error:  # there can be no further process, or too many files are open
        say(f"this run goes unwatched: {error.strerror}.")
        if bystander is not None:
            bystander.end()
        become(command, begun.environ, mask)
    streams.forget_given()

    from tpuwatch.exec.run import Run, serve  # while the command is on its way

    serve(Run(pid, begun, streams, bystander, started, config), begun, config, report)


def _hold_standard_descriptors() -> set[int]:
    """Where standard input, output or error is closed, see to it that nothing that we open takes its number.

    The numbers that were closed. They are so for the command.
    """
    closed = set()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    while null <= 2:
        closed.add(null)
        null = os.dup(null)
    return closed


def _try_room() -> None:
    """Whoever serves a command cannot stop half way. Raises OSError where too few files may be open for that."""
    room: list[int] = []
    try:
        room += (os.dup(0) for _ in range(_FILES))
    finally:
        for number in room:
            os.close(number)
