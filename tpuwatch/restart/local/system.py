"""Processes of a machine, a hold on one of them, and what became of a command: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.core import clean

if TYPE_CHECKING:
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
