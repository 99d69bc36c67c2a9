"""Asking the job for a checkpoint, by a command or by a signal to those that hold the TPU. It is asked once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tpuwatch.core import capital, installed, listed
from tpuwatch.model import OnMachine, Phase
from tpuwatch.restart.local.processes import process_tree, targets

if TYPE_CHECKING:
    from tpuwatch.model import ProcessId
    from tpuwatch.restart.local.machine_driver import MachineDriver


def run_step(driver: MachineDriver) -> None:
    """One step of the record."""
    if driver.record.phase is Phase.REQUESTED:
        _begin(driver)
    elif not driver.began_here:
        driver.end(
            Phase.FAILED,
            "tpuwatch ended while it asked for a checkpoint: it is not known whether it was written, and it is not "
            "asked for again.",
        )
    elif driver.settings.checkpoint_command:
        _run(driver)
    else:
        _signal(driver)


def _begin(driver: MachineDriver) -> None:
    settings = driver.settings
    if not (settings.checkpoint_command or settings.checkpoint_signal):
        driver.cancel("Neither checkpoint_command nor checkpoint_signal is given under [restart].")
        return
    system, entries = driver.system, driver.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = targets(driver.at_fault, entries, holders)
    found = process_tree(entries, at_fault, system.holds, system.own()).holders
    if not settings.checkpoint_command and not found:
        driver.cancel("No process holds the TPU that could be asked for a checkpoint.")
        return
    driver.write(
        Phase.INTENT,
        "The job is asked for a checkpoint.",
        boot_id=system.boot_id(),
        machine=OnMachine(
            "checkpoint_command" if settings.checkpoint_command else settings.checkpoint_signal, tuple(sorted(found))
        ),
    )


def _run(driver: MachineDriver) -> None:
    record, settings = driver.record, driver.settings
    environment = {
        "TPUWATCH_NODE": record.target.node,
        "TPUWATCH_VERDICT": record.cause,
        "TPUWATCH_PIDS": " ".join(str(process.pid) for process in record.machine.processes),
    }
    ran = driver.system.run(settings.checkpoint_command, settings.checkpoint_seconds, environment, driver.must_stop)
    if ran.well:
        driver.end(Phase.DONE, "The checkpoint's command ended, and reported success.")
        return
    driver.end(Phase.FAILED, f"The checkpoint's command has failed: {ran.why('it')}")


def _signal(driver: MachineDriver) -> None:
    number = signal.Signals[driver.settings.checkpoint_signal]
    asked: list[int] = []
    left: list[str] = []
    for process in driver.record.machine.processes:
        if driver.must_stop():
            break
        why = _ask(driver, process, number)
        if why:
            left.append(f"process {process.pid} {why}")
        else:
            asked.append(process.pid)
    if asked:
        others = f" {capital(listed(left))}." if left else ""
        sent_to = f"Process {asked[0]} was" if len(asked) == 1 else f"Processes {listed(map(str, asked))} were"
        driver.end(Phase.DONE, f"{sent_to} sent {number.name} for a checkpoint.{others}")
    else:
        why = listed(left) or "tpuwatch is to end"
        driver.end(Phase.FAILED, f"No checkpoint was requested: {why}.")


def _ask(driver: MachineDriver, process: ProcessId, number: signal.Signals) -> str:
    """Send the signal; or why it was not sent, a clause."""
    system = driver.system
    with system.handle(process) as handle:
        if handle is None:
            return "has ended"
        if not system.holds(process.pid):
            return "does not hold the TPU any more"
        if not system.catches(process.pid, number):
            return f"does not handle {number.name}, which would end it"
        try:
            return "" if system.send(handle, number) else "has ended"
        except PermissionError:
            return f"may not be signalled by tpuwatch without {installed('systemd/tpuwatch-act.conf')}"
