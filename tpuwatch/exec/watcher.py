"""The process beside the command that reads its output and libtpu's logs: as the command's user sees it.

It is of low priority, and the command does not wait for it. It may hang or die; then less is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, NoReturn

from tpuwatch.exec.streams import close_all_but

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.exec.watcher_job import WatcherCounters, WatcherJob

STILL_SECONDS = 3.0  # after the command's end, for a watcher that does nothing at all
MAX_SECONDS = 30.0  # and for one that still reads
_LOOK_SECONDS = 0.1
_TURN_SECONDS = 0.005
_NICE = 10
_MAX_RESULT = 16 << 20


class Watcher:
    """The watcher's process. To be started when the command runs, before there are threads."""

    def __init__(self, counters: WatcherCounters) -> None:
        self._counters = counters
        self._pid = 0
        self._ended = False
        self._over = self._result = -1
        self.trouble = ""  # why there is no result, a clause

    def start(self, job: WatcherJob) -> None:
        """Begin to read. Where that cannot be there is no result in the end, and nothing else is different."""
        control, self._over = os.pipe()
        self._result, result = os.pipe()
        try:
            self._pid = os.fork()
        except OSError as error:
            self._ended, self.trouble = True, f"no process could be started for it ({error.strerror})"
            self._pid = -1
        if self._pid == 0:
            _live(job, self._counters, control, result)
        for descriptor in (control, result):
            os.close(descriptor)

    def has_ended(self) -> bool:
        """Whether it is not there any more."""
        if not self._ended:
            with contextlib.suppress(ChildProcessError):
                pid, _ = os.waitpid(self._pid, os.WNOHANG)
                self._ended = pid != 0
        return self._ended

    def make_room(self) -> None:
        """End, and leave the place to what is needed more."""
        self.trouble = "this user may have too few processes for that"
        self._kill()

    def detach(self) -> None:
        """In a process of ours that goes on after us: hold nothing that the watcher waits for the end of."""
        os.close(self._over)

    def report_end(self) -> None:
        """The command has ended: what is there now is all that there is to be read."""
        os.close(self._over)

    def logs_found(self, give_up: Callable[[], bool]) -> int | None:
        """How many of the command's logs there are; None if it has reported all already, or does not answer."""
        poll = select.poll()
        poll.register(self._result, select.POLLIN)
        deadline = time.monotonic() + STILL_SECONDS
        while self._counters.logs is None and time.monotonic() < deadline and not give_up():
            if poll.poll(1000 * _TURN_SECONDS):
                return None
        return None if poll.poll(0) else self._counters.logs

    def finish(self, give_up: Callable[[], bool]) -> Mapping[str, Any] | None:
        """Have the rest read, and take what was found. None: it hung or died.

        `give_up` is asked now and then whether to wait no longer.
        """
        raw = self._take(give_up)
        self._kill()
        try:
            document = json.loads(raw) if raw else None
        except ValueError:
            document = None
        self.trouble = self.trouble or "what reads it ended too early"
        return document if isinstance(document, dict) else None

    def _kill(self) -> None:
        if not self.has_ended():
            with contextlib.suppress(OSError):  # it is not our child, but of the process that we go on for
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._ended = True

    def _take(self, give_up: Callable[[], bool]) -> bytes | None:
        """What it writes until its end; None when it takes too long."""
        poll = select.poll()
        poll.register(self._result, select.POLLIN)
        chunks: list[bytes] = []
        began = moved = time.monotonic()
        seen = self._life()
        while sum(map(len, chunks)) < _MAX_RESULT:
            if poll.poll(1000 * _LOOK_SECONDS):
                chunk = os.read(self._result, 1 << 20)
                if not chunk:
                    return b"".join(chunks)
                chunks.append(chunk)
            now, life = time.monotonic(), self._life()
            if life != seen:
                seen, moved = life, now
            if now - moved > STILL_SECONDS or now - began > MAX_SECONDS or give_up():
                self.trouble = f"what reads it was not done {now - began:.0f} s after the command"
                return None
        self.trouble = "what was found is too long"
        return None

    def _life(self) -> tuple[int, bytes]:
        """Something that changes as long as it works: what it has done, and the processor time that it has used."""
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                fields = file.read(4096).rpartition(b")")[2].split()
        except OSError:
            fields = []
        return self._counters.get(0), b" ".join(fields[11:13])


# -- in the watcher's own process


def _live(job: WatcherJob, counters: WatcherCounters, control: int, result: int) -> NoReturn:
    try:
        _settle({control, result, *(text.file for text in job.texts)})
        try:
            from tpuwatch.exec.analysis import read

            document = read(job, counters, lambda seconds: _is_over(control, seconds))
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported, and the command goes on)
            document = {"error": f"{type(error).__name__}: {error}"[:500]}
        data = json.dumps(document).encode()
        while data:
            data = data[os.write(result, data) :]
    finally:
        os._exit(0)


def _settle(kept: set[int]) -> None:
    """Hold nothing that is the command's or its terminal's, and step back behind it."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    null = os.open(os.devnull, os.O_RDWR)
    close_all_but({0, 1, 2, null, *kept})
    for number in range(3):
        os.dup2(null, number)


def _is_over(control: int, seconds: float) -> bool:
    """Wait for the command's end, but not longer than that; whether it has ended."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
