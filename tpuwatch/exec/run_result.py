"""How a run ended, and what was found in it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.exec.found import FoundDocument
    from tpuwatch.host import oom
    from tpuwatch.model import FindingDocument

_ASKED = {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}  # a user ended it


@dataclass(frozen=True, slots=True)
class RunResult:
    """How the command ended, and what was seen of it."""

    pid: int
    started: float  # seconds since the epoch
    ended: float
    status: int  # as the shell counts
    oom: oom.OomKill | None  # the command was killed, and the kernel has killed in its cgroup
    found: FoundDocument | None  # what the watcher found; None: it hung or died
    by_signal: bool = False  # a signal ended the command itself, not a process that it waited for


def findings_to_report(end: RunResult) -> list[FindingDocument]:
    """The findings to print: those of a command that failed without being interrupted."""
    found = end.found.findings if end.found is not None and end.status else ()
    return [one for one in found if not (end.status in _ASKED and one.cause == Cause.INTERRUPTED.value)]
