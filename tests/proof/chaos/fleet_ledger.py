"""A ledger in memory that fails now and then: before a write, or after it, so that nobody knows whether it was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standins.memory_ledger import MemoryLedger
from tpuwatch.core.errors import LedgerError

if TYPE_CHECKING:
    from random import Random

    from tpuwatch.model.restart import Fleet, RestartRecord, Target
    from tpuwatch.restart.ledger.base import Stored, StoredFleet


class FleetLedger(MemoryLedger):
    """Each call may raise LedgerError; a write that does is done or not."""

    def __init__(self, rng: Random, *, failing: float = 0.0) -> None:
        """`failing` is the share of calls that fail."""
        super().__init__()
        self._rng = rng
        self._failing = failing

    def read(self, target: Target) -> Stored | None:
        self._fail()
        return super().read(target)

    def records(self) -> list[Stored]:
        self._fail()
        return super().records()

    def fleet(self) -> StoredFleet:
        self._fail()
        return super().fleet()

    def write(self, record: RestartRecord, version: int) -> Stored:
        self._fail()
        stored = super().write(record, version)
        self._fail()
        return stored

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        self._fail()
        stored = super().write_fleet(fleet, version)
        self._fail()
        return stored

    def seen(self) -> list[RestartRecord]:
        """All records, for who counts."""
        return [stored.record for stored in super().records()]

    def _fail(self) -> None:
        if self._rng.random() < self._failing:
            raise LedgerError("the ledger did not answer")
