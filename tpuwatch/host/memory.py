"""The machine's memory, and the cgroup limits of the TPU's holders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.host.procfs import parse_numbers, read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tpuwatch.host.procfs import ProcFs

_KIB: Final = 1024
_MAX_BYTES: Final = 1 << 16
_MAX_DEPTH: Final = 16  # of nested cgroups


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes; None if unknown."""

    total: int | None = None
    available: int | None = None
    pinned: int | None = None  # cannot be swapped out or freed


@dataclass(frozen=True, slots=True)
class _CgroupVersion:
    """The file names of a version of cgroups."""

    mount: str
    limit: str
    usage: str
    cache: str  # in memory.stat: what the kernel would reclaim at the limit


_V1: Final = _CgroupVersion(
    "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)
_V2: Final = _CgroupVersion("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def read_memory(processes: ProcFs, root: Path, holders: Iterable[int], pinned: int) -> Memory:
    """The machine's memory, or what cgroups leave of it to the holders (pids), which have pinned `pinned` bytes."""
    numbers = parse_numbers(processes.read("meminfo", _MAX_BYTES))
    total, available = (None if name not in numbers else _KIB * numbers[name] for name in ("MemTotal", "MemAvailable"))
    groups = {group for pid in holders for group in parse_groups(processes.read(f"{pid}/cgroup", _MAX_BYTES))}
    for version, path in groups:
        for limit, left in _limits(root / version.mount, path, version):
            if total is None or limit < total:
                total = limit
            if available is None or left < available:
                available = left
    # VFIO pins pages without marking them as locked, and holders may do both: the larger number is safe.
    locked = numbers.get("Unevictable")
    return Memory(total, available, None if locked is None else max(_KIB * locked, pinned))


def parse_groups(raw: bytes) -> list[tuple[_CgroupVersion, str]]:
    """The memory cgroups in /proc/PID/cgroup: of version 2, and of version 1 if it has the memory controller."""
    found = []
    for line in raw.decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in path.split("/") or "\0" in path:
            continue  # outside of our namespace
        if number == "0" and not controllers:
            found.append((_V2, path))
        elif "memory" in controllers.split(","):
            found.append((_V1, path))
    return found


def _limits(mount: Path, path: str, version: _CgroupVersion) -> Iterator[tuple[int, int]]:
    """Limit and remaining bytes of each cgroup that has a limit, from the leaf up."""
    parts = [part for part in path.split("/") if part][:_MAX_DEPTH]
    for depth in range(len(parts), 0, -1):
        group = mount.joinpath(*parts[:depth])
        limit, usage = (_number(group / name) for name in (version.limit, version.usage))
        if limit is not None and usage is not None:
            cache = parse_numbers(read_bounded(group / "memory.stat", _MAX_BYTES)).get(version.cache, 0)
            yield limit, max(0, limit - max(0, usage - cache))


def _number(path: Path) -> int | None:
    text = read_bounded(path, _MAX_BYTES).strip()
    return int(text) if text.isdigit() and len(text) < 20 else None  # "max" is no limit
