"""Ending the process that holds the TPU: who it is is written first, then it is asked ever more firmly.

It is looked at again right before each signal: the same process, which still holds the TPU. One that has let go of it
is left alone, such as a program that still writes its checkpoint.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, clean, installed, length, listed
from tpuwatch.model import OnMachine, Phase
from tpuwatch.restart.local.processes import (
    HolderTree,
    process_report,
    process_tree,
    still_holds,
    targets,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tpuwatch.host import HolderScan
    from tpuwatch.model import Holder, ProcessId
    from tpuwatch.restart.local.machine_driver import MachineDriver

_LOOK_SECONDS: Final = 1.0  # between two looks at who has not ended: it may let go without that
_NAMED: Final = 8


def run_step(driver: MachineDriver) -> None:
    """One step of the record."""
    phase = driver.record.phase
    if phase is Phase.REQUESTED:
        _begin(driver)
    elif phase is Phase.INTENT:
        _send_signals(driver)
    else:
        _verify(driver)


def _begin(driver: MachineDriver) -> None:
    """Find out who is to be ended, and write it down."""
    system, entries = driver.system, driver.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = targets(driver.at_fault, entries, holders)
    found = process_tree(entries, at_fault, system.holds, system.own())
    if not found.holders:
        _no_targets(driver, found)
        return
    seen = process_report(system, found.holders, entries, holders, driver.must_stop)
    if driver.must_stop():
        return
    driver.write(
        Phase.INTENT,
        f"{_processes(found.holders, 'is', 'are')} to be ended.",
        boot_id=system.boot_id(),
        machine=OnMachine(processes=tuple(sorted(found.holders))),
        evidence=(*driver.record.evidence, *seen),
    )


def _no_targets(driver: MachineDriver, found: HolderTree) -> None:
    if found.spared:
        driver.end(
            Phase.NEEDS_OPERATOR, f"tpuwatch does not end who holds the TPU: {listed(found.spared)}. Nothing was done."
        )
    elif driver.at_fault:
        pids = _pids(holder.pid for holder in driver.at_fault)
        driver.cancel(f"Who is to be ended does not hold the TPU any more, or is another process by now ({pids}).")
    else:
        driver.cancel("It is not known which process is to be ended.")


def _send_signals(driver: MachineDriver) -> None:
    """One signal after another, from the one that was about to be sent."""
    processes = set(driver.record.machine.processes)
    if driver.record.boot_id != driver.system.boot_id():
        driver.write(Phase.VERIFYING, "The machine has booted since, so that they have ended.")
        return
    is_current = driver.began_here or driver.is_recent()
    if not is_current and any(still_holds(driver.system, process) for process in processes):
        driver.end(
            Phase.FAILED,
            f"The end of {_lower(processes)} was interrupted long ago, and is not continued: the evidence is old.",
        )
        return
    for number, seconds in _left(driver):
        found = process_tree(driver.system.entries(), processes, driver.system.holds, driver.system.own())
        if not found.holders:
            break
        processes |= set(found.holders)
        interrupted = driver.record.stops
        driver.write(
            Phase.INTENT,
            f"{_processes(found.holders, 'gets', 'get')} {number.name}, with {length(seconds)} to let go of the TPU.",
            machine=OnMachine(number.name, tuple(sorted(processes))),
            stops=1,
        )
        if denied := _send(driver, found, number):
            driver.end(Phase.NEEDS_OPERATOR, _denied(denied), stops=interrupted)
            return
        if _let_go(driver, found.holders, seconds):
            break
        if driver.must_stop():
            return
    driver.write(Phase.VERIFYING)


def _left(driver: MachineDriver) -> list[tuple[signal.Signals, float]]:
    """The signals from the one that the record names, and the time after each; all where it names none."""
    settings = driver.settings
    stages = (
        (signal.SIGINT, settings.sigint_seconds),
        (signal.SIGTERM, settings.sigterm_seconds),
        (signal.SIGQUIT, settings.sigquit_seconds),
        (signal.SIGKILL, settings.sigkill_seconds),
    )
    sequence = [(number, seconds) for number, seconds in stages if seconds > 0]
    names = [number.name for number, _ in sequence]
    act = driver.record.machine.act
    return sequence[names.index(act) :] if act in names else sequence


def _send(driver: MachineDriver, found: HolderTree, number: signal.Signals) -> list[ProcessId]:
    """Send it to all of them. Who holds the TPU and may not be signalled, if that is all of them."""
    denied = []
    for process in (*found.holders, *found.others):
        if driver.must_stop():  # which renews the lease, and raises where it is lost
            return []
        with driver.system.handle(process) as handle:
            if handle is None or (process in found.holders and not driver.system.holds(process.pid)):
                continue
            try:
                driver.system.send(handle, number)
            except PermissionError:
                denied.append(process)
    return [process for process in found.holders if process in denied] if set(found.holders) <= set(denied) else []


def _let_go(driver: MachineDriver, processes: tuple[ProcessId, ...], seconds: float) -> bool:
    """Wait until none of them holds the TPU; whether that has come."""
    system, until = driver.system, driver.clock.monotonic() + seconds
    with contextlib.ExitStack() as opened:
        handles = [opened.enter_context(system.handle(process)) for process in processes]
        while left := [handle for handle in handles if handle is not None and still_holds(system, handle.process)]:
            remaining = until - driver.clock.monotonic()
            if remaining <= 0 or driver.must_stop():
                return False
            system.wait(left, min(remaining, _LOOK_SECONDS))
        return True


def _verify(driver: MachineDriver) -> None:
    """Whether they have let go, and who has the TPU now."""
    system, record = driver.system, driver.record
    processes, same_boot = record.machine.processes, record.boot_id == system.boot_id()
    if still := sorted(process for process in processes if same_boot and still_holds(system, process)):
        driver.end(Phase.FAILED, _not_ended(driver, still))
        return
    held = system.held()
    old = [one for one in held.holders if one.started is None or one.started < record.began]
    if old:
        driver.end(
            Phase.FAILED,
            f"{_let_go_of(processes)}, but it is not free: {_shown(old)} held it before already.",
        )
        return
    driver.end(Phase.DONE, f"{_let_go_of(processes)}. {_now(driver, held)}".rstrip())


def _now(driver: MachineDriver, held: HolderScan) -> str:
    """Who has the TPU now, and what became of the lock file."""
    if held.holders:
        return f"It is in use again: by {_shown(held.holders)}."
    if held.unseen:
        return f"Whether it is free is not known. {held.unseen[0]}"
    removed, why = driver.system.remove_lock_file()
    if removed:
        return "It is free, and libtpu's lock file, which no process held, is removed."
    return f"It is free. libtpu's lock file is left: {clean(why)}." if why else "It is free."


def _not_ended(driver: MachineDriver, still: list[ProcessId]) -> str:
    if blocked := [process for process in still if driver.system.blocked(process)]:
        return (
            f"{_processes(blocked, 'is', 'are')} blocked in the kernel (state D), where no signal arrives, and the TPU "
            f"is still held after SIGKILL. This ends when the driver lets go, or with a restart of the node."
        )
    return f"{_processes(still, 'still holds', 'still hold')} the TPU after SIGKILL."


def _denied(denied: list[ProcessId]) -> str:
    pids = " ".join(str(process.pid) for process in denied[:_NAMED])
    return (
        f"tpuwatch may not signal {_lower(denied)}: install {installed('systemd/tpuwatch-act.conf')}, which grants it, "
        f"or end it by hand: `sudo kill {pids}`."
    )


def _let_go_of(processes: Collection[ProcessId]) -> str:
    return f"{_processes(processes, 'has', 'have')} let go of the TPU"


def _processes(processes: Collection[ProcessId], one: str, several: str) -> str:
    """The subject of a sentence with its verb, which is `one` or `several`."""
    return f"{capital(_lower(processes))} {one if len(processes) == 1 else several}"


def _lower(processes: Collection[ProcessId]) -> str:
    return f"process{'es' * (len(processes) != 1)} {_pids(process.pid for process in processes)}"


def _pids(pids: Iterable[int]) -> str:
    every = sorted(pids)
    more = [f"{len(every) - _NAMED} more"] if len(every) > _NAMED else []
    return listed([*map(str, every[:_NAMED]), *more])


def _shown(holders: Iterable[Holder]) -> str:
    return listed([f"process {one.pid} ({clean(one.command, 60)})" for one in list(holders)[:3]])
