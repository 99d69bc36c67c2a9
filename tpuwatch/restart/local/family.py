"""Which processes may be signalled, given those that are to be ended. Pure.

Nobody may be hit by mistake: not the first process, not tpuwatch or what it was started by, no thread of the kernel,
and nobody who merely shares a process group with the one that is to be ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tpuwatch.restart.local.system import Entry, Who


@dataclass(frozen=True, slots=True)
class Family:
    """Who is to be ended, and who goes with them."""

    holders: tuple[Who, ...] = ()  # by pid: those at fault, and their descendants that hold the TPU too
    others: tuple[Who, ...] = ()  # their descendants in their own process groups, which hold nothing
    spared: tuple[str, ...] = ()  # of those at fault, who is not to be touched and why: clauses


def family(entries: Mapping[int, Entry], at_fault: Collection[Who], holds: Callable[[int], bool], own: int) -> Family:
    """The family of those processes `at_fault` that hold the TPU now. `own` is our own pid."""
    ours = _line(own, entries, sure=False)
    roots, spared = set(), []
    for who in sorted(at_fault):
        entry = entries.get(who.pid)
        if entry is None or entry.who != who or not holds(who.pid):
            continue
        if why := _untouchable(entry, own, ours):
            spared.append(f"process {who.pid} {why}")
        else:
            roots.add(who.pid)
    below = {pid for pid, entry in entries.items() if _free(entry, own, ours) and roots & _line(pid, entries)}
    holders = {pid for pid in below if pid in roots or holds(pid)}
    groups = {entries[pid].group for pid in holders if _own_group(entries[pid].group, below, entries)}
    others = {pid for pid in below - holders if entries[pid].group in groups}
    return Family(_named(holders, entries), _named(others, entries), tuple(spared))


def _named(pids: Collection[int], entries: Mapping[int, Entry]) -> tuple[Who, ...]:
    return tuple(sorted(entries[pid].who for pid in pids))


def _untouchable(entry: Entry, own: int, ours: frozenset[int]) -> str:
    if entry.who.pid == 1:
        return "is the first one of this machine or container"
    if entry.kernel:
        return "is a thread of the kernel"
    if entry.who.pid == own:
        return "is tpuwatch itself"
    return "has started tpuwatch" if entry.who.pid in ours else ""


def _free(entry: Entry, own: int, ours: frozenset[int]) -> bool:
    return not _untouchable(entry, own, ours)


def _own_group(group: int, below: Collection[int], entries: Mapping[int, Entry]) -> bool:
    """Whether nobody else is in it. In 0 is everybody who cannot be seen."""
    return group > 1 and all(pid in below for pid, entry in entries.items() if entry.group == group and not entry.over)


def _line(pid: int, entries: Mapping[int, Entry], *, sure: bool = True) -> frozenset[int]:
    """A process and those that it descends from; those that it may descend from, where it need not be `sure`."""
    line: set[int] = set()
    entry, youngest = entries.get(pid), math.inf
    # A number that came to another process between two reads may make a ring, or a parent younger than its child.
    while entry is not None and entry.who.pid not in line and (entry.who.ticks <= youngest or not sure):
        line.add(entry.who.pid)
        youngest = entry.who.ticks
        entry = entries.get(entry.parent)
    return frozenset(line)
