"""A ledger in memory that fails now and then: before a write, or after it, so that nobody knows whether it was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Fleet
from tpuwatch.restart.ledger.base import Stored, StoredFleet

if TYPE_CHECKING:
    from random import Random

    from tpuwatch.model.restart import RestartRecord, Target


class FleetLedger:
    """Holds records as they are; versions as every ledger gives them. Used from one thread at a time."""

    def __init__(self, rng: Random, *, failing: float = 0.0) -> None:
        """`failing` is the share of calls that fail."""
        self._rng = rng
        self._failing = failing
        self._records: dict[str, Stored] = {}
        self._fleet = StoredFleet(Fleet(), 0)
        self._last = 0

    def read(self, target: Target) -> Stored | None:
        """The node's record, if it has one. Raises LedgerError."""
        self._fail()
        return self._records.get(target.path)

    def records(self) -> list[Stored]:
        """All of them. Raises LedgerError."""
        self._fail()
        return list(self._records.values())

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes. Raises LedgerError."""
        self._fail()
        return self._fleet

    def write(self, record: RestartRecord, version: int) -> Stored:
        """Store it in the place of `version`. Raises ConflictError, or LedgerError, with the write done or not."""
        self._fail()
        before = self._records.get(record.target.path)
        self._check(before.version if before else 0, version)
        stored = self._records[record.target.path] = Stored(record, self._last)
        self._fail()
        return stored

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """The same for what is kept of all nodes."""
        self._fail()
        self._check(self._fleet.version, version)
        self._fleet = StoredFleet(fleet, self._last)
        self._fail()
        return self._fleet

    def close(self) -> None:
        """Nothing is held."""

    def seen(self) -> list[RestartRecord]:
        """All records, for who counts."""
        return [stored.record for stored in self._records.values()]

    def _check(self, held: int, version: int) -> None:
        if held != version:
            raise ConflictError("somebody else has written it")
        self._last += 1

    def _fail(self) -> None:
        if self._rng.random() < self._failing:
            raise LedgerError("the ledger did not answer")
