"""A driver of what is done on this machine, as its steps use it: the record, the machine, the settings, the lease."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import Phase
from tpuwatch.restart.driver import LeasedDriver
from tpuwatch.restart.policy.situation import OF_THE_MACHINE
from tpuwatch.restart.workflow.step import ended

if TYPE_CHECKING:
    from tpuwatch.config import RestartConfig
    from tpuwatch.model import Holder
    from tpuwatch.restart.local.linux import Linux

# An act that was begun or broken off so long ago is not carried on: what it was decided on has gone by.
RESUME_SECONDS: Final = 600.0
AHEAD_SECONDS: Final = 120.0  # a clock may have been set back by so much meanwhile


@dataclass(eq=False)
class MachineDriver(LeasedDriver):
    """Holds the record of the node that this machine is. Used from one thread."""

    actions = OF_THE_MACHINE

    _: KW_ONLY
    system: Linux
    settings: RestartConfig
    # The holders, as the evidence has them, that the verdict names: who is to be ended, or asked for a checkpoint. None
    # to finish a record that was begun before.
    at_fault: tuple[Holder, ...] = ()
    began_here: bool = field(default=False, init=False)  # whether the intent was written by this very driver

    def close(self) -> None:
        """A machine holds nothing."""

    def write(self, phase: Phase, sentence: str = "", **changes: Any) -> None:
        """Store the record in that phase, entered now, and report the sentence.

        It is flushed when this returns, and the lease renewed; raises ConflictError if that is lost.
        """
        now = self.clock.time()
        fields: dict[str, Any] = {"phase": phase, "entered": now, "began": self.record.began or now, **changes}
        self._write(replace(self.record, **fields))
        self.began_here = self.began_here or phase is Phase.INTENT
        if sentence:
            self.report(sentence)

    def end(self, phase: Phase, note: str, **changes: Any) -> None:
        """Store that it has ended."""
        self._write(ended(replace(self.record, **changes), phase, note, self.clock.time()))
        self.report(note)

    def cancel(self, why: str) -> None:
        """End it before anything was done."""
        self.end(Phase.CANCELLED, f"{why} Nothing was done.")

    def must_stop(self) -> bool:
        """Renew the lease where it is due; whether a stop is requested. Call it every few seconds."""
        if self.clock.monotonic() >= self._renewed + self.lease.seconds / 3:
            self._write(self.record)
        self._stop_requested = self._stop_requested or self.wait(0.0)
        return self._stop_requested

    def is_recent(self) -> bool:
        """Whether the record's phase was entered lately, and in this boot as far as that is recorded."""
        record = self.record
        same_boot = not record.boot_id or record.boot_id == self.system.boot_id()
        age = self.clock.time() - max(record.entered, record.requested)
        return same_boot and -AHEAD_SECONDS <= age <= RESUME_SECONDS
