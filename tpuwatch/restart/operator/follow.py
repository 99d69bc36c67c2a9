"""Follows a restart that another process drives, by what the ledger holds of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import LedgerError
from tpuwatch.restart.driver import Progress
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, owner_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.restart.ledger.base import Ledger, Stored

LOOK_SECONDS: Final = 2.0  # between two readings of the record


@dataclass(frozen=True, slots=True)
class RestartFollower:
    """Reads a record again and again. Writes nothing."""

    ledger: Ledger
    clock: Clock
    wait: Callable[[float], bool]  # returns whether to end
    on_driver: Callable[[str], None]  # called with the driver in words, when it is another one than before
    on_progress: Callable[[Progress], None]

    def follow(self, stored: Stored) -> Stored | None:
        """Follow the restart until it has ended, or its driver has: then the record may be taken.

        None where `wait` ends it. A ledger that cannot be read is waited for as long as the driver's lease holds.
        """
        leases, began, driver = LeaseWatch(self.clock, ThisMachine().is_gone), self.clock.monotonic(), ""
        while stored.record.open and (left := leases.remaining(stored)) > 0:
            words = owner_words(stored.record.lease.owner)
            if words != driver:
                driver = words
                self.on_driver(driver)
            sentence = f"Node {stored.record.target.node} is restarted by {driver}."
            self.on_progress(Progress(stored.record, sentence, self.clock.monotonic() - began))
            if self.wait(min(left, LOOK_SECONDS)):
                return None
            try:
                stored = self.ledger.read(stored.record.target) or stored
            except LedgerError:
                continue
        if driver and not stored.record.open:
            self.on_progress(Progress(stored.record, stored.record.note, self.clock.monotonic() - began))
        return stored
