"""Ending the process that holds the TPU: who it is is written first, then it is asked ever more firmly.

It is looked at again right before each signal: the same process, which still holds the TPU. One that has let go of it
is left alone, such as a program that still writes its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import capital, clean, length, listed
from tpuwatch.restart.local.desk import call_off, fresh
from tpuwatch.restart.local.family import Family, family
from tpuwatch.restart.local.portrait import portrait
from tpuwatch.restart.local.suspects import holds_on, read, suspects, written
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

    from tpuwatch.health.evidence import Holder
    from tpuwatch.node.holders import Held
    from tpuwatch.restart.local.desk import Desk
    from tpuwatch.restart.local.system import Who

_LOOK_SECONDS: Final = 1.0  # between two looks at who has not ended: it may let go without that
_NAMED: Final = 8


def turn(desk: Desk) -> None:
    """One step of the record."""
    phase = desk.record.phase
    if phase is Phase.REQUESTED:
        _begin(desk)
    elif phase is Phase.INTENT:
        _carry_on(desk)
    else:
        _verify(desk)


def _begin(desk: Desk) -> None:
    """Find out who is to be ended, and write it down."""
    if not fresh(desk):
        call_off(desk, "It was asked for too long ago.")
        return
    system, entries = desk.system, desk.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = suspects(desk.at_fault, entries, holders)
    found = family(entries, at_fault, system.holds, system.own())
    if not found.holders:
        _nobody(desk, found)
        return
    seen = portrait(system, found.holders, entries, holders, desk.keep)
    if desk.keep():
        return
    desk.write(
        Phase.INTENT,
        f"{_processes(found.holders)} is to be ended.",
        boot_id=system.boot_id(),
        operation="",
        operations=written(found.holders),
        evidence=(*desk.record.evidence, *seen),
    )


def _nobody(desk: Desk, found: Family) -> None:
    if found.spared:
        desk.end(
            Phase.NEEDS_PERSON, f"tpuwatch does not end who holds the TPU: {listed(found.spared)}. Nothing was done."
        )
    elif desk.at_fault:
        pids = _pids(holder.pid for holder in desk.at_fault)
        call_off(desk, f"Who is to be ended does not hold the TPU any more, or is another process by now ({pids}).")
    else:
        call_off(desk, "Nothing tells which process is to be ended.")


def _carry_on(desk: Desk) -> None:
    """One signal after another, from the one that was about to be sent."""
    whos = read(desk.record.operations)
    if desk.record.boot_id != desk.system.boot_id():
        desk.write(Phase.VERIFYING, "The machine has booted since, so that they have ended.")
        return
    if not (desk.began_here or fresh(desk)) and any(holds_on(desk.system, who) for who in whos):
        desk.end(
            Phase.FAILED,
            f"The end of {_lower(whos)} was broken off long ago, and is not carried on: what it was decided on is old.",
        )
        return
    for number, seconds in _left(desk):
        found = family(desk.system.entries(), whos, desk.system.holds, desk.system.own())
        if not found.holders:
            break
        whos |= set(found.holders)
        interrupted = desk.record.stops
        desk.write(
            Phase.INTENT,
            f"{_processes(found.holders)} gets {number.name}, and has {length(seconds)} to let go of the TPU.",
            operation=number.name,
            operations=written(whos),
            stops=1,
        )
        if denied := _send(desk, found, number):
            desk.end(Phase.NEEDS_PERSON, _denied(denied), stops=interrupted)
            return
        if _let_go(desk, found.holders, seconds):
            break
        if desk.keep():
            return
    desk.write(Phase.VERIFYING)


def _left(desk: Desk) -> tuple[tuple[signal.Signals, float], ...]:
    """The signals from the one that the record names; all where it names none."""
    ladder = desk.settings.ladder
    names = [number.name for number, _ in ladder]
    return ladder[names.index(desk.record.operation) :] if desk.record.operation in names else ladder


def _send(desk: Desk, found: Family, number: signal.Signals) -> list[Who]:
    """Send it to all of them. Who holds the TPU and may not be signalled, if that is all of them."""
    denied = []
    for who in (*found.holders, *found.others):
        if desk.keep():  # which renews the lease, and raises where it is lost
            return []
        try:
            _send_one(desk, who, number, holder=who in found.holders)
        except PermissionError:
            denied.append(who)
    return [who for who in found.holders if who in denied] if set(found.holders) <= set(denied) else []


def _send_one(desk: Desk, who: Who, number: signal.Signals, *, holder: bool) -> None:
    grip = desk.system.grip(who)
    if grip is None:
        return
    try:
        if not holder or desk.system.holds(who.pid):
            desk.system.send(grip, number)
    finally:
        desk.system.loose(grip)


def _let_go(desk: Desk, whos: tuple[Who, ...], seconds: float) -> bool:
    """Wait until none of them holds the TPU; whether that has come."""
    system, until = desk.system, desk.monotonic() + seconds
    grips = [grip for who in whos if (grip := system.grip(who)) is not None]
    try:
        while left := [grip for grip in grips if holds_on(system, grip.who)]:
            remaining = until - desk.monotonic()
            if remaining <= 0 or desk.keep():
                return False
            system.wait(left, min(remaining, _LOOK_SECONDS))
        return True
    finally:
        for grip in grips:
            system.loose(grip)


def _verify(desk: Desk) -> None:
    """Whether they have let go, and who has the TPU now."""
    system, record = desk.system, desk.record
    whos = read(record.operations) if record.boot_id == system.boot_id() else set()
    if still := sorted(who for who in whos if holds_on(system, who)):
        desk.end(Phase.FAILED, _undead(desk, still))
        return
    held = system.held()
    old = [one for one in held.holders if one.started is None or one.started < record.began]
    if old:
        desk.end(
            Phase.FAILED,
            f"{_processes(whos)} has let go of the TPU, but it is not free: {_shown(old)} held it before already.",
        )
        return
    desk.end(Phase.DONE, f"{_processes(whos)} has let go of the TPU. {_now(desk, held)}".rstrip())


def _now(desk: Desk, held: Held) -> str:
    """Who has the TPU now, and what became of the lock file."""
    if held.holders:
        return f"It is in use anew: by {_shown(held.holders)}."
    if held.unseen:
        return f"Whether it is free is not known. {held.unseen[0]}"
    removed, why = desk.system.remove_lock_file()
    if removed:
        return "It is free, and libtpu's lock file, which nobody held, is removed."
    return f"It is free. libtpu's lock file is left: {clean(why)}." if why else "It is free."


def _undead(desk: Desk, still: list[Who]) -> str:
    last = desk.settings.ladder[-1][0].name
    if blocked := [who for who in still if desk.system.blocked(who)]:
        return (
            f"{_processes(blocked)} is blocked in the kernel (state D), where no signal reaches it, and still holds "
            f"the TPU after {last}. It ends when the driver lets it go, or with a restart of the node."
        )
    return f"{_processes(still)} still holds the TPU after {last}."


def _denied(denied: list[Who]) -> str:
    pids = " ".join(str(who.pid) for who in denied[:_NAMED])
    return (
        f"tpuwatch may not signal {_lower(denied)}: install systemd/tpuwatch-act.conf, which grants it, or end it by "
        f"hand: `sudo kill {pids}`."
    )


def _processes(whos: Iterable[Who]) -> str:
    return capital(_lower(whos))


def _lower(whos: Iterable[Who]) -> str:
    return f"process {_pids(who.pid for who in whos)}"


def _pids(pids: Iterable[int]) -> str:
    every = sorted(pids)
    more = [f"{len(every) - _NAMED} more"] if len(every) > _NAMED else []
    return listed([*map(str, every[:_NAMED]), *more])


def _shown(holders: Iterable[Holder]) -> str:
    return listed([f"process {one.pid} ({clean(one.command, 60)})" for one in list(holders)[:3]])
