"""Of those who decide at once over one ledger, each sees what the other has taken of the budgets."""

from __future__ import annotations

from dataclasses import replace

from tests.restart.memory_ledger import MemoryLedger
from tests.restart.policy_scenes import ALL_ON, NOW, TARGET, record, situation
from tpuwatch.clock import ManualClock
from tpuwatch.restart.acts import Acts, claim, read
from tpuwatch.restart.executor import Keeper
from tpuwatch.restart.policy.budgets import Books
from tpuwatch.restart.policy.decision import Blocked, Decision
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.record import Claim, Phase

ONE_FOR_ALL = replace(ALL_ON, fleet_max=1)
OTHER = replace(TARGET, node="other")


class Operator:
    """Begins with another node in the moment between a daemon's reading and its writing."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self.began = False

    def begins(self) -> None:
        if not self.began:
            self.began = True
            claim(self._ledger, OTHER, ONE_FOR_ALL, NOW)
            self._ledger.write(record(Phase.REQUESTED, target=OTHER, requested=NOW), 0)


def test_what_an_operator_begins_meanwhile_is_counted() -> None:
    ledger = MemoryLedger(ManualClock(NOW))
    operator, decisions = Operator(ledger), []

    def decided(books: Books) -> Decision:
        decisions.append(decide(situation(books=books), ONE_FOR_ALL))
        operator.begins()
        return decisions[-1]

    def make(_: Decision) -> Keeper:
        raise AssertionError("it is begun")

    begun = Acts(ledger, ONE_FOR_ALL, ManualClock(NOW), "watcher").begin(TARGET, decided, make, summary="It is stuck.")
    assert begun is not None
    assert [one.blocked for one in decisions] == [None, Blocked.FLEET_BUDGET]
    assert begun.decision.blocked is Blocked.FLEET_BUDGET
    assert ledger.read(TARGET) is None


def test_a_claim_and_its_record_are_one_restart() -> None:
    ledger = MemoryLedger(ManualClock(NOW))
    claim(ledger, TARGET, Settings(), NOW)
    assert read(ledger).books.begun == [(TARGET.path, NOW)]
    for phase in (Phase.REQUESTED, Phase.STOPPED, Phase.DONE):
        before = ledger.read(TARGET)
        ledger.write(record(phase, requested=NOW, entered=NOW), before.version if before else 0)
        assert read(ledger).fleet.fleet.claims == (Claim(TARGET, NOW),)
        assert read(ledger).books.begun == [(TARGET.path, NOW)]


def test_who_writes_all_the_time_holds_up_no_claim() -> None:
    ledger = MemoryLedger(ManualClock(NOW))
    write = ledger.write_fleet

    def contended(fleet: object, version: int) -> object:
        write(read(ledger).fleet.fleet, read(ledger).fleet.version)
        return write(fleet, version)  # type: ignore[arg-type]

    ledger.write_fleet = contended  # type: ignore[method-assign,assignment]
    claim(ledger, TARGET, Settings(), NOW)
    assert read(ledger).fleet.fleet.claims == ()
