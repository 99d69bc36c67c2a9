"""How a run ended, and what was found in it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.host import oom

_ASKED = {128 + number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}  # a user ended it


@dataclass(frozen=True, slots=True)
class RunResult:
    """How the command ended, and what was seen of it."""

    pid: int
    started: float  # seconds since the epoch
    ended: float
    status: int  # as the shell counts
    oom: oom.OomKill | None  # the command was killed, and the kernel has killed in its cgroup
    found: Mapping[str, Any] | None  # what the watcher found; None: it hung or died
    by_signal: bool = False  # a signal ended the command itself, not a process that it waited for


def findings_to_report(end: RunResult) -> list[Mapping[str, Any]]:
    """The findings to print: those of a command that failed without being interrupted."""
    found = list(end.found.get("findings", ())) if end.found is not None and end.status else []
    return [one for one in found if not (end.status in _ASKED and one["cause"] == Cause.INTERRUPTED.value)]
