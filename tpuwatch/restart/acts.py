"""What a decision makes of the ledger: a share of the budgets and a record, a request, an open breaker.

What is about to be done is decided anew from what the ledger holds at that moment, and written under the versions that
were read: of several who decide at once, one gets to do it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.verdict import DESTRUCTIVE, Rung
from tpuwatch.restart.ledger.base import ConflictError
from tpuwatch.restart.machine.case import begin
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.budgets import Books
from tpuwatch.restart.record import Lease, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.restart.executor import Keeper
    from tpuwatch.restart.ledger.base import Ledger, Stored, StoredFleet
    from tpuwatch.restart.policy.decision import Decision
    from tpuwatch.restart.policy.settings import Settings
    from tpuwatch.restart.record import Record, Target

RENEW_SECONDS: Final = 300.0  # a request counts for twice as long
_TRIES: Final = 5  # at a fleet that others write, too


@dataclass(frozen=True)
class Reading:
    """What the ledger held at one moment, with the versions that a write has to name."""

    fleet: StoredFleet
    stored: Mapping[str, Stored]  # by the nodes' paths
    books: Books

    def version(self, target: Target) -> int:
        """That of the node's record; 0 where there is none."""
        stored = self.stored.get(target.path)
        return stored.version if stored is not None else 0

    def record(self, target: Target) -> Record | None:
        """The node's record, if there is one."""
        return self.books.records.get(target.path)


@dataclass(frozen=True)
class Begun:
    """What was decided at last, and who is to drive it; None where it came to nothing."""

    decision: Decision
    driver: Keeper | None = None
    record: Record | None = None
    version: int = 0


def read(ledger: Ledger) -> Reading:
    """All that the ledger holds. Raises LedgerError."""
    fleet = ledger.fleet()  # first: a claim is dropped from it once the records show what became of it
    stored = {one.record.target.path: one for one in ledger.records()}
    return Reading(fleet, stored, Books({path: one.record for path, one in stored.items()}, fleet.fleet))


def claim(ledger: Ledger, target: Target, settings: Settings, at: float) -> None:
    """Take a share of the budgets for a restart of that time, for who need not ask whether there is one left.

    Those who decide meanwhile by what they read before have to read again, and see it. Where others write all the time
    it is done without: its record is there soon. Raises LedgerError.
    """
    for _ in range(_TRIES):
        reading = read(ledger)
        try:
            ledger.write_fleet(budgets.claimed(reading.books, target, settings, at), reading.fleet.version)
        except ConflictError:
            continue
        return


class Acts:
    """Writes one daemon's decisions. Every method raises LedgerError when that is not possible."""

    def __init__(self, ledger: Ledger, settings: Settings, clock: Clock, actor: str) -> None:
        """`actor` is who wants what is written: a name of this daemon."""
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self.actor = actor

    def begin(
        self,
        target: Target,
        decided: Callable[[Books], Decision],
        make: Callable[[Decision], Keeper],
        *,
        summary: str,
        boot_id: str = "",
    ) -> Begun | None:
        """Decide anew and record the act, with the lease of the driver that `make` makes for it.

        None where others were quicker each time. A share of the budgets that was taken for an act which then could not
        be recorded stays taken until its window has passed: too much of it is counted rather than too little.
        """
        for _ in range(_TRIES):
            reading = read(self._ledger)
            decision = decided(reading.books)
            if decision.act is None:
                return Begun(decision)
            now = self._clock.time()
            try:
                if decision.act in DESTRUCTIVE:
                    fleet = budgets.claimed(reading.books, target, self._settings, now)
                    self._ledger.write_fleet(fleet, reading.fleet.version)
                driver = make(decision)
                record = self._record(target, decision, decision.act, reading, now, summary)
                record = replace(record, boot_id=boot_id, lease=driver.lease)
                stored = self._ledger.write(record, reading.version(target))
            except ConflictError:
                continue
            return Begun(decision, driver, record, stored.version)
        return None

    def request(self, target: Target, decision: Decision, reading: Reading, summary: str, boot_id: str) -> bool:
        """Ask those who watch the node, or ask again before the request grows old; whether it was written."""
        before, now = reading.record(target), self._clock.time()
        if before is not None and budgets.is_request(before):
            same = (before.rung, before.cause) == (decision.wanted, decision.verdict)
            if same and 0 <= now - before.requested < RENEW_SECONDS:
                return False
        record = replace(self._record(target, decision, decision.wanted, reading, now, summary), boot_id=boot_id)
        # If that fails another worker of the node has just asked, or somebody has taken it up.
        return self.put(record, reading.version(target))

    def withdraw(self, stored: Stored, note: str) -> bool:
        """Take back what nobody has begun; whether it was. It counts as no restart."""
        record = replace(
            stored.record,
            rung=Rung.NOTHING,
            phase=Phase.CANCELLED,
            entered=self._clock.time(),
            lease=Lease(),
            witnesses=(),
            note=note,
        )
        return self.put(record, stored.version)

    def open_breaker(self, reading: Reading, why: str) -> bool:
        """Open the breaker; whether it was this that opened it."""
        if reading.fleet.fleet.breaker.opened is not None:
            return False
        fleet = budgets.opened(reading.fleet.fleet, why, self._clock.time())
        try:
            self._ledger.write_fleet(fleet, reading.fleet.version)
        except ConflictError:
            return False  # the next reading tells how it is
        return True

    def put(self, record: Record, version: int) -> bool:
        """Write it, unless somebody else has written it meanwhile; whether it was written."""
        try:
            self._ledger.write(record, version)
        except ConflictError:
            return False
        return True

    def _record(
        self, target: Target, decision: Decision, rung: Rung, reading: Reading, now: float, summary: str
    ) -> Record:
        return begin(
            target,
            reading.record(target),
            rung,
            cause=decision.verdict,
            reason=summary,
            actor=self.actor,
            now=now,
            evidence=decision.evidence,
            witnesses=decision.witnesses,
        )
