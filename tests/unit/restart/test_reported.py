"""What the daemon's document says of restarts is what the ledger says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.restart.records import NOW, full_record, record
from tests.unit.web.samples import received
from tpuwatch.core import TpuwatchError
from tpuwatch.model.documents.restarts import RestartsDocument
from tpuwatch.model.restart import Breaker, Lease, Phase
from tpuwatch.model.status import RestartBudget, RestartsStatus, ledger_down
from tpuwatch.restart import reported_history, reported_status
from tpuwatch.restart.operator.restarts import past_restarts
from tpuwatch.web.routes import restarts_document

BUDGET = RestartBudget(3, 10, 3600.0, 86_400.0, "It would open.")
RECORDS = [
    replace(full_record("a"), reason="It hung."),
    record("b", phase=Phase.NEEDS_OPERATOR, entered=NOW + 5, began=NOW + 1, note="Look at it."),
    record("c", phase=Phase.REQUESTED, signals=("cloud",), sources=("cloud",)),
]


def document(**changes: Any) -> RestartsDocument:
    status = RestartsStatus(True, NOW, breaker=Breaker(NOW - 9, "Three failed."), budget=BUDGET, records=RECORDS)
    return received(restarts_document(replace(status, **changes), NOW + 10, 100))


def test_it_is_what_the_ledger_says() -> None:
    found = reported_status(document(problem="the disk is full"), (), NOW + 10)
    assert (found.breaker.opened, found.breaker.reason, found.budget) == (NOW - 9, "Three failed.", BUDGET)
    assert found.ledger_problem == ledger_down("the disk is full")
    states = {state.record.target.node: state for state in found.restarts}
    assert states["a"].driver == "process 77 on vm-1"
    for one in RECORDS:
        shown = states[one.target.node].record
        names = "target action phase cause reason evidence actor requested entered operations tries failure stops note"
        for name in names.split():
            assert getattr(shown, name) == getattr(one, name), name
    assert (states["b"].needs_operator, states["c"].is_request, states["c"].is_alone) == (True, True, False)


def test_an_operator_is_needed_no_more_after_the_window() -> None:
    states = reported_status(document(), (), NOW + 86_400 + 6).restarts
    assert not any(state.needs_operator for state in states)


def test_history_is_that_of_the_ledger() -> None:
    assert reported_history(document(), ()) == past_restarts(RECORDS, ())
    assert [one.node for one in reported_history(document(), [RECORDS[1].target])] == ["b"]


def test_a_driver_that_has_ended_is_none() -> None:
    gone = replace(RECORDS[0], lease=Lease("here/boot/1/2/x"))
    (state,) = reported_status(document(records=[gone]), (), NOW).restarts
    assert (state.is_driven, state.is_alone) == (True, False)  # of another machine: it may be alive
    shown = document(records=[gone])
    ended = replace(shown.restarts[0], driver_ended=True)
    (state,) = reported_status(replace(shown, restarts=(ended,)), (), NOW).restarts
    assert (state.is_driven, state.is_alone) == (False, True)


def test_what_the_daemon_has_not_read_is_not_called_empty() -> None:
    with pytest.raises(
        TpuwatchError, match=r"not read the ledger yet\. The ledger of restarts is DOWN: the disk is full\."
    ):
        reported_status(document(budget=None, problem="the disk is full"), (), NOW)
