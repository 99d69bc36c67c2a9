"""Drives what is done on this machine, by the same records and leases as restarts of nodes.

Each act is written as an intent, and flushed, before its first signal or command. A driver that finds an intent that is
not its own looks what became of it, and never repeats what may have been done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.model import Action, Phase
from tpuwatch.restart.local import checkpoint, holder, runtime
from tpuwatch.restart.local.machine_driver import MachineDriver
from tpuwatch.restart.policy.situation import OF_THE_MACHINE
from tpuwatch.restart.workflow.step import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.model import RestartRecord

_STEPS: Final[dict[Action, Callable[[MachineDriver], None]]] = {
    Action.CHECKPOINT: checkpoint.run_step,
    Action.END_HOLDER: holder.run_step,
    Action.RESTART_RUNTIME: runtime.run_step,
}
# The outcome of an action on a machine that no longer answers is not known elsewhere.
ORPHANED_SECONDS: Final = 3600.0


@dataclass(eq=False)
class LocalDriver(MachineDriver):
    """Drives the record of the node that this machine is, once. Used from one thread."""

    def _turn(self) -> None:
        if self.record.phase is Phase.REQUESTED and not self.is_recent():
            self.cancel("It was asked for too long ago.")
        else:
            _STEPS[self.record.action](self)


def orphaned(record: RestartRecord, now: float) -> RestartRecord | None:
    """The record ended, where an act on a machine was broken off so long ago that the machine will hardly finish it.

    For those who watch that machine, once the record's lease is free; None while it is to be left alone. Such an
    act leaves nothing half done but on the machine itself, so that a restart of the node may follow.
    """
    age = now - max(record.entered, record.requested)
    if not record.open or record.action not in OF_THE_MACHINE or age < ORPHANED_SECONDS:
        return None
    note = "The machine has not reported what became of it: tpuwatch there has ended, or hangs."
    return ended(record, Phase.CANCELLED if record.phase is Phase.REQUESTED else Phase.FAILED, note, now)
