"""The kernel's counters of out-of-memory kills, for the machine and for our cgroup."""

from __future__ import annotations

from typing import Final

from tpuwatch.host.procfs import parse_numbers, read_bounded

_ROOT: Final = "/sys/fs/cgroup"
_MAX_BYTES: Final = 1 << 16


def oom_kills() -> dict[str, int]:
    """The available counters, by file."""
    files = {"/proc/vmstat": read_bounded("/proc/vmstat", _MAX_BYTES)}
    for line in read_bounded("/proc/self/cgroup", _MAX_BYTES).decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("0::/") and ".." not in line:
            path = f"{_ROOT}{line[3:].rstrip('/')}/memory.events"
            files[path] = read_bounded(path, _MAX_BYTES)
    return {path: number for path, text in files.items() if (number := parse_numbers(text).get("oom_kill")) is not None}


def grew(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether any counter has increased."""
    return any(number > before.get(path, number) for path, number in after.items())
