"""Whether the kernel killed something because memory ran out, counted by it: for the machine and for our cgroups."""

from __future__ import annotations

from typing import Final

from tpuwatch.processes import parse_numbers

_ROOT: Final = "/sys/fs/cgroup"
_MOST: Final = 1 << 16


def oom_kills() -> dict[str, int]:
    """The counters that there are, by file."""
    files = {"/proc/vmstat": _read("/proc/vmstat")}
    for line in _read("/proc/self/cgroup").decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("0::/") and ".." not in line:
            path = f"{_ROOT}{line[3:].rstrip('/')}/memory.events"
            files[path] = _read(path)
    return {path: number for path, text in files.items() if (number := parse_numbers(text).get("oom_kill")) is not None}


def grew(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether any of them did."""
    return any(number > before.get(path, number) for path, number in after.items())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST)
    except OSError:
        return b""
