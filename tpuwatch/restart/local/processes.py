"""Which processes are ended, and a report on them, written before they are ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tpuwatch.model import Holder, ProcessId
    from tpuwatch.restart.local.linux import Linux
    from tpuwatch.restart.local.system import PidHandle, ProcessEntry


MAX_DESCRIBED: Final = 8  # processes that are described
_CHILDREN: Final = 10
_DUMPS: Final = 2
_DUMP_SECONDS: Final = 10.0
_DUMP_LINES: Final = 120
_LINE_CHARS: Final = 200
_DUMP_CHARS: Final = 6000


def process_report(
    system: Linux,
    processes: tuple[ProcessId, ...],
    entries: Mapping[int, ProcessEntry],
    holders: Mapping[int, Holder],
    leave: Callable[[], bool],
) -> tuple[str, ...]:
    """A sentence on each of those processes, and the stacks of the first ones."""
    described = [
        _described(system, process, entries, holders.get(process.pid)) for process in processes[:MAX_DESCRIBED]
    ]
    if len(processes) > MAX_DESCRIBED:
        described.append(f"{len(processes) - MAX_DESCRIBED} more processes hold the TPU.")
    py_spy = system.find("py-spy")
    dumps = [_dump(system, py_spy, process, leave) for process in processes[:_DUMPS]] if py_spy else []
    return (*described, *dumps)


def _described(system: Linux, process: ProcessId, entries: Mapping[int, ProcessEntry], holder: Holder | None) -> str:
    entry = entries[process.pid]
    user = (holder.user if holder else "") or "an unknown user"
    command = (holder.command if holder else "") or "?"
    since = f", started {_date(holder.started)}" if holder and holder.started is not None else ""
    held = [*holder.devices, *(["libtpu's lock file"] if holder.locks else [])] if holder else []
    children = sorted(one.process.pid for one in entries.values() if one.parent == process.pid)
    shown = [str(pid) for pid in children[:_CHILDREN]]
    if len(children) > _CHILDREN:
        shown.append(f"{len(children) - _CHILDREN} more")
    return (
        f"Process {process.pid} of {user}: {command}{since} (tick {process.ticks}), state {entry.state}, parent "
        f"{entry.parent}, process group {entry.group}, cgroup {system.read_text(process.pid, 'cgroup') or '?'}; holds "
        f"{clean(listed(held)) if held else 'the TPU'}; children: {listed(shown) if shown else 'none'}."
    )


def _dump(system: Linux, py_spy: str, process: ProcessId, leave: Callable[[], bool]) -> str:
    """Its stacks as a line of text, taken without stopping it."""
    argv = (py_spy, "dump", "--nonblocking", "--pid", str(process.pid))
    ran = system.run(argv, _DUMP_SECONDS, {}, leave)
    if not ran.well:
        why = ran.fault or next((text for line in reversed(ran.words.splitlines()) if (text := clean(line))), "")
        return f"py-spy could not show the stack of process {process.pid}: {why or f'status {ran.code}'}."
    lines = [clean(line, _LINE_CHARS) for line in ran.words.splitlines()[:_DUMP_LINES]]
    text = " | ".join(line for line in lines if line)
    return f"Stack of process {process.pid} by py-spy: {text[:_DUMP_CHARS]}"


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


@dataclass(frozen=True, slots=True)
class HolderTree:
    """Who is to be ended, and who goes with them."""

    holders: tuple[ProcessId, ...] = ()  # by pid: those at fault, and their descendants that hold the TPU too
    others: tuple[ProcessId, ...] = ()  # their descendants in their own process groups, which hold nothing
    spared: tuple[str, ...] = ()  # of those at fault, who is not to be touched and why: clauses


def process_tree(
    entries: Mapping[int, ProcessEntry], at_fault: Collection[ProcessId], holds: Callable[[int], bool], own: int
) -> HolderTree:
    """The tree of those processes `at_fault` that hold the TPU now. `own` is our own pid."""
    ours = _line(own, entries, sure=False)
    roots, spared = set(), []
    for process in sorted(at_fault):
        entry = entries.get(process.pid)
        if entry is None or entry.process != process or not holds(process.pid):
            continue
        if why := _untouchable(entry, own, ours):
            spared.append(f"process {process.pid} {why}")
        else:
            roots.add(process.pid)
    below = {pid for pid, entry in entries.items() if _free(entry, own, ours) and roots & _line(pid, entries)}
    holders = {pid for pid in below if pid in roots or holds(pid)}
    groups = {entries[pid].group for pid in holders if _own_group(entries[pid].group, below, entries)}
    others = {pid for pid in below - holders if entries[pid].group in groups}
    return HolderTree(_named(holders, entries), _named(others, entries), tuple(spared))


def _named(pids: Collection[int], entries: Mapping[int, ProcessEntry]) -> tuple[ProcessId, ...]:
    return tuple(sorted(entries[pid].process for pid in pids))


def _untouchable(entry: ProcessEntry, own: int, ours: frozenset[int]) -> str:
    if entry.process.pid == 1:
        return "is the first one of this machine or container"
    if entry.kernel:
        return "is a thread of the kernel"
    if entry.process.pid == own:
        return "is tpuwatch itself"
    return "has started tpuwatch" if entry.process.pid in ours else ""


def _free(entry: ProcessEntry, own: int, ours: frozenset[int]) -> bool:
    return not _untouchable(entry, own, ours)


def _own_group(group: int, below: Collection[int], entries: Mapping[int, ProcessEntry]) -> bool:
    """Whether no other process is in the group. Group 0 has all that cannot be seen."""
    return group > 1 and all(pid in below for pid, entry in entries.items() if entry.group == group and not entry.over)


def _line(pid: int, entries: Mapping[int, ProcessEntry], *, sure: bool = True) -> frozenset[int]:
    """A process and those that it descends from; those that it may descend from, where it need not be `sure`."""
    line: set[int] = set()
    entry, youngest = entries.get(pid), math.inf
    # A number that came to another process between two reads may make a ring, or a parent younger than its child.
    while entry is not None and entry.process.pid not in line and (entry.process.ticks <= youngest or not sure):
        line.add(entry.process.pid)
        youngest = entry.process.ticks
        entry = entries.get(entry.parent)
    return frozenset(line)


_SAME_SECONDS: Final = 2.0  # a start is described to a second, by a clock that is set


def targets(
    at_fault: Iterable[Holder], entries: Mapping[int, ProcessEntry], holders: Mapping[int, Holder]
) -> set[ProcessId]:
    """Those at fault that hold the TPU now and are the same as then. `entries` are older than `holders`."""
    return {
        entries[then.pid].process
        for then in at_fault
        if then.pid in entries and (now := holders.get(then.pid)) is not None and _same(then, now)
    }


def _same(then: Holder, now: Holder) -> bool:
    return then.started is not None and now.started is not None and abs(then.started - now.started) <= _SAME_SECONDS


def still_holds(system: Linux, process: ProcessId) -> bool:
    """Whether that very process has not let go of the TPU."""
    with system.handle(process) as handle:
        return handle is not None and _still_holds(system, handle)


def _still_holds(system: Linux, handle: PidHandle) -> bool:
    if system.is_over(handle):
        return False
    if system.holds(handle.process.pid):
        return True
    # Its first thread has ended, so that its files are not seen any more; another thread still has them.
    entry = system.entries().get(handle.process.pid)
    return entry is not None and entry.process == handle.process and entry.over
