"""What /proc says of a process: whether it lives, since when, and the TPU variables it was started with."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

_PREFIXES = ("TPU_", "LIBTPU_")
_MAX_ENVIRON = 1 << 20


class Processes(Protocol):
    """The processes of a machine. A process that may not be looked at is like one without an environment."""

    def started(self, pid: int) -> float | None:
        """When the process started, in seconds since the epoch; None when there is none of that number."""

    def environment(self, pid: int) -> dict[str, str]:
        """Its TPU_* and LIBTPU_* variables, as far as they may be read."""


class ProcFs:
    """Processes as /proc shows them."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._ticks = os.sysconf("SC_CLK_TCK")

    def started(self, pid: int) -> float | None:
        try:
            stat = (self._root / str(pid) / "stat").read_bytes()
            uptime = float((self._root / "uptime").read_bytes().split()[0])
        except (OSError, ValueError):
            return None
        # The name in parentheses may hold anything; the fields behind it are counted from the last parenthesis.
        ticks = int(stat.rpartition(b")")[2].split()[19])
        return time.time() - uptime + ticks / self._ticks

    def environment(self, pid: int) -> dict[str, str]:
        try:
            with open(self._root / str(pid) / "environ", "rb") as file:
                raw = file.read(_MAX_ENVIRON)
        except OSError:
            return {}
        pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0"))
        return {name: value for name, _, value in pairs if name.startswith(_PREFIXES)}
