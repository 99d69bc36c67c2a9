"""The daemon that is killed: the command as a user starts it, or, sooner there, the same command in a fork."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.proof.chaos.nest import STOP_SECONDS, Nest
from tpuwatch.core.errors import StoreError
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from pathlib import Path

_LOOK_SECONDS = 0.002


class Victim:
    """Starts and ends the daemon, and looks from outside at what it has done."""

    def __init__(self, config: Path, state: Path, log: Path) -> None:
        self.running = False
        self._config = config
        self._state = state
        self._log = log.open("ab")
        self._nest = Nest("tests.proof.chaos.nest", str(config), log)
        self._process: subprocess.Popen[bytes] | None = None  # None: it is the nest's

    def start(self, *, forked: bool) -> None:
        """Start the daemon, without waiting for anything."""
        self.running = True
        if forked:
            self._process = None
            self._pid = self._nest.start("run")
            return
        command = [sys.executable, "-m", "tpuwatch", "run", "--config", str(self._config)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
        self._pid = self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, at once."""
        os.kill(self._pid, number)

    def wait(self) -> int:
        """Its exit status; minus the signal's number where one ended it."""
        self.running = False
        return self._nest.wait(self._pid, STOP_SECONDS) if self._process is None else self._process.wait(STOP_SECONDS)

    def close(self) -> None:
        """End it and the nest, whatever they do."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.wait()
        self._nest.close()
        self._log.close()

    # -- what can be seen of it

    def commits_mark(self) -> tuple[int, int]:
        """Something that differs after each commit: the store's write-ahead log was written to."""
        try:
            entry = (self._state / "store.db-wal").stat()
        except FileNotFoundError:
            return (0, 0)
        return (entry.st_size, entry.st_mtime_ns)

    def first_run_over(self) -> bool:
        """Whether the store holds a commit of a run."""
        with contextlib.suppress(StoreError):  # not there yet
            return bool(self.offsets())
        return False

    def offsets(self) -> dict[tuple[int, int], int]:
        """Up to where each file, by device and inode, has been turned into events.

        A cursor's own offset may be lower: the last record is read again, as what comes next may belong to it.
        """
        cursors = StoreReader.open(self._state).cursors()
        return {(one.device, one.inode): max(one.offset, one.state.get("done", 0)) for one in cursors}

    def read_bytes(self, path: Path) -> int:
        """Up to where the store says that a file is read, as it is now and not before it was truncated."""
        entry = path.stat()
        with contextlib.suppress(StoreError), path.open("rb") as file:  # not there yet
            for one in StoreReader.open(self._state).cursors():
                file.seek(0)
                if (one.device, one.inode) == (entry.st_dev, entry.st_ino) and file.read(len(one.head)) == one.head:
                    return one.offset
        return 0

    def is_read(self, path: Path, seconds: float) -> bool:
        """Wait until the store says that a file is read to its end; whether it has come to that."""
        entry = path.stat()
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(StoreError):  # not there yet
                if self.offsets().get((entry.st_dev, entry.st_ino)) == entry.st_size:
                    return True
            time.sleep(_LOOK_SECONDS * 10)
        return False
