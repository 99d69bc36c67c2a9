"""The phases before the stop: what was done meanwhile is not done again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.workflow.test_workflow import LIMITS, REQUESTED, T, intent, op, see, step
from tpuwatch.model.restart import Phase
from tpuwatch.model.verdict import Action
from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, Operation
from tpuwatch.restart.workflow.workflow import answered


@pytest.mark.parametrize("verb", ["start", "reset"])
def test_what_somebody_else_has_restarted_since_is_not_stopped(verb: str) -> None:
    record = step(REQUESTED, see("STARTING", T + 1, operations=(op(verb, created=T + 1),))).record
    move = step(record, see("READY", T + 60, operations=(op(verb, done=True, created=T + 1),)))
    assert (move.call, move.record.phase, move.record.down) == (None, Phase.VERIFYING, T + 60)
    assert "Another client has restarted v5e-1" in move.sentence
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
    assert move.call is ApiCall.STOP


def test_a_lost_stop_of_a_node_that_was_recreated_is_not_called_again() -> None:
    record = step(intent(), see("READY", T + 30)).record
    move = step(record, see("READY", T + 100, operations=(op("create", done=True, created=T + 40),)))
    assert (move.call, move.record.phase) == (None, Phase.CANCELLED)


def test_a_node_that_is_younger_than_the_request_is_another_one() -> None:
    assert step(REQUESTED, see("READY", T + 60, created=T)).call is ApiCall.STOP
    move = step(REQUESTED, see("READY", T + 60, created=T + 1))
    assert (move.call, move.record.phase) == (None, Phase.CANCELLED)
    assert "it is another node now" in move.record.note
    assert move.record.history == ()  # it is not called restarted


def test_a_node_whose_hosts_are_not_shown_is_reset_all_the_same() -> None:
    record = replace(REQUESTED, action=Action.RESET_QUEUED_RESOURCE)
    move = step(record, see("READY", hosts=1, queued_resource="q"))
    assert move.call is ApiCall.RESET
    move = step(move.record, see("STARTING", T + 5, hosts=1, queued_resource="q"))
    assert move.record.phase is Phase.STARTING


WANTED_BY_A_DAEMON = replace(REQUESTED, signals=("cloud", "peer"), entered=T)


@pytest.mark.parametrize("state", ["STOPPING", "STOPPED"])
def test_what_somebody_else_stops_before_anything_was_called_is_left_to_them(state: str) -> None:
    move = step(WANTED_BY_A_DAEMON, see(state, T + 1))
    assert (move.call, move.record.phase) == (None, Phase.REQUESTED)  # that may be an old look
    move = step(move.record, see(state, T + 31))
    assert (move.call, move.record.phase, move.record.stops) == (None, Phase.NEEDS_OPERATOR, 0)
    assert "another client stopped it before anything was done about it" in move.record.note
    assert "tpu-vm start v5e-1" in move.record.note


def test_a_node_that_runs_again_meanwhile_is_not_left() -> None:
    record = step(WANTED_BY_A_DAEMON, see("STOPPED", T + 1)).record
    assert step(record, see("READY", T + 31)).call is ApiCall.STOP


def test_what_an_operator_wants_is_started_whoever_stopped_it() -> None:
    assert step(REQUESTED, see("STOPPED", T + 31)).call is ApiCall.START


@pytest.mark.parametrize("answer", [CallAnswer(code="RESOURCE_EXHAUSTED"), CallAnswer()], ids=["refused", "lost"])
def test_once_a_stop_was_called_for_it_a_node_is_never_left_stopped(answer: CallAnswer) -> None:
    record = step(WANTED_BY_A_DAEMON, see("READY", T + 1)).record
    record = answered(record, ApiCall.STOP, answer, T + 2, LIMITS)
    record = step(record, see("READY", T + 3)).record
    health = {"health": "UNHEALTHY_MAINTENANCE"}  # nothing is called now
    record = step(record, see("READY", T + 70, **health)).record
    assert record.phase is (Phase.REQUESTED if answer.code else Phase.INTENT)
    record = step(record, see("STOPPING", T + 80)).record
    record = step(record, see("STOPPING", T + 120)).record
    assert step(record, see("STOPPED", T + 130)).call is ApiCall.START


@pytest.mark.parametrize("behind", [7200.0, 600.0])
def test_by_a_clock_that_is_behind_nothing_old_counts_as_a_restart_since(behind: float) -> None:
    """The node was made, and started, a few minutes before the restart was asked for, by the API's clock."""
    before = T + behind - 300
    move = step(REQUESTED, see("READY", T + 1, created=before, operations=(op("start", done=True, created=before),)))
    assert move.call is ApiCall.STOP
