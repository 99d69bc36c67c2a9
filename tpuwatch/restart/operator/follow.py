"""Follows a restart that another process drives, by what the ledger holds of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import LedgerError
from tpuwatch.restart.driver import Progress
from tpuwatch.restart.ledger.owner import LeaseWatch, ThisMachine, owner_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.restart.ledger.base import Ledger, Stored

LOOK_SECONDS: Final = 2.0  # between two readings of the record


def follow(
    stored: Stored,
    ledger: Ledger,
    *,
    clock: Clock,
    wait: Callable[[float], bool],
    on_driver: Callable[[str], None],
    on_progress: Callable[[Progress], None],
) -> Stored | None:
    """Follow the restart until it has ended, or its driver has: then the record may be taken. Writes nothing.

    None where `wait` returns that the operator wants to stop. `on_driver` is called with the driver in words, when it
    is another one than before. A ledger that cannot be read is waited for as long as the driver's lease holds.
    """
    leases, began, driver = LeaseWatch(clock, ThisMachine().is_gone), clock.monotonic(), ""
    while stored.record.open and (left := leases.remaining(stored)) > 0:
        words = owner_words(stored.record.lease.owner)
        if words != driver:
            driver = words
            on_driver(driver)
        sentence = f"Node {stored.record.target.node} is restarted by {driver}."
        on_progress(Progress(stored.record, sentence, clock.monotonic() - began))
        if wait(min(left, LOOK_SECONDS)):
            return None
        try:
            stored = ledger.read(stored.record.target) or stored
        except LedgerError:
            continue
    if driver and not stored.record.open:
        on_progress(Progress(stored.record, stored.record.note, clock.monotonic() - began))
    return stored
