"""The machine's memory, and the limits of the cgroups that the TPU's holders are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.processes import parse_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tpuwatch.processes import ProcFs

_KIB: Final = 1024
_MAX_BYTES: Final = 1 << 16
_MAX_DEPTH: Final = 16  # of nested cgroups


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; None where the kernel does not tell."""

    total: int | None = None
    available: int | None = None
    pinned: int | None = None  # cannot be swapped out or freed


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a version of cgroups names things."""

    mount: str
    limit: str
    usage: str
    cache: str  # in memory.stat: what the kernel would drop to stay below the limit


_V1: Final = _Dialect("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = _Dialect("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def read_memory(processes: ProcFs, root: Path, holders: Iterable[int], pinned: int) -> Memory:
    """The machine's memory, or what is left of it to the holders (pids). `pinned` is what they have pinned."""
    numbers = parse_numbers(processes.read("meminfo", _MAX_BYTES))
    total, available = (None if name not in numbers else _KIB * numbers[name] for name in ("MemTotal", "MemAvailable"))
    groups = {group for pid in holders for group in parse_groups(processes.read(f"{pid}/cgroup", _MAX_BYTES))}
    for dialect, path in groups:
        for limit, left in _limits(root / dialect.mount, path, dialect):
            if total is None or limit < total:
                total = limit
            if available is None or left < available:
                available = left
    # VFIO pins pages without marking them as locked, and holders may do both: the greater number is the safe one.
    locked = numbers.get("Unevictable")
    return Memory(total, available, None if locked is None else max(_KIB * locked, pinned))


def parse_groups(raw: bytes) -> list[tuple[_Dialect, str]]:
    """The memory cgroups in /proc/PID/cgroup: version 2's, and version 1's where that has the memory controller."""
    found = []
    for line in raw.decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in path.split("/") or "\0" in path:
            continue  # outside of what can be seen from here
        if number == "0" and not controllers:
            found.append((_V2, path))
        elif "memory" in controllers.split(","):
            found.append((_V1, path))
    return found


def _limits(mount: Path, path: str, dialect: _Dialect) -> Iterator[tuple[int, int]]:
    """The limit of each cgroup that has one, from a leaf up, and how much it leaves, in bytes."""
    parts = [part for part in path.split("/") if part][:_MAX_DEPTH]
    for depth in range(len(parts), 0, -1):
        group = mount.joinpath(*parts[:depth])
        limit, usage = (_number(group / name) for name in (dialect.limit, dialect.usage))
        if limit is not None and usage is not None:
            cache = parse_numbers(_read(group / "memory.stat")).get(dialect.cache, 0)
            yield limit, max(0, limit - max(0, usage - cache))


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() and len(text) < 20 else None  # "max" is no limit


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""
