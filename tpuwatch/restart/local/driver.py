"""Drives what is done on this machine, by the same records and leases as restarts of nodes.

Each act is written as an intent, and flushed, before its first signal or command. A driver that finds an intent that is
not its own looks what became of it, and never begins anew what may have been done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.verdict import Rung
from tpuwatch.restart.executor import LEASE_SECONDS, Keeper, Progress
from tpuwatch.restart.local import checkpoint, holder, runtime
from tpuwatch.restart.local.settings import LocalSettings
from tpuwatch.restart.machine.case import ended
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.clock import Clock
    from tpuwatch.health.evidence import Holder
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.local.desk import Desk
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.record import Record, Target

_ACTS: Final[dict[Rung, Callable[[Desk], None]]] = {
    Rung.CHECKPOINT: checkpoint.turn,
    Rung.END_HOLDER: holder.turn,
    Rung.RESTART_RUNTIME: runtime.turn,
}
# Nobody else can know what became of an act on a machine that no longer answers.
ORPHANED_SECONDS: Final = 3600.0


class LocalDriver(Keeper):
    """Drives the record of the node that this machine is, once. Used from one thread."""

    rungs = frozenset(_ACTS)

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
        tell: Callable[[Progress], None] = lambda _: None,
        lease_seconds: float = LEASE_SECONDS,
        here: ThisMachine | None = None,
    ) -> None:
        """As `Keeper` is made. `at_fault` are those holders, as the evidence has them, that the verdict speaks of:
        who is to be ended, or asked for a checkpoint. Give none to finish a record that was begun before.
        """
        super().__init__(ledger, target, clock=clock, wait=wait, tell=tell, lease_seconds=lease_seconds, here=here)
        self.system = system
        self.settings = settings or LocalSettings()
        self.at_fault = at_fault
        self._intent = False

    @property
    def record(self) -> Record:
        return self._stored.record

    @property
    def began_here(self) -> bool:
        return self._intent

    def time(self) -> float:
        return self._clock.time()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def say(self, sentence: str) -> None:
        self._say(sentence)

    def write(self, phase: Phase, sentence: str = "", **changes: Any) -> None:
        now = self._clock.time()
        fields: dict[str, Any] = {"phase": phase, "entered": now, "began": self.record.began or now, **changes}
        self._write(replace(self.record, **fields))
        self._intent = self._intent or phase is Phase.INTENT
        if sentence:
            self._say(sentence)

    def end(self, phase: Phase, note: str, **changes: Any) -> None:
        self._write(ended(replace(self.record, **changes), phase, note, self._clock.time()))
        self._say(note)

    def keep(self) -> bool:
        if self._clock.monotonic() >= self._renewed + self._lease.seconds / 3:
            self._write(self.record)
        self._wanted_end = self._wanted_end or self._wait(0.0)
        return self._wanted_end

    def pause(self, seconds: float) -> None:
        self._pause(seconds)

    def _turn(self) -> None:
        _ACTS[self.record.rung](self)


def orphaned(record: Record, now: float) -> Record | None:
    """The record ended, where an act on a machine was broken off so long ago that the machine will hardly finish it.

    For those who watch that machine, once nobody holds the record's lease; None while it is to be left alone. Such an
    act leaves nothing half done but on the machine itself, so that a restart of the node may follow.
    """
    if not record.open or record.rung not in _ACTS or now - max(record.entered, record.requested) < ORPHANED_SECONDS:
        return None
    note = "The machine has not told what became of it: tpuwatch there has ended, or hangs."
    return ended(record, Phase.CANCELLED if record.phase is Phase.REQUESTED else Phase.FAILED, note, now)
