"""Asking the job for a checkpoint, by a command or by a signal to those that hold the TPU. It is asked once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tpuwatch.health.words import capital, clean, listed
from tpuwatch.restart.local.desk import call_off, fresh
from tpuwatch.restart.local.family import family
from tpuwatch.restart.local.suspects import read, suspects, written
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.restart.local.desk import Desk
    from tpuwatch.restart.local.system import Who


def turn(desk: Desk) -> None:
    """One step of the record."""
    if desk.record.phase is Phase.REQUESTED:
        _begin(desk)
    elif not desk.began_here:
        desk.end(
            Phase.FAILED,
            "tpuwatch ended while it asked for a checkpoint: it is not known whether it was written, and it is not "
            "asked for again.",
        )
    elif desk.settings.checkpoint_command:
        _run(desk)
    else:
        _signal(desk)


def _begin(desk: Desk) -> None:
    settings = desk.settings
    if not fresh(desk):
        call_off(desk, "It was asked for too long ago.")
        return
    if not (settings.checkpoint_command or settings.checkpoint_signal):
        call_off(desk, "Neither checkpoint_command nor checkpoint_signal is given under [restart].")
        return
    system, entries = desk.system, desk.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = suspects(desk.at_fault, entries, holders)
    found = family(entries, at_fault, system.holds, system.own()).holders
    if not settings.checkpoint_command and not found:
        call_off(desk, "No process holds the TPU that could be asked for a checkpoint.")
        return
    desk.write(
        Phase.INTENT,
        "The job is asked for a checkpoint.",
        boot_id=system.boot_id(),
        operation="checkpoint_command" if settings.checkpoint_command else settings.checkpoint_signal,
        operations=written(found),
    )


def _run(desk: Desk) -> None:
    record, settings = desk.record, desk.settings
    environment = {
        "TPUWATCH_NODE": record.target.node,
        "TPUWATCH_VERDICT": record.cause,
        "TPUWATCH_PIDS": " ".join(str(who.pid) for who in sorted(read(record.operations))),
    }
    ran = desk.system.run(settings.checkpoint_command, settings.checkpoint_seconds, environment, desk.keep)
    if ran.well:
        desk.end(Phase.DONE, "The checkpoint's command was done, and says that it went well.")
        return
    why = ran.fault or f"it ended with status {ran.code}"
    words = clean(ran.words[-600:])
    said = f" It said: {words}" if words else ""
    desk.end(Phase.FAILED, f"The checkpoint's command has failed: {why}.{said}")


def _signal(desk: Desk) -> None:
    number = signal.Signals[desk.settings.checkpoint_signal]
    asked: list[int] = []
    left: list[str] = []
    for who in sorted(read(desk.record.operations)):
        if desk.keep():
            break
        why = _ask(desk, who, number)
        if why:
            left.append(f"process {who.pid} {why}")
        else:
            asked.append(who.pid)
    if asked:
        others = f" {capital(listed(left))}." if left else ""
        desk.end(Phase.DONE, f"Process {listed(map(str, asked))} was sent {number.name} for a checkpoint.{others}")
    else:
        why = listed(left) or "tpuwatch is to end"
        desk.end(Phase.FAILED, f"Nobody was asked for a checkpoint: {why}.")


def _ask(desk: Desk, who: Who, number: signal.Signals) -> str:
    """Send the signal; or why it was not sent, a clause."""
    grip = desk.system.grip(who)
    if grip is None:
        return "has ended"
    try:
        if not desk.system.holds(who.pid):
            return "does not hold the TPU any more"
        if not desk.system.catches(who.pid, number):
            return f"does not handle {number.name}, which would end it"
        return "" if desk.system.send(grip, number) else "has ended"
    except PermissionError:
        return "may not be signalled by tpuwatch without systemd/tpuwatch-act.conf"
    finally:
        desk.system.loose(grip)
