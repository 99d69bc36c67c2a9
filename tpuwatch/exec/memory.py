"""Whether the kernel killed something because memory ran out, counted by it: for the machine and for our cgroups."""

from __future__ import annotations

from typing import Final

_ROOT: Final = "/sys/fs/cgroup"
_MOST: Final = 1 << 16


def oom_kills() -> dict[str, int]:
    """The counters that there are, by file."""
    files = {"/proc/vmstat": _read("/proc/vmstat")}
    for line in _read("/proc/self/cgroup").splitlines():
        if line.startswith("0::/") and ".." not in line:
            path = f"{_ROOT}{line[3:].rstrip('/')}/memory.events"
            files[path] = _read(path)
    return {path: number for path, text in files.items() if (number := _counted(text)) is not None}


def grew(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether any of them did."""
    return any(number > before.get(path, number) for path, number in after.items())


def _counted(text: str) -> int | None:
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdecimal():
            return int(number)
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(_MOST)
    except OSError:
        return ""
