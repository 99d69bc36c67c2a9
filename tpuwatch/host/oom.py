"""The kernel's counters of out-of-memory kills, and what they say of the kill of a process in our cgroup."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tpuwatch.host.procfs import parse_numbers, read_bounded

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES: Final = 1 << 16
_MAX_DEPTH: Final = 16  # of nested cgroups
EVENTS: Final = "memory.events"


@dataclass(frozen=True, slots=True)
class CgroupCounters:
    """What a cgroup of version 2 counts, with what is below it."""

    path: str  # as /proc/PID/cgroup has it
    file: str
    kills: int  # of its processes, for whichever limit
    hits: int  # how often its own limit, or one below it, left no memory
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class OomCounters:
    """The counters at one time. Those that cannot be read are missing."""

    machine: int | None  # kills for any limit
    groups: tuple[CgroupCounters, ...] = ()  # our cgroup, then those that it is in
    whole: bool = False  # the groups are all up to the machine's own; in a container the outer ones are not seen


class OomLimit(Enum):
    """The memory that ran out."""

    CGROUP = "cgroup"
    MACHINE = "machine"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class OomKill:
    """The kernel killed a process of our cgroup for lack of memory."""

    limit: OomLimit
    file: str  # that counts it
    kills: int  # that it counts now
    own: str = ""  # our cgroup
    cgroup: str = ""  # whose limit was reached
    limit_bytes: int | None = None


def read_counters(root: Path) -> OomCounters:
    """The counters of the machine below `root`."""
    machine = parse_numbers(read_bounded(root / "proc/vmstat", _MAX_BYTES)).get("oom_kill")
    for line in read_bounded(root / "proc/self/cgroup", _MAX_BYTES).decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("0::/") and ".." not in line and "\0" not in line:
            groups = _groups(root / "sys/fs/cgroup", [part for part in line[3:].split("/") if part])
            whole = bool(groups) and not (root / "sys/fs/cgroup" / EVENTS).exists()
            return OomCounters(machine, groups, whole)
    return OomCounters(machine)


def kill_between(before: OomCounters, after: OomCounters) -> OomKill | None:
    """The kill of a process of our cgroup between two readings; None if there was none, or it cannot be known.

    Without counters of our cgroup that of the machine has to do, which counts the kills of all.
    """
    if not (before.groups and after.groups):
        if before.machine is None or after.machine is None or after.machine <= before.machine:
            return None
        return OomKill(OomLimit.UNKNOWN, "/proc/vmstat", after.machine)
    then = {one.path: one for one in before.groups}
    own = after.groups[0]
    if own.path not in then or own.kills <= then[own.path].kills:
        return None
    for group in after.groups:
        if group.path in then and group.hits > then[group.path].hits:
            return OomKill(OomLimit.CGROUP, own.file, own.kills, own.path, group.path, group.limit_bytes)
    return OomKill(OomLimit.MACHINE if after.whole else OomLimit.UNKNOWN, own.file, own.kills, own.path)


def _groups(mount: Path, parts: list[str]) -> tuple[CgroupCounters, ...]:
    """The counters from the leaf up, without those that cannot be read; none where the leaf cannot."""
    found = []
    for depth in range(min(len(parts), _MAX_DEPTH), -1, -1):
        directory = mount.joinpath(*parts[:depth])
        numbers = parse_numbers(read_bounded(directory / EVENTS, _MAX_BYTES))
        if "oom_kill" in numbers:
            limit = read_bounded(directory / "memory.max", _MAX_BYTES).strip()
            found.append(
                CgroupCounters(
                    "/" + "/".join(parts[:depth]),
                    str(directory / EVENTS),
                    numbers["oom_kill"],
                    numbers.get("oom", 0),
                    int(limit) if limit.isdigit() and len(limit) < 20 else None,
                )
            )
        elif not found:
            return ()
    return tuple(found)
