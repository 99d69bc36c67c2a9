"""A process that has imported what it takes, and forks over and over: what runs in a fork may be killed at any moment.

Commands come by standard input, a line each: `start WHAT` is answered by a process number, `wait NUMBER SECONDS` by an
exit status, minus the signal's number where one ended it.

`python -m tests.proof.chaos.nest CONFIG`: each fork is `tpuwatch run`, the command itself from its arguments on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATE: Final = 5  # the exit status of one that had to be killed
STOP_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.002


class Nest:
    """Such a process. `module` is run with `argument`, and calls `serve`."""

    def __init__(self, module: str, argument: str, log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._running: list[int] = []

    def start(self, what: str) -> int:
        """Fork; the process number."""
        pid = self._ask(f"start {what}")
        self._running.append(pid)
        return pid

    def wait(self, pid: int, seconds: float) -> int:
        """Its exit status; minus the signal's number where one ended it."""
        status = self._ask(f"wait {pid} {seconds}")
        self._running.remove(pid)
        return status

    def kill(self, pid: int) -> int:
        """End it at once; its status, for it may have ended before."""
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is its own
        return self.wait(pid, STOP_SECONDS)

    def close(self) -> None:
        """End what is left."""
        for pid in list(self._running):
            self.kill(pid)
        self._process.communicate(timeout=STOP_SECONDS)  # its standard input ends, and so does it
        self._log.close()

    def _ask(self, command: str) -> int:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the nest has no pipes")
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def serve(work: Callable[[str], int]) -> None:
    """Obey until standard input ends. `work` is what is done in a fork; its result is the exit status."""
    for line in iter(sys.stdin.readline, ""):
        command, what, *more = line.split()
        print(_started(work, what) if command == "start" else _waited_for(int(what), float(more[0])), flush=True)


def _started(work: Callable[[str], int], what: str) -> int:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        status = 1
        try:
            status = work(what)
        finally:
            os._exit(status)
    return pid


def _waited_for(pid: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK_SECONDS)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return LATE


if __name__ == "__main__":
    from tpuwatch.cli.main import main

    for name in ("tpuwatch.cli.run", "tpuwatch.config", "tpuwatch.daemon"):
        import_module(name)
    serve(lambda _: main(["run", "--config", sys.argv[1]]))
