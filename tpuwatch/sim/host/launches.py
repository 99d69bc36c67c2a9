"""Launches of the simulated machine: processes that write what libtpu and a job write, until they end or are ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from tpuwatch.sim.host.launch import LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

STOP_SECONDS = 10.0
MAX_RUNNING = 64
_TPU: Final = ("TPU", "LIBTPU_")  # variables of the user's own jobs and tpuwatch begin with these


def without_tpu(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what is for the jobs on the real machine."""
    return {name: value for name, value in environ.items() if not name.startswith(_TPU)}


def start_process(command: Sequence[str], output: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process with its output at the end of a file.

    It has a session of its own: Ctrl-C is for us alone, and we then end our processes in order.
    """
    with output.open("ab") as stream:
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )


class Launches:
    """Starts launches and ends those that are left. Safe from any thread."""

    def __init__(self, logs: Path, jobs: Path, *, pace: float = 1.0) -> None:
        """libtpu's files go to `logs`, jobs' output to `jobs`; `pace` stretches what a launch waits for."""
        self.logs = logs
        self.jobs = jobs
        self.pace = pace
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], threading.Thread] = {}
        self._closed = False

    def start(self, name: str, ended: Callable[[], None]) -> subprocess.Popen[bytes] | None:
        """Start a launch of sim.host.launch; None when too many are running. `ended` is called at its end."""
        # Not in the caller's thread: a signal's exception would come between the process and the note of it, and nobody
        # would end it.
        started: Future[subprocess.Popen[bytes] | None] = Future()
        threading.Thread(target=self._run, args=(name, ended, started), name="sim-launch", daemon=True).start()
        return started.result()

    def close(self) -> None:
        """End what is running; no other begins."""
        with self._lock:
            self._closed = True
            running = dict(self._running)
        for process in running:
            process.terminate()
        for process, thread in running.items():
            thread.join(STOP_SECONDS)
            if thread.is_alive():
                process.kill()
                thread.join()

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        command = (
            sys.executable,
            *("-m", "tpuwatch.sim.host.launch", name),
            *("--logs", str(self.logs)),
            *("--pace", str(self.pace)),
        )
        environment = {**without_tpu(os.environ), **LAUNCHES[name].environment}
        for directory in (self.logs, self.jobs):
            directory.mkdir(parents=True, exist_ok=True)
        return start_process(command, self.jobs / f"{name}.log", environment)

    def _run(self, name: str, ended: Callable[[], None], started: Future[subprocess.Popen[bytes] | None]) -> None:
        try:
            with self._lock:
                if self._closed or len(self._running) >= MAX_RUNNING:
                    started.set_result(None)
                    return
                process = self._spawn(name)
                self._running[process] = threading.current_thread()
        except Exception as error:  # noqa: BLE001 (raised in the caller)
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        ended()
        with self._lock:
            del self._running[process]
