"""A child process beside the user's program: in its own session, with a deadline and a limit of memory, reporting as it
goes on over a pipe of its own. It never outlives the call.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import SystemClock, TpuwatchError
from tpuwatch.host import ProcFs, read_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpuwatch.core import Clock

OWN_CHILD: Final = "TPUWATCH_CHILD"  # a variable of all its processes: they are no jobs, whatever TPU_* they have
MAX_LINE: Final = 1 << 20  # of a report; a child that writes more is broken
MAX_OUTPUT: Final = 256 << 20  # bytes that it may print
_LOOK_SECONDS: Final = 0.2
_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """`seconds` in all, and `memory_bytes` of resident memory of all its processes together."""

    seconds: float
    memory_bytes: int


class ChildError(TpuwatchError):
    """The child ended without an answer: it was ended at a limit, died, or wrote what nobody understands."""


class ChildTimeoutError(ChildError):
    """It was ended at its deadline."""


class Child:
    """A command with a request as its last argument, a JSON object. It writes its reports, a JSON document a line, to
    the descriptor that is the request's `report`."""

    def __init__(
        self,
        command: Sequence[str],
        request: Mapping[str, Any],
        *,
        environ: Mapping[str, str],
        output: Path,
        limits: ChildLimits,
        clock: Clock | None = None,
        keep: tuple[int, ...] = (),
        since: float | None = None,
    ) -> None:
        """`output`: where it prints; `keep`: other descriptors that stay open in it, such as that of a lock; `since`:
        the monotonic time from which its seconds are counted, where that is not now. Raises OSError."""
        self._clock = clock or SystemClock()
        self._limits = limits
        self._seconds = limits.seconds
        self._output = output
        self._reader, writer = os.pipe()
        try:
            with output.open("ab") as file:
                self.process = subprocess.Popen(  # noqa: S603 (the user's own interpreter)
                    [*command, json.dumps({**request, "report": writer})],
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={**environ, OWN_CHILD: "1"},
                    pass_fds=(writer, *keep),
                    start_new_session=True,
                )
        except OSError:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self._deadline = (self._clock.monotonic() if since is None else since) + limits.seconds
        self._looked = self._clock.monotonic()
        self.longest_pause = 0.0  # seconds between two looks at it: far more than usual where the machine is overloaded
        self._buffer = b""
        self._processes = ProcFs()

    def send(self, message: Any) -> None:
        """Write a line to its standard input. One that has ended takes none; its reports say why."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()

    def finish(self) -> None:
        """Let it end: nothing more is sent."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()

    def allow(self, seconds: float) -> None:
        """Give it so long from now on."""
        self._seconds = seconds
        self._deadline = self._clock.monotonic() + seconds

    def reports(self) -> Iterator[Any]:
        """Its reports as they come, None from time to time while there is none, until it has closed the pipe or ended.

        Raises ChildError at its deadline, at its limits of memory and output, and for what is no JSON.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            while True:
                if selector.select(_LOOK_SECONDS):
                    read = os.read(self._reader, 1 << 16)
                    if not read:
                        self._ends()
                        return
                    self._buffer += read
                    yield from self._lines()
                elif self.process.poll() is not None:  # a child of its own holds the pipe
                    return
                else:
                    yield None
                self._check()

    def _ends(self) -> None:
        """It has closed the pipe, most likely since it ends: its own exit status says more than a signal's."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)

    def close(self) -> bool:
        """End all its processes that are left. Whether it has ended: one that the kernel has blocked in a call cannot
        be ended, and is not waited for."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_SECONDS)
        self.finish()
        os.close(self._reader)
        return self.process.returncode is not None

    def _lines(self) -> Iterator[Any]:
        *lines, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > MAX_LINE:
            raise ChildError("the child process wrote something that is no report")
        try:
            yield from map(json.loads, lines)
        except ValueError:
            raise ChildError("the child process wrote something that is no report") from None

    def _check(self) -> None:
        now = self._clock.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._looked)
        self._looked = now
        if now > self._deadline:
            raise ChildTimeoutError(f"it took longer than {self._seconds:g} s (--timeout)")
        if self._output.stat().st_size > MAX_OUTPUT:
            raise ChildError(f"it printed more than {MAX_OUTPUT >> 20} MiB")
        resident = resident_bytes(self.process.pid, self._processes)
        if resident > self._limits.memory_bytes:
            gib = self._limits.memory_bytes / (1 << 30)
            raise ChildError(f"it took more than {gib:.1f} GiB of this machine's memory (--memory-limit)")


def available_memory() -> int:
    """The bytes of this machine's memory that a child may take: what is available now; all where that is not known."""
    return read_memory(ProcFs(), Path("/"), (), 0).available or 1 << 62


def resident_bytes(group: int, processes: ProcFs) -> int:
    """The resident memory of all processes of a process group."""
    total = 0
    for pid in processes.pids():
        stat = processes.stat(pid)
        if stat is not None and stat.group == group:
            total += processes.status(pid).get("VmRSS", 0) << 10
    return total
