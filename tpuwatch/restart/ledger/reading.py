"""All that the ledger holds at one moment, with the versions that a write has to name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuwatch.core import ConflictError
from tpuwatch.restart.ledger.codec import DamagedError
from tpuwatch.restart.policy.budgets import LedgerView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.model import RestartRecord, Target
    from tpuwatch.restart.ledger.base import Ledger, Stored, StoredFleet


@dataclass(frozen=True)
class LedgerReading:
    """What the ledger held at one moment."""

    fleet: StoredFleet
    stored: Mapping[str, Stored]  # by the nodes' paths
    view: LedgerView  # the same for the policy, without versions

    def version(self, target: Target) -> int:
        """The version of the node's record; 0 if it has none."""
        stored = self.stored.get(target.path)
        return stored.version if stored is not None else 0

    def record(self, target: Target) -> RestartRecord | None:
        """The node's record, if it has one."""
        return self.view.records.get(target.path)

    def is_same(self, other: LedgerReading) -> bool:
        """Whether nothing was written between the two readings. A version is never used twice."""
        return self._versions() == other._versions()

    def _versions(self) -> tuple[int, dict[str, int]]:
        return self.fleet.version, {path: stored.version for path, stored in self.stored.items()}


def read_ledger(ledger: Ledger) -> LedgerReading:
    """Read everything. Raises LedgerError."""
    fleet = ledger.fleet()  # first: a claim is dropped from it once the records show what became of it
    stored = {one.record.target.path: one for one in ledger.records()}
    return LedgerReading(fleet, stored, LedgerView({path: one.record for path, one in stored.items()}, fleet.fleet))


def read_repaired(ledger: Ledger) -> LedgerReading:
    """Read everything; what is damaged is set aside first. Raises LedgerError."""
    try:
        return read_ledger(ledger)
    except DamagedError:
        if not ledger.set_aside():
            raise
        return read_ledger(ledger)


def require_writable(ledger: Ledger, reading: LedgerReading) -> LedgerReading:
    """Raise LedgerError if the ledger cannot be written: what was read of the fleet is written again, as it is.

    Returns what the ledger holds then. One in which nothing has been written is left alone.
    """
    if reading.fleet.version:
        try:
            return replace(reading, fleet=ledger.write_fleet(reading.fleet.fleet, reading.fleet.version))
        except ConflictError:  # another process has just written it
            pass
    return reading
