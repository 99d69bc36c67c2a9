"""What acting on a machine takes of it, behind one small interface: processes, signals, commands, the lock file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tpuwatch.core import clean

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tpuwatch.host import HolderScan
    from tpuwatch.model import ProcessId


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """The part of /proc/PID/stat that is used here."""

    process: ProcessId
    parent: int
    group: int  # its process group; 0 for one that cannot be seen from here
    state: str  # "S", "D", "Z", …
    kernel: bool = False  # a thread of the kernel

    @property
    def over(self) -> bool:
        """Whether its first thread has ended. Another one of it may still run."""
        return self.state in ("Z", "X", "x")


@dataclass(frozen=True, slots=True)
class PidHandle:
    """A hold on one process: a signal through it can hit no other."""

    process: ProcessId
    descriptor: int  # -1 where the kernel has no such thing


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What became of a command."""

    code: int | None  # its exit status; negative is a signal; None if it was ended before it was done
    words: str = ""  # the end of what it wrote
    fault: str = ""  # why it could not be started, or why it was ended, a clause

    @property
    def well(self) -> bool:
        """Whether it ended with status 0."""
        return self.code == 0

    def why(self, what: str) -> str:
        """Why it failed, a sentence about `what`, and the end of its output."""
        why = f"{self.fault or f'{what} ended with status {self.code}'}."
        words = clean(self.words[-600:])
        return f"{why} Its output: {words}" if words else why


class System(Protocol):
    """A machine. Nothing raises for what has ended meanwhile."""

    def boot_id(self) -> str:
        """Of this boot; "" if it is not known."""

    def own(self) -> int:
        """Our own pid."""

    def entries(self) -> Mapping[int, ProcessEntry]:
        """All processes that can be seen, by pid."""

    def held(self) -> HolderScan:
        """Who holds the TPU."""

    def holds(self, pid: int) -> bool:
        """Whether that process holds the TPU now."""

    def catches(self, pid: int, number: signal.Signals) -> bool:
        """Whether it handles that signal, which would else end it."""

    def read_text(self, pid: int, name: str) -> str:
        """The beginning of /proc/PID/NAME, fit to be shown; "" where it cannot be read."""

    def blocked(self, process: ProcessId) -> bool:
        """Whether a thread of it waits in the kernel where no signal reaches it (state D)."""

    def handle(self, process: ProcessId) -> AbstractContextManager[PidHandle | None]:
        """A hold on that very process; None if it has ended."""

    def is_over(self, handle: PidHandle) -> bool:
        """Whether all of the process has ended."""

    def send(self, handle: PidHandle, number: signal.Signals) -> bool:
        """Send a signal; whether the process was still there. Raises PermissionError."""

    def wait(self, handles: Sequence[PidHandle], seconds: float) -> None:
        """Wait until one of these processes has ended, at most so long."""

    def run(
        self, argv: Sequence[str], seconds: float, environment: Mapping[str, str], leave: Callable[[], bool]
    ) -> CommandOutcome:
        """Run a program without a shell, for at most so long. `leave` is called about every second; its True ends it.

        What it leaves running in its own session is ended where it was ended itself.
        """

    def find(self, program: str) -> str:
        """Its path, if it is installed; else ""."""

    def remove_lock_file(self) -> tuple[bool, str]:
        """Remove libtpu's lock file unless it is locked: whether it was there and is removed, and else why not."""
