"""What a process is, written down before it is ended: it cannot be asked afterwards."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.health.evidence import Holder
    from tpuwatch.restart.local.system import Entry, System, Who

MOST: Final = 8  # processes that are described
_CHILDREN: Final = 10
_DUMPS: Final = 2
_DUMP_SECONDS: Final = 10.0
_DUMP_LINES: Final = 120
_LINE_CHARS: Final = 200
_DUMP_CHARS: Final = 6000


def portrait(
    system: System,
    whos: tuple[Who, ...],
    entries: Mapping[int, Entry],
    holders: Mapping[int, Holder],
    leave: Callable[[], bool],
) -> tuple[str, ...]:
    """Sentences on those processes, and where in their code the first of them are, as far as that can be seen."""
    told = [_described(system, who, entries, holders.get(who.pid)) for who in whos[:MOST]]
    if len(whos) > MOST:
        told.append(f"{len(whos) - MOST} more processes hold the TPU.")
    py_spy = system.find("py-spy")
    dumps = [_dump(system, py_spy, who, leave) for who in whos[:_DUMPS]] if py_spy else []
    return (*told, *dumps)


def _described(system: System, who: Who, entries: Mapping[int, Entry], holder: Holder | None) -> str:
    entry = entries[who.pid]
    user = (holder.user if holder else "") or "an unknown user"
    command = (holder.command if holder else "") or "?"
    since = f", started {_date(holder.started)}" if holder and holder.started is not None else ""
    held = [*holder.devices, *(["libtpu's lock file"] if holder.locks else [])] if holder else []
    children = sorted(one.who.pid for one in entries.values() if one.parent == who.pid)
    shown = [str(pid) for pid in children[:_CHILDREN]]
    if len(children) > _CHILDREN:
        shown.append(f"{len(children) - _CHILDREN} more")
    return (
        f"Process {who.pid} of {user}: {command}{since} (tick {who.ticks}), state {entry.state}, parent "
        f"{entry.parent}, process group {entry.group}, cgroup {system.told(who.pid, 'cgroup') or '?'}; holds "
        f"{clean(listed(held)) if held else 'the TPU'}; children: {listed(shown) if shown else 'none'}."
    )


def _dump(system: System, py_spy: str, who: Who, leave: Callable[[], bool]) -> str:
    """Its stacks, a line of text. It is not stopped for that: it may be in the middle of something."""
    argv = (py_spy, "dump", "--nonblocking", "--pid", str(who.pid))
    ran = system.run(argv, _DUMP_SECONDS, {}, leave)
    if not ran.well:
        why = ran.fault or next((text for line in reversed(ran.words.splitlines()) if (text := clean(line))), "")
        return f"py-spy could not show the stack of process {who.pid}: {why or f'status {ran.code}'}."
    lines = [clean(line, _LINE_CHARS) for line in ran.words.splitlines()[:_DUMP_LINES]]
    text = " | ".join(line for line in lines if line)
    return f"Stack of process {who.pid} by py-spy: {text[:_DUMP_CHARS]}"


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
