"""The real daemon on train-1, beside a job of real processes: one that holds the TPU, and one that started it.

What they hold is the lock file below a directory of the test's; the processes are this machine's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import QUICK
from tpuwatch.host.holders import LOCK_FILE

GRACE_SECONDS = 600.0  # after each signal; no test lives so long, the clocks are put ahead

# Both report which signals they get. The holder's starter is in its process group, holds nothing, and reports its end.
JOB = """
import fcntl, os, signal, sys
path, words, *handled = sys.argv[1:]
def report(*text):
    with open(words, "a") as file:
        file.write(" ".join(map(str, text)) + "\\n")
def reporting(who, names):
    for name in names:
        signal.signal(getattr(signal, name), lambda number, _: report(who, signal.Signals(number).name))
reporting("starter", ["SIGINT", "SIGTERM", "SIGQUIT", "SIGUSR1"])
holder = os.fork()
if not holder:
    for name in ["SIGINT", "SIGTERM", "SIGQUIT", "SIGUSR1"]:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    reporting("holder", handled)
    file = open(path, "r+")
    fcntl.lockf(file, fcntl.LOCK_EX)
    report("holder", os.getpid())
    while True:
        signal.pause()
status = os.waitpid(holder, 0)[1]
report("holder ended by", signal.Signals(os.WTERMSIG(status)).name)
while True:
    signal.pause()
"""


class Job:
    """The processes. Use it in a with statement: they end with it."""

    def __init__(self, root: Path, *handled: str) -> None:
        """The holder handles these signals; the others end it."""
        self._words = root / "words"
        self._words.touch()
        argv = [sys.executable, "-c", JOB, str(root / LOCK_FILE), str(self._words), *handled]
        self._process = subprocess.Popen(argv, start_new_session=True)
        self.holder = 0

    def __enter__(self) -> Job:  # noqa: PYI034 - Self is in typing from 3.11 on
        wait_for(self._words.read_text, "the holder")
        self.holder = int(self.words.pop(0).split()[1])
        return self

    def __exit__(self, *_: object) -> None:
        """Both are in a process group of their own, whose number is not free before the starter is waited for."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def words(self) -> list[str]:
        """What they have reported since the holder had the TPU."""
        lines = self._words.read_text().splitlines()
        return lines[1:] if self.holder else lines

    def is_unharmed(self) -> bool:
        """Whether both are there and got no signal."""
        return self.words == [] and self._process.poll() is None and Path(f"/proc/{self.holder}").exists()

    def reports(self, what: str) -> None:
        """Wait until one of them has reported that."""
        wait_for(lambda: what in self.words, what)


class DaemonBesideJob(DaemonInCloud):
    """`tpuwatch run` on train-1, whose processes are this machine's."""

    def begin(self, table: dict[str, Any]) -> None:
        """Start it with such a [restart]."""
        seconds = ("sigint_seconds", "sigterm_seconds", "sigquit_seconds", "sigkill_seconds")
        restart = {**QUICK, **dict.fromkeys(seconds, GRACE_SECONDS), **table}
        self.watch(restart=restart, cloud={"timeout_seconds": self.patience_seconds})
        self.start()

    def ended(self, action: str) -> Any:
        """Wait until what it has done is over, and known to be; the record as it is shown."""

        def is_over() -> bool:
            decisions = [decision for decision, _, _ in self.audited()]
            return decisions.count(action) > 1 and bool(self.series("tpuwatch_restarts_total"))

        wait_for(is_over, f"the end of {action}")
        return wait_for(
            lambda: next((one for one in self.api("restarts")["restarts"][:1] if not one["open"]), None),
            "it to be shown",  # which it is a moment after it was counted
        )


def machine(root: Path) -> Path:
    """A directory in the place of the root: with the real /proc, and a /tmp of its own with libtpu's lock file."""
    (root / "tmp").mkdir(parents=True)
    (root / "proc").symlink_to("/proc")
    (root / LOCK_FILE).touch()
    return root
