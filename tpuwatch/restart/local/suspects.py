"""Who is meant: from holders as the evidence has them to processes that can be no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.restart.local.system import Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.health.evidence import Holder
    from tpuwatch.restart.local.system import Entry, Grip, System

_PREFIX: Final = "holder/"
_SAME_SECONDS: Final = 2.0  # a start is told to a second, by a clock that is set


def suspects(at_fault: Iterable[Holder], entries: Mapping[int, Entry], holders: Mapping[int, Holder]) -> set[Who]:
    """Those at fault that hold the TPU now and are the same as then. `entries` are older than `holders`."""
    return {
        entries[then.pid].who
        for then in at_fault
        if then.pid in entries and (now := holders.get(then.pid)) is not None and _same(then, now)
    }


def _same(then: Holder, now: Holder) -> bool:
    return then.started is not None and now.started is not None and abs(then.started - now.started) <= _SAME_SECONDS


def written(whos: Iterable[Who]) -> tuple[str, ...]:
    """Processes as a record's `operations` name them."""
    return tuple(f"{_PREFIX}{who}" for who in sorted(whos))


def read(operations: Iterable[str]) -> set[Who]:
    """The processes that a record's `operations` name."""
    parts = (name[len(_PREFIX) :].split("/") for name in operations if name.startswith(_PREFIX))
    return {Who(int(pair[0]), int(pair[1])) for pair in parts if len(pair) == 2 and all(map(str.isdecimal, pair))}


def holds_on(system: System, who: Who) -> bool:
    """Whether that very process has not let go of the TPU."""
    grip = system.grip(who)
    if grip is None:
        return False
    try:
        return _holds_on(system, grip)
    finally:
        system.loose(grip)


def _holds_on(system: System, grip: Grip) -> bool:
    if system.is_over(grip):
        return False
    if system.holds(grip.who.pid):
        return True
    # Its first thread has ended, so that its files are not seen any more; another thread still has them.
    entry = system.entries().get(grip.who.pid)
    return entry is not None and entry.who == grip.who and entry.over
