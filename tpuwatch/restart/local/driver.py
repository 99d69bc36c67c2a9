"""Drives what is done on this machine, by the same records and leases as restarts of nodes.

Each act is written as an intent, and flushed, before its first signal or command. A driver that finds an intent that is
not its own looks what became of it, and never repeats what may have been done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import Action, Phase
from tpuwatch.restart.driver import LEASE_SECONDS, LeasedDriver, Progress
from tpuwatch.restart.local import checkpoint, holder, runtime
from tpuwatch.restart.local.context import LocalSettings
from tpuwatch.restart.workflow.step import ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.model import Holder, RestartRecord, Target
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.local.context import ActionContext
    from tpuwatch.restart.local.system import System

_ACTS: Final[dict[Action, Callable[[ActionContext], None]]] = {
    Action.CHECKPOINT: checkpoint.run_step,
    Action.END_HOLDER: holder.run_step,
    Action.RESTART_RUNTIME: runtime.run_step,
}
# The outcome of an action on a machine that no longer answers is not known elsewhere.
ORPHANED_SECONDS: Final = 3600.0


class LocalDriver(LeasedDriver):
    """Drives the record of the node that this machine is, once. Used from one thread."""

    actions = frozenset(_ACTS)

    def __init__(
        self,
        ledger: Ledger,
        target: Target,
        system: System,
        *,
        clock: Clock,
        wait: Callable[[float], bool],
        at_fault: tuple[Holder, ...] = (),
        settings: LocalSettings | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
        lease_seconds: float = LEASE_SECONDS,
        here: ThisMachine | None = None,
    ) -> None:
        """As `LeasedDriver` is made. `at_fault` are the holders, as the evidence has them, that the verdict names:
        who is to be ended, or asked for a checkpoint. Give none to finish a record that was begun before.
        """
        super().__init__(
            ledger, target, clock=clock, wait=wait, on_progress=on_progress, lease_seconds=lease_seconds, here=here
        )
        self.system = system
        self.settings = settings or LocalSettings()
        self.at_fault = at_fault
        self._intent = False

    @property
    def record(self) -> RestartRecord:
        return self._stored.record

    @property
    def began_here(self) -> bool:
        return self._intent

    def time(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def report(self, sentence: str) -> None:
        self._report(sentence)

    def write(self, phase: Phase, sentence: str = "", **changes: Any) -> None:
        now = self._clock.time()
        fields: dict[str, Any] = {"phase": phase, "entered": now, "began": self.record.began or now, **changes}
        self._write(replace(self.record, **fields))
        self._intent = self._intent or phase is Phase.INTENT
        if sentence:
            self._report(sentence)

    def end(self, phase: Phase, note: str, **changes: Any) -> None:
        self._write(ended(replace(self.record, **changes), phase, note, self._clock.time()))
        self._report(note)

    def must_stop(self) -> bool:
        if self._clock.monotonic() >= self._renewed + self._lease.seconds / 3:
            self._write(self.record)
        self._stop_requested = self._stop_requested or self._wait(0.0)
        return self._stop_requested

    def pause(self, seconds: float) -> None:
        self._pause(seconds)

    def _turn(self) -> None:
        _ACTS[self.record.action](self)


def orphaned(record: RestartRecord, now: float) -> RestartRecord | None:
    """The record ended, where an act on a machine was broken off so long ago that the machine will hardly finish it.

    For those who watch that machine, once the record's lease is free; None while it is to be left alone. Such an
    act leaves nothing half done but on the machine itself, so that a restart of the node may follow.
    """
    if not record.open or record.action not in _ACTS or now - max(record.entered, record.requested) < ORPHANED_SECONDS:
        return None
    note = "The machine has not reported what became of it: tpuwatch there has ended, or hangs."
    return ended(record, Phase.CANCELLED if record.phase is Phase.REQUESTED else Phase.FAILED, note, now)
