"""Writes one daemon's decisions into the ledger: a restart that begins, a request, a withdrawal, the open breaker.

A write names the version that it replaces. A decision to act is made from the very reading whose versions the write
names; where another process has written in between, the ledger is read and the decision is made again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError
from tpuwatch.model import DESTRUCTIVE
from tpuwatch.restart.ledger.reading import read_ledger
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.workflow.step import begin, withdrawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.model import RestartDecision, RestartRecord, Target
    from tpuwatch.restart.driver import LeasedDriver
    from tpuwatch.restart.ledger.base import Ledger, Stored
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.policy.budgets import LedgerView
    from tpuwatch.restart.policy.settings import PolicySettings

RENEW_SECONDS: Final = 300.0  # a request counts for twice as long
_DECISION_SECONDS: Final = 30.0  # an older decision is made again, though the ledger be the same
_MAX_ATTEMPTS: Final = 5  # to commit to a fleet that others write too


@dataclass(frozen=True)
class Begun:
    """The decision that was committed, and its driver; without a driver nothing was begun."""

    decision: RestartDecision
    driver: LeasedDriver | None = None
    version: int = 0  # of the record


def claim_budget(ledger: Ledger, target: Target, settings: PolicySettings, at: float) -> None:
    """Count a restart of that time against the budgets, for a caller that may exceed them.

    Those who decide meanwhile from an older reading have to read again, and see it. Where others write all the time
    the claim is left out: the record follows soon. Raises LedgerError.
    """
    for _ in range(_MAX_ATTEMPTS):
        reading = read_ledger(ledger)
        try:
            ledger.write_fleet(budgets.claimed(reading.view, target, settings, at), reading.fleet.version)
        except ConflictError:
            continue
        return


class RestartStarter:
    """Every method raises LedgerError when the ledger cannot be read or written."""

    def __init__(self, ledger: Ledger, settings: PolicySettings, clock: Clock, actor: str) -> None:
        """`actor` is this daemon's name, under which records are written."""
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self.actor = actor

    def begin(
        self,
        target: Target,
        decision: RestartDecision,
        reading: LedgerReading,
        *,
        decide: Callable[[LedgerView], RestartDecision],
        make_driver: Callable[[RestartDecision], LeasedDriver],
        summary: str,
        boot_id: str = "",
    ) -> Begun | None:
        """Record the act, with the lease of the driver that `make_driver` makes for it.

        `decision` was made from `reading`. It is made again, by `decide`, only if the ledger was written since or it
        is old. None where others were quicker each time. A claim whose act could not be recorded stays until its window
        has passed: too much is counted rather than too little.
        """
        for _ in range(_MAX_ATTEMPTS):
            latest = read_ledger(self._ledger)
            is_recent = abs(self._clock.time() - decision.at) <= _DECISION_SECONDS
            if not (is_recent and latest.is_same(reading)):
                reading, decision = latest, decide(latest.view)
            if decision.act is None:
                return Begun(decision)
            now = self._clock.time()
            try:
                if decision.act in DESTRUCTIVE:
                    fleet = budgets.claimed(reading.view, target, self._settings, now)
                    self._ledger.write_fleet(fleet, reading.fleet.version)
                driver = make_driver(decision)
                record = self._record(target, decision, reading, now, summary, boot_id)
                record = replace(record, lease=driver.lease, began=now)  # so that it is no request, whatever comes
                stored = self._ledger.write(record, reading.version(target))
            except ConflictError:
                continue
            return Begun(decision, driver, stored.version)
        return None

    def request(
        self, target: Target, decision: RestartDecision, reading: LedgerReading, summary: str, boot_id: str
    ) -> bool:
        """Ask those who watch the node, or renew the request before it expires; whether it was written."""
        before, now = reading.record(target), self._clock.time()
        if before is not None and budgets.is_request(before):
            same = (before.action, before.cause) == (decision.wanted, decision.verdict)
            if same and 0 <= now - before.requested < RENEW_SECONDS:
                return False
        record = self._record(target, decision, reading, now, summary, boot_id)
        # If that fails another worker of the node has just asked, or a watcher has begun.
        return self.write(record, reading.version(target))

    def withdraw(self, stored: Stored, note: str) -> bool:
        """Withdraw a restart that has not begun; whether it was written. It counts as no restart."""
        return self.write(withdrawn(stored.record, note, self._clock.time()), stored.version)

    def open_breaker(self, reading: LedgerReading, why: str) -> bool:
        """Open the breaker; whether this call has opened it. Where others have written since, the next turn decides."""
        if reading.fleet.fleet.breaker.opened is not None:
            return False
        fleet = budgets.opened(reading.fleet.fleet, why, self._clock.time())
        try:
            self._ledger.write_fleet(fleet, reading.fleet.version)
        except ConflictError:
            return False
        return True

    def write(self, record: RestartRecord, version: int) -> bool:
        """Write the record unless another process has written it since; whether it was written."""
        try:
            self._ledger.write(record, version)
        except ConflictError:
            return False
        return True

    def _record(
        self, target: Target, decision: RestartDecision, reading: LedgerReading, now: float, summary: str, boot_id: str
    ) -> RestartRecord:
        record = begin(
            target,
            reading.record(target),
            decision.wanted,
            cause=decision.verdict,
            reason=summary,
            actor=self.actor,
            now=now,
            evidence=decision.evidence,
            signals=decision.signals,
            grounds=decision.grounds,
            sources=decision.sources,
        )
        return replace(record, boot_id=boot_id)
