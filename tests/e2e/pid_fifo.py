"""A FIFO by which a process that somebody else starts says which one it is."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

SECONDS = 120
# The code of a program that says so to the FIFO in this variable, and waits to be ended.
PAUSES = "import os, signal\nopen(os.environ['PID_FIFO'], 'w').write(str(os.getpid()))\nsignal.pause()\n"


def process_of(fifo: Path, starter: subprocess.Popen[str]) -> int:
    """A descriptor of the process (pidfd) that writes its number to the FIFO, once it does.

    `starter` is to start it. Where that ends instead, it fails at once with what it has said on standard error.
    """
    with (
        open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader,
        open(os.pidfd_open(starter.pid), "rb", buffering=0) as end,
    ):
        ready, _, _ = select.select([reader, end], [], [], SECONDS)
        if reader not in ready:
            assert not ready, f"its starter has ended: {starter.communicate()[1]}"
            raise AssertionError("the process did not come to it")
        return os.pidfd_open(int(reader.read()))


def has_ended(process: int) -> bool:
    """Whether it ends within SECONDS; its descriptor is closed."""
    ended, _, _ = select.select([process], [], [], SECONDS)
    os.close(process)
    return bool(ended)
