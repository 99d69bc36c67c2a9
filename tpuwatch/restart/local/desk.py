"""What an act on the machine is given to work with: its record, its system, and the keeper's pen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Holder
    from tpuwatch.restart.local.settings import LocalSettings
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.record import Record

# An act that was begun or broken off so long ago is not carried on: what it was decided on has gone by.
RESUME_SECONDS: Final = 600.0
AHEAD_SECONDS: Final = 120.0  # a clock may have been set back by so much meanwhile


class Desk(Protocol):
    """Offered by the driver. Each write is flushed when it returns, renews the lease, and raises if it is lost."""

    system: System
    settings: LocalSettings
    at_fault: tuple[Holder, ...]  # who is to be ended or asked, as the evidence has them

    @property
    def record(self) -> Record:
        """As it is stored."""

    @property
    def began_here(self) -> bool:
        """Whether its intent was written by this very driver."""

    def time(self) -> float:
        """Now, in seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never jump."""

    def say(self, sentence: str) -> None:
        """Tell people what is going on."""

    def write(self, phase: Phase, sentence: str = "", **changes: object) -> None:
        """Store the record in that phase, entered now, and say so."""

    def end(self, phase: Phase, note: str, **changes: object) -> None:
        """Store that it has ended."""

    def keep(self) -> bool:
        """Renew the lease where it is due; whether somebody wants an end. To be called every few seconds."""

    def pause(self, seconds: float) -> None:
        """Wait, until somebody wants an end."""


def fresh(desk: Desk) -> bool:
    """Whether the record's phase was entered lately, and in this boot as far as that is recorded."""
    record = desk.record
    same_boot = not record.boot_id or record.boot_id == desk.system.boot_id()
    return same_boot and -AHEAD_SECONDS <= desk.time() - max(record.entered, record.requested) <= RESUME_SECONDS


def call_off(desk: Desk, why: str) -> None:
    """End it before anything was done."""
    desk.end(Phase.CANCELLED, f"{why} Nothing was done.")
