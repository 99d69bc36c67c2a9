"""The phases before the stop: what was done meanwhile is not done again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.restart.machine.test_machine import REQUESTED, T, intent, op, see, step
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.machine.machine import Call
from tpuwatch.restart.machine.sights import Operation
from tpuwatch.restart.record import Phase


@pytest.mark.parametrize("verb", ["start", "reset", "create"])
def test_what_somebody_else_has_restarted_since_is_not_stopped(verb: str) -> None:
    record = step(REQUESTED, see("STARTING", T + 1, operations=(op(verb, created=T + 1),))).record
    move = step(record, see("READY", T + 60, operations=(op(verb, done=True, created=T + 1),)))
    assert (move.call, move.record.phase, move.record.down) == (None, Phase.VERIFYING, T + 60)
    assert "Somebody else has restarted v5e-1" in move.sentence
    move = step(move.record, see("READY", T + 61))
    move = step(move.record, see("READY", T + 130))
    assert (move.record.phase, move.record.stops) == (Phase.DONE, 0)


@pytest.mark.parametrize(
    "operation",
    [
        op("start", done=True, created=T - 1),
        op("start", done=True, code=8, created=T + 1),
        op("stop", done=True, code=8, created=T + 1),
        op("update", done=True, created=T + 1),
        op("start", done=True, created=T + 1, name="known"),
    ],
    ids=["before", "failed", "stop", "update", "known"],
)
def test_what_is_no_restart_since_is_no_reason_against_one(operation: Operation) -> None:
    move = step(replace(REQUESTED, foreign=("known",)), see("READY", T + 60, operations=(operation,)))
    assert move.call is Call.STOP


def test_a_lost_stop_of_a_node_that_was_made_anew_is_not_called_again() -> None:
    record = step(intent(), see("READY", T + 30)).record
    move = step(record, see("READY", T + 100, operations=(op("create", done=True, created=T + 40),)))
    assert (move.call, move.record.phase) == (None, Phase.VERIFYING)


def test_a_node_that_is_younger_than_the_request_is_another_one() -> None:
    assert step(REQUESTED, see("READY", T + 60, created=T)).call is Call.STOP
    assert step(REQUESTED, see("READY", T + 60, created=T + 1)).record.phase is Phase.VERIFYING


def test_a_node_whose_hosts_are_not_shown_is_reset_all_the_same() -> None:
    record = replace(REQUESTED, rung=Rung.RESET_QUEUED_RESOURCE)
    move = step(record, see("READY", hosts=1, queued_resource="q"))
    assert move.call is Call.RESET
    move = step(move.record, see("STARTING", T + 5, hosts=1, queued_resource="q"))
    assert move.record.phase is Phase.STARTING
