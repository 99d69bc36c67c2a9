"""The kernel's counters of out-of-memory kills, for the machine and for our cgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.host.procfs import parse_numbers, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES: Final = 1 << 16


def oom_kills(root: Path) -> dict[str, int]:
    """The available counters of the machine below `root`, by file."""
    machine = str(root / "proc/vmstat")
    files = {machine: read_bounded(machine, _MAX_BYTES)}
    for line in read_bounded(root / "proc/self/cgroup", _MAX_BYTES).decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("0::/") and ".." not in line:
            path = str(root / f"sys/fs/cgroup{line[3:].rstrip('/')}/memory.events")
            files[path] = read_bounded(path, _MAX_BYTES)
    return {path: number for path, text in files.items() if (number := parse_numbers(text).get("oom_kill")) is not None}


def grew(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether any counter has increased."""
    return any(number > before.get(path, number) for path, number in after.items())
