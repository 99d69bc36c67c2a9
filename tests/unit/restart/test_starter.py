"""Of those who decide at once over one ledger, each sees what the other has taken of the budgets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.policy_scenes import ALL_ON, NOW, TARGET, record, situation
from tests.unit.restart.records import written
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.restart import Blocked, Claim, Fleet, Lease, Phase, RestartDecision
from tpuwatch.restart.ledger.reading import LedgerReading, read_ledger
from tpuwatch.restart.policy.budgets import is_request, under_way
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.starter import Begun, RestartStarter, claim_budget
from tpuwatch.restart.workflow.step import withdrawn

if TYPE_CHECKING:
    from tpuwatch.restart.driver import LeasedDriver
    from tpuwatch.restart.ledger.base import StoredFleet
    from tpuwatch.restart.policy.budgets import LedgerView

ONE_FOR_ALL = replace(ALL_ON, fleet_max=1)
OTHER = replace(TARGET, node="other")


class Scene:
    """A daemon that decides on one node, while an operator restarts another one. The budget is enough for one."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.clock = ManualClock(NOW)
        self.decisions: list[RestartDecision] = []

    def decide(self, view: LedgerView) -> RestartDecision:
        self.decisions.append(decide(replace(situation(ledger=view), now=self.clock.time()), ONE_FOR_ALL))
        return self.decisions[-1]

    def operator_begins(self) -> None:
        if self.ledger.read(OTHER) is None:
            claim_budget(self.ledger, OTHER, ONE_FOR_ALL, NOW)
            self.ledger.write(record(Phase.REQUESTED, target=OTHER, requested=NOW), 0)

    def begin(self, reading: LedgerReading, decision: RestartDecision) -> Begun:
        begun = RestartStarter(self.ledger, ONE_FOR_ALL, self.clock, "watcher").begin(
            TARGET,
            decision,
            reading,
            decide=self.decide,
            make_driver=lambda _: cast("LeasedDriver", SimpleNamespace(lease=Lease("watcher"))),
            summary="It is stuck.",
        )
        assert begun is not None
        return begun


def test_one_attempt_to_commit_takes_one_decision() -> None:
    scene = Scene()
    reading = read_ledger(scene.ledger)
    begun = scene.begin(reading, scene.decide(reading.view))
    assert len(scene.decisions) == 1
    assert begun.decision is scene.decisions[0]
    stored = written(scene.ledger, TARGET)
    assert (stored.record.phase, stored.record.lease.owner) == (Phase.REQUESTED, "watcher")


def test_what_was_decided_is_no_request_once_its_driver_has_ended() -> None:
    """It ended before it had looked at the node, and gave its lease back."""
    scene = Scene()
    reading = read_ledger(scene.ledger)
    scene.begin(reading, scene.decide(reading.view))
    stored = written(scene.ledger, TARGET)
    left = scene.ledger.write(replace(stored.record, lease=Lease()), stored.version).record
    assert under_way(left)
    assert not is_request(left)


def test_an_old_decision_is_made_again() -> None:
    scene = Scene()
    reading = read_ledger(scene.ledger)
    decision = scene.decide(reading.view)
    scene.clock.advance(121.0)  # by now the verdict is too old as well
    assert scene.begin(reading, decision).decision.blocked is Blocked.STALE
    assert scene.ledger.read(TARGET) is None


@pytest.mark.parametrize("moment", ["before the commit", "within the commit"])
def test_what_an_operator_begins_meanwhile_is_counted(moment: str) -> None:
    scene = Scene()
    reading = read_ledger(scene.ledger)
    decision = scene.decide(reading.view)
    write = scene.ledger.write_fleet

    def write_second(fleet: Fleet, version: int) -> StoredFleet:
        scene.ledger.write_fleet = write  # type: ignore[method-assign]
        scene.operator_begins()
        return write(fleet, version)

    if moment == "before the commit":
        scene.operator_begins()
    else:
        scene.ledger.write_fleet = write_second  # type: ignore[method-assign]
    begun = scene.begin(reading, decision)
    assert [one.blocked for one in scene.decisions] == [None, Blocked.FLEET_BUDGET]
    assert begun.decision.blocked is Blocked.FLEET_BUDGET
    assert scene.ledger.read(TARGET) is None


def test_a_claim_and_its_record_are_one_restart() -> None:
    ledger = MemoryLedger()
    claim_budget(ledger, TARGET, PolicySettings(), NOW)
    assert read_ledger(ledger).view.begun == [(TARGET.path, NOW)]
    for phase in (Phase.REQUESTED, Phase.STOPPED, Phase.DONE):
        before = ledger.read(TARGET)
        ledger.write(record(phase, requested=NOW, entered=NOW), before.version if before else 0)
        assert read_ledger(ledger).fleet.fleet.claims == (Claim(TARGET, NOW),)
        assert read_ledger(ledger).view.begun == [(TARGET.path, NOW)]


def test_a_claim_whose_restart_was_given_up_is_free_again() -> None:
    ledger = MemoryLedger()
    claim_budget(ledger, TARGET, PolicySettings(), NOW)
    ledger.write(withdrawn(record(Phase.REQUESTED, requested=NOW, entered=NOW), "It is well.", NOW + 60), 0)
    assert read_ledger(ledger).view.begun == []
    claim_budget(ledger, TARGET, PolicySettings(), NOW + 90)
    assert read_ledger(ledger).view.begun == [(TARGET.path, NOW + 90)]


def test_who_writes_all_the_time_holds_up_no_claim() -> None:
    ledger = MemoryLedger()
    write = ledger.write_fleet

    def contended(fleet: object, version: int) -> object:
        write(read_ledger(ledger).fleet.fleet, read_ledger(ledger).fleet.version)
        return write(fleet, version)  # type: ignore[arg-type]

    ledger.write_fleet = contended  # type: ignore[method-assign,assignment]
    claim_budget(ledger, TARGET, PolicySettings(), NOW)
    assert read_ledger(ledger).fleet.fleet.claims == ()
