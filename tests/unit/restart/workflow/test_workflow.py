"""The state machine of a restart, step by step: what it calls, and above all what it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpuwatch.model.restart import Phase, RestartRecord, Target
from tpuwatch.model.verdict import Action
from tpuwatch.restart.workflow.step import begin, ended, with_operation
from tpuwatch.restart.workflow.types import (
    ApiCall,
    CallAnswer,
    NodeObservation,
    Operation,
    PhaseLimits,
    PresentEvidence,
    Standing,
    Step,
    Within,
)
from tpuwatch.restart.workflow.workflow import advance, answered

LIMITS = PhaseLimits()
T = 1_800_000_000.0
REQUESTED = RestartRecord(
    Target("lab", "us-east5-a", "v5e-1"),
    Action.RESTART_NODE,
    Phase.REQUESTED,
    "operator",
    "stuck",
    (),
    "ann",
    requested=T,
)


def see(state: str, at: float = T, **more: object) -> NodeObservation:
    return replace(NodeObservation(at, state, health="HEALTHY" if state == "READY" else "", listed=True), **more)  # type: ignore[arg-type]


HOLDS = PresentEvidence(Standing.HOLDS, "It is node_stuck still.", Within.ANSWERS, "its own tpuwatch answers")


def step(
    record: RestartRecord, sight: NodeObservation, present: PresentEvidence = HOLDS, limits: PhaseLimits = LIMITS
) -> Step:
    return advance(record, sight, sight.at, limits, present)


def op(verb: str, *, done: bool = False, code: int = 0, name: str = "op-1", created: float = T) -> Operation:
    return Operation(name, verb, created, done, code, "It went wrong." if code else "")


def intent() -> RestartRecord:
    return step(REQUESTED, see("READY")).record


def refused_twice(record: RestartRecord, sight: NodeObservation, code: str = "FAILED_PRECONDITION") -> RestartRecord:
    """The node is shown READY, and the service does not start it, because it runs."""
    for seconds in (0, 20):
        move = step(record, replace(sight, at=sight.at + seconds))
        assert move.call is ApiCall.START
        record = answered(move.record, ApiCall.START, CallAnswer(code=code), sight.at + seconds, LIMITS)
    return record


def stopping() -> RestartRecord:
    return answered(intent(), ApiCall.STOP, CallAnswer(operation="op-1"), T, LIMITS)


def stopped(at: float = T + 60) -> RestartRecord:
    return step(stopping(), see("STOPPED", at)).record


def starting() -> RestartRecord:
    return answered(stopped(), ApiCall.START, CallAnswer(operation="op-2"), T + 61, LIMITS)


def started(at: float = T + 200) -> NodeObservation:
    """What is seen once the start is done."""
    return see("READY", at, operations=(op("start", done=True, name="op-2", created=T + 61),))


def verifying() -> RestartRecord:
    return step(starting(), started()).record


def test_a_restart_from_the_request_to_the_end() -> None:
    move = step(REQUESTED, see("READY"))
    assert (move.call, move.record.phase, move.record.entered) == (ApiCall.STOP, Phase.INTENT, T)
    record = answered(move.record, ApiCall.STOP, CallAnswer(operation="op-1"), T + 1, LIMITS)
    assert (record.phase, record.operation, record.stops) == (Phase.STOPPING, "op-1", 1)
    assert step(record, see("STOPPING", T + 5)).call is None
    move = step(record, see("STOPPED", T + 60))
    assert (move.call, move.record.phase) == (ApiCall.START, Phase.STOPPED)
    record = answered(move.record, ApiCall.START, CallAnswer(operation="op-2"), T + 61, LIMITS)
    assert (record.phase, record.operations) == (Phase.STARTING, ("op-1", "op-2"))
    assert step(record, see("READY", T + 199, operations=(op("start", name="op-2"),))).call is None  # it is not over
    record = step(record, started()).record
    assert record.phase is Phase.VERIFYING
    record = step(record, see("READY", T + 205)).record
    assert record.phase is Phase.VERIFYING
    record = step(record, see("READY", T + 265)).record
    assert (record.phase, record.open) == (Phase.DONE, False)
    assert [(one.phase, one.stops, one.began, one.ended) for one in record.history] == [(Phase.DONE, 1, T, T + 265)]
    assert "restarted in 4 min 25 s" in record.note


def test_several_hosts_are_reset_by_their_queued_resource() -> None:
    slice_of_four = {"hosts": 4, "queued_resource": "queue-1"}
    move = step(REQUESTED, see("READY", **slice_of_four))
    assert (move.call, move.record.phase, move.record.queued_resource) == (ApiCall.RESET, Phase.INTENT, "queue-1")
    record = answered(move.record, ApiCall.RESET, CallAnswer(operation="op-1"), T, LIMITS)
    assert (record.phase, record.stops) == (Phase.STARTING, 1)
    reset = op("reset")
    assert step(record, see("READY", T + 1, operations=(reset,), **slice_of_four)).record.phase is Phase.STARTING
    record = step(record, see("RESTARTING", T + 9, operations=(reset,), **slice_of_four)).record
    ended = replace(reset, done=True)
    assert step(record, see("READY", T + 99, operations=(ended,), **slice_of_four)).record.phase is Phase.VERIFYING
    failed = replace(ended, code=13, message="No.")
    move = step(record, see("READY", T + 99, operations=(failed,), **slice_of_four))
    assert (move.record.phase, move.call) == (Phase.FAILED, None)


@pytest.mark.parametrize(
    ("sight", "expected"),
    [
        (see("PREEMPTED"), "tpu-vm delete v5e-1 --zone=us-east5-a --project=lab"),
        (see("TERMINATED"), "tpu-vm delete v5e-1"),
        (see("UNKNOWN"), "repair"),
        (see("READY", spot=True), "spot"),
        (see("STOPPED", spot=True), "spot"),
        (see("", gone=True), "tpu-vm create v5e-1"),
        (see("READY", hosts=4), "no queued resource"),
        (see("STOPPED", hosts=4, queued_resource="q-1"), "queued-resources delete q-1 --force"),
    ],
)
def test_only_a_person_can_help(sight: NodeObservation, expected: str) -> None:
    move = step(REQUESTED, sight)
    assert (move.record.phase, move.call) == (Phase.NEEDS_OPERATOR, None)
    assert expected in move.record.note
    assert "Nothing was done" in move.record.note


@pytest.mark.parametrize("state", ["CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "STATE_17"])
@pytest.mark.parametrize("kind", [{"spot": True}, {"hosts": 4}, {"spot": True, "queued_resource": "q-1"}])
def test_nobody_is_told_to_delete_what_is_on_its_way(state: str, kind: dict[str, Any]) -> None:
    move = step(REQUESTED, see(state, **kind))
    assert (move.record.phase, move.call) == (Phase.NEEDS_OPERATOR, None)
    assert "tpu-vm describe v5e-1" in move.record.note
    assert "delete" not in move.record.note


def test_a_node_that_is_gone_may_be_on_its_way_back() -> None:
    note = step(REQUESTED, see("", gone=True)).record.note
    assert note.index("queued-resources list --zone=us-east5-a --project=lab") < note.index("tpu-vm create v5e-1")
    assert "delete" not in note


STATES = [
    "CREATING",
    "RESTARTING",
    "REIMAGING",
    "DELETING",
    "REPAIRING",
    "STOPPING",
    "STARTING",
    "HIDING",
    "HIDDEN",
    "UNHIDING",
    "STATE_17",
]


@pytest.mark.parametrize(
    "sight",
    [
        *(see(state) for state in STATES),
        see("READY", health="UNHEALTHY_MAINTENANCE"),
        see("READY", operations=(op("update"),)),
    ],
    ids=lambda sight: f"{sight.state} {sight.health}",
)
def test_nothing_is_called_but_waited_for_a_while(sight: NodeObservation) -> None:
    move = step(REQUESTED, sight)
    assert (move.record.phase, move.call) == (Phase.REQUESTED, None)
    assert move.again_in > 0
    assert "10 min" in move.sentence
    move = step(move.record, replace(sight, at=T + 600))
    assert (move.record.phase, move.call) == (Phase.FAILED, None)
    assert "Nothing was done" in move.record.note


@pytest.mark.parametrize("record", [REQUESTED, intent(), stopping(), stopped(), starting(), verifying()])
def test_a_look_that_failed_decides_nothing(record: RestartRecord) -> None:
    first = step(record, NodeObservation(T + 9999, "", fault="No connection."))
    assert (replace(first.record, unseen_since=0.0), first.call) == (record, None)
    assert "No connection." in first.sentence
    later = step(first.record, NodeObservation(T + 10_598, "", fault="No connection."))
    assert later.record == first.record
    at_last = step(first.record, NodeObservation(T + 10_599, "", fault="No connection."))
    assert "It is not known how node v5e-1 is, for longer than 10 min" in at_last.record.note
    assert "No connection." in at_last.record.note
    assert at_last.record.phase is record.phase


def test_once_the_node_is_seen_again_nothing_is_said_of_it_any_more() -> None:
    record = replace(stopping(), note="Something else.")
    blind = step(record, NodeObservation(T + 60, "")).record
    assert step(blind, see("STOPPING", T + 70)).record.note == "Something else."
    blind = step(blind, NodeObservation(T + 5_000, "")).record
    seen = step(blind, see("STOPPING", T + 5_001)).record
    assert (seen.unseen_since, seen.note.startswith("Node v5e-1 is being stopped, for longer")) == (0.0, True)
    assert step(replace(blind, entered=T + 5_000), see("STOPPING", T + 5_001)).record.note == ""


@pytest.mark.parametrize("record", [intent(), stopping(), stopped(), starting(), verifying()])
@pytest.mark.parametrize("state", STATES)
def test_a_node_that_was_touched_is_waited_for_without_end(record: RestartRecord, state: str) -> None:
    for at in (T + 300, T + 3_000, T + 300_000):
        move = step(record, see(state, at))
        assert move.call is None
        assert move.record.open
        record = move.record
    assert record.note or record.phase in (Phase.STOPPING, Phase.STARTING)  # it has just come there


def test_a_lost_stop_is_not_called_again_before_it_is_sure() -> None:
    record = answered(intent(), ApiCall.STOP, CallAnswer(), T + 1, LIMITS)
    assert record.phase is Phase.INTENT
    assert step(record, see("READY", T + 59)).call is None
    assert (
        step(record, see("READY", T + 60)).call is ApiCall.STOP
    )  # the list of operations is whole, and it is not there
    unlisted = step(record, see("READY", T + 60, listed=False, fault="It is slow."))
    assert (unlisted.record.phase, unlisted.call) == (Phase.INTENT, None)
    assert "It is slow." in unlisted.sentence
    assert step(unlisted.record, see("READY", T + 65)).call is ApiCall.STOP
    unlisted = step(record, see("READY", T + 600, listed=False))
    assert (unlisted.record.phase, unlisted.call) == (Phase.INTENT, ApiCall.START)  # it is refused if the node runs
    carried_out = step(record, see("READY", T + 60, operations=(op("stop", done=True),)))
    assert (carried_out.record.phase, carried_out.call) == (Phase.STOPPING, None)
    nameless = step(record, see("READY", T + 60, operations=(op("", done=True),)))
    assert nameless.call is None


def test_a_lost_stop_is_looked_for_as_long_by_the_clock_of_the_next_driver() -> None:
    record = replace(intent(), entered=T - 120, shown="")  # its clock is ahead, and it has just taken over
    record = step(record, see("READY", T)).record
    assert step(record, see("READY", T + 59)).call is None
    assert step(record, see("READY", T + 60)).call is ApiCall.STOP


def test_a_stop_that_was_accepted_vanishes_from_a_whole_list_only() -> None:
    record = step(stopping(), see("READY", T + 10)).record
    assert step(record, see("READY", T + 900, listed=False)).call is None
    for whole in (see("READY", T + 900), see("READY", T + 1_800, listed=False)):
        assert step(record, whole).call is ApiCall.START
        assert refused_twice(record, whole).phase is Phase.VERIFYING


def test_a_stop_or_a_reset_that_failed_is_no_restart_that_did_not_help() -> None:
    record = step(stopping(), see("READY", T + 10, operations=(op("stop", done=True, code=13),))).record
    ended = step(record, see("READY", T + 60, operations=(op("stop", done=True, code=13),))).record
    assert (ended.phase, ended.history[0].stops) == (Phase.FAILED, 0)
    sight = see("READY", hosts=4, queued_resource="q")
    record = answered(step(REQUESTED, sight).record, ApiCall.RESET, CallAnswer(operation="op-1"), T, LIMITS)
    failed = replace(sight, at=T + 60, operations=(op("reset", done=True, code=13),))
    ended = step(record, failed).record
    assert (ended.phase, ended.history[0].stops) == (Phase.FAILED, 0)


def test_what_was_stopped_is_not_believed_to_run_before_the_service_refuses_its_start() -> None:
    """The API shows what was before the stop, for minutes."""
    done = {"operations": (op("stop", done=True),)}
    record = step(stopping(), see("READY", T + 30, **done)).record
    assert (record.phase, record.down) == (Phase.STOPPED, T + 30)
    record = step(record, see("READY", T + 35)).record
    move = step(record, see("READY", T + 61))
    assert (move.call, move.record.phase) == (ApiCall.START, Phase.STOPPED)
    refused = answered(move.record, ApiCall.START, CallAnswer(code="RESOURCE_EXHAUSTED"), T + 62, LIMITS)
    assert step(refused, see("READY", T + 130)).call is ApiCall.START  # there is no capacity: it does not run
    accepted = answered(move.record, ApiCall.START, CallAnswer(operation="op-2"), T + 62, LIMITS)
    assert accepted.phase is Phase.STARTING
    old = see("READY", T + 70, operations=(op("start", name="op-2", created=T + 61),))
    assert step(accepted, old).record.phase is Phase.STARTING
    assert refused_twice(record, see("READY", T + 61)).phase is Phase.VERIFYING


def test_a_start_that_is_not_listed_is_called_again_before_the_node_is_believed_to_run() -> None:
    for code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT"):
        assert refused_twice(starting(), see("READY", T + 200), code).phase is Phase.VERIFYING
    assert refused_twice(starting(), see("READY", T + 200), "UNAVAILABLE").phase is Phase.STARTING
    failed = see("READY", T + 200, operations=(op("start", done=True, code=8, name="op-2"),))
    assert step(starting(), failed).record.phase is Phase.STOPPED


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", ""])
def test_that_a_second_stop_is_refused_is_no_proof_that_the_first_was_not_carried_out(code: str) -> None:
    record = answered(intent(), ApiCall.STOP, CallAnswer(), T + 1, LIMITS)
    move = step(record, see("READY", T + 60))
    assert (move.call, move.record.phase, move.record.stops) == (ApiCall.STOP, Phase.STOPPING, 0)
    record = answered(move.record, ApiCall.STOP, CallAnswer(code=code), T + 61, LIMITS)
    for one in (record, move.record):  # the driver may have died before it had an answer
        assert step(one, see("READY", T + 62)).record.phase is Phase.INTENT
        assert step(one, see("READY", T + 119)).call is None
        assert step(one, see("READY", T + 120)).call is ApiCall.STOP
        assert step(one, see("READY", T + 661)).call is ApiCall.START  # nothing is stopped after the end of the wait


def test_a_node_that_was_created_again_is_not_started() -> None:
    record = step(stopping(), see("READY", T + 30, operations=(op("stop", done=True),))).record
    move = step(record, see("READY", T + 100, created=T + 50))
    assert (move.call, move.record.phase) == (None, Phase.CANCELLED)


@pytest.mark.parametrize("known", [True, False])
def test_the_last_restart_s_stop_is_not_taken_for_this_one_s(known: bool) -> None:
    """It is asked for again within the slack of the clocks, and the answer is lost."""
    last = op("stop", done=True, name="op-1", created=T - 90)
    before = ended(replace(starting(), phase=Phase.VERIFYING), Phase.FAILED, "It is as bad.", T - 1)
    now = begin(REQUESTED.target, before, Action.RESTART_NODE, cause="operator", reason="", actor="ann", now=T)
    assert (now.phase, now.history, now.foreign) == (Phase.REQUESTED, before.history, ("op-1", "op-2"))
    record = step(now if known else replace(now, foreign=()), see("READY", T, operations=(last,))).record
    assert "op-1" in record.foreign  # it was seen before the call
    assert step(record, see("READY", T + 59, operations=(last,))).record.phase is Phase.INTENT
    assert step(record, see("READY", T + 60, operations=(last,))).call is ApiCall.STOP
    ours = op("stop", name="op-3", created=T)
    assert step(record, see("READY", T + 9, operations=(ours, last))).record.operation == "op-3"
    unlisted = step(replace(now, foreign=()), see("READY", T, listed=False)).record
    assert step(unlisted, see("READY", T + 9, operations=(last,))).record.phase is Phase.STOPPING  # what it is all for


def test_names_of_operations_are_bounded_and_the_newest_are_kept() -> None:
    record = REQUESTED
    for number in range(150):
        record = replace(record, **with_operation(record, f"op-{number}"))
    assert (len(record.operations), record.operations[-1], record.operations[0]) == (100, "op-149", "op-50")
    assert begin(
        record.target, record, Action.RESTART_NODE, cause="operator", reason="", actor="ann", now=T
    ).foreign == (record.operations)


@pytest.mark.parametrize("record", [intent(), stopping(), stopped(), starting(), verifying()])
def test_nothing_is_begun_over_what_is_to_be_finished(record: RestartRecord) -> None:
    with pytest.raises(ValueError, match="under way"):
        begin(record.target, record, Action.RESTART_NODE, cause="operator", reason="", actor="ann", now=T)


@pytest.mark.parametrize("state", ["STOPPING", "STOPPED", "STARTING"])
def test_a_lost_stop_that_shows_is_adopted(state: str) -> None:
    move = step(intent(), see(state, T + 9, operations=(op("stop"),)))
    assert (move.record.phase, move.record.operation, move.record.stops) == (Phase.STOPPING, "op-1", 1)
    assert step(move.record, see("STOPPED", T + 70)).call is ApiCall.START


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED", "ABORTED"])
def test_codes_that_do_not_report_whether_it_was_carried_out(code: str) -> None:
    assert answered(intent(), ApiCall.STOP, CallAnswer(code=code), T, LIMITS) == intent()


def test_a_refused_stop_is_tried_again_later_for_a_while() -> None:
    refusal = CallAnswer(code="RESOURCE_EXHAUSTED", message="Quota.", retry_after=30.0)
    record = answered(intent(), ApiCall.STOP, refusal, T, LIMITS)
    assert (record.phase, record.not_before) == (Phase.REQUESTED, T + 30)
    assert step(record, see("READY", T + 29)).call is None
    assert step(record, see("READY", T + 30)).call is ApiCall.STOP
    assert step(record, see("READY", T + 600)).record.phase is Phase.FAILED


def test_a_stop_that_is_not_permitted_ends_it() -> None:
    record = answered(intent(), ApiCall.STOP, CallAnswer(code="PERMISSION_DENIED", message="No role."), T, LIMITS)
    assert (record.phase, len(record.history)) == (Phase.FAILED, 1)
    assert record.note == "No role. Nothing was done: node v5e-1 is as it was."


def test_a_failed_stop_is_not_called_again() -> None:
    failed = (op("stop", done=True, code=13),)
    assert step(stopping(), see("READY", T + 5, operations=failed)).record.open
    move = step(stopping(), see("READY", T + 60, operations=failed))
    assert (move.record.phase, move.call) == (Phase.FAILED, None)


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "FAILED_PRECONDITION", "UNAVAILABLE", ""])
def test_a_start_is_tried_for_ever_and_says_so(code: str) -> None:
    record, at = stopped(), T + 60
    for _ in range(40):
        record = answered(record, ApiCall.START, CallAnswer(code=code, message="No capacity."), at, LIMITS)
        assert record.phase is Phase.STOPPED
        assert step(record, see("STOPPED", record.not_before - 1)).call is None
        assert 10 <= record.not_before - at <= LIMITS.max_retry_seconds
        at = record.not_before
        move = step(record, see("STOPPED", at))
        assert move.call is ApiCall.START
        record = move.record
    assert "is STOPPED and does not start" in record.note
    assert "tpu-vm start v5e-1 --zone=us-east5-a --project=lab" in record.note


def test_a_start_that_fails_for_capacity_is_called_again() -> None:
    record = starting()
    failed = (op("start", done=True, code=8, name="op-2"), op("stop", done=True))
    move = step(record, see("STOPPED", T + 90, operations=failed))
    assert (move.record.phase, move.record.tries, move.record.not_before) == (Phase.STOPPED, 1, T + 100)
    assert step(move.record, see("STOPPED", T + 100, operations=failed)).call is ApiCall.START


def test_an_old_look_at_a_stopped_node_starts_nothing_twice() -> None:
    move = step(starting(), see("STOPPED", T + 70))
    assert (move.record.phase, move.call) == (Phase.STARTING, None)


def test_a_start_that_came_to_nothing_is_called_again() -> None:
    record = step(starting(), see("STOPPED", T + 70)).record
    move = step(record, see("STOPPED", T + 121))
    assert move.record.phase is Phase.STOPPED
    assert step(move.record, see("STOPPED", move.record.not_before)).call is ApiCall.START


def test_a_node_that_is_stopped_already_is_started() -> None:
    move = step(REQUESTED, see("STOPPED"))
    assert (move.call, move.record.phase, move.record.stops) == (ApiCall.START, Phase.STOPPED, 0)


def test_a_node_that_is_stopped_again_while_it_is_verified() -> None:
    record = step(verifying(), see("STOPPED", T + 210)).record
    assert record.phase is Phase.VERIFYING  # that may be an old look
    ours = (op("start", done=True, name="op-2", created=T + 61), op("stop", done=True))
    move = step(record, see("STOPPED", T + 240, operations=ours))
    assert move.record.phase is Phase.STOPPED
    assert step(move.record, see("STOPPED", T + 241)).call is ApiCall.START
    theirs = (op("stop", done=True, name="op-9", created=T + 202), *ours)
    move = step(record, see("STOPPED", T + 240, operations=theirs))
    assert (move.record.phase, move.call) == (Phase.NEEDS_OPERATOR, None)
    assert "another client stopped it" in move.record.note
    assert "tpu-vm start v5e-1" in move.record.note


@pytest.mark.parametrize("record", [intent(), stopping(), stopped(), starting(), verifying()])
@pytest.mark.parametrize("sight", [see("PREEMPTED"), see("", gone=True)], ids=["preempted", "gone"])
def test_a_node_that_is_lost_in_the_middle(record: RestartRecord, sight: NodeObservation) -> None:
    move = step(record, replace(sight, at=T + 300))
    assert move.record.open
    move = step(move.record, replace(sight, at=T + 330))
    assert (move.record.phase, move.call) == (Phase.NEEDS_OPERATOR, None)
    assert "tpu-vm create v5e-1" in move.record.note


STUCK = PresentEvidence(within=Within.STUCK, heard="its own tpuwatch reports runtime_stuck: It hangs")


@pytest.mark.parametrize(
    ("health", "present", "symptom"),
    [
        ("UNHEALTHY_TENSORFLOW", HOLDS, "its health is UNHEALTHY_TENSORFLOW"),
        ("HEALTHY", STUCK, "its own tpuwatch reports runtime_stuck: It hangs"),
    ],
)
def test_a_node_that_does_not_get_well(health: str, present: PresentEvidence, symptom: str) -> None:
    move = step(verifying(), see("READY", T + 300, health=health), present)
    assert move.record.phase is Phase.VERIFYING
    move = step(move.record, see("READY", T + 1_100, health=health), present)
    assert (move.record.phase, move.call) == (Phase.FAILED, None)
    assert f"{symptom}. Another restart will hardly help" in move.record.note


SILENT = PresentEvidence(within=Within.SILENT, heard="its own tpuwatch has not answered since")


def test_the_apis_word_alone_is_never_done() -> None:
    record = step(verifying(), see("READY", T + 205), PresentEvidence()).record
    record = step(record, see("READY", T + 300), PresentEvidence()).record
    assert record.phase is Phase.NOT_VERIFIED
    assert "that it works is not verified" in record.note
    assert record.history[0].phase is Phase.NOT_VERIFIED


def test_who_is_asked_has_time_to_answer() -> None:
    record = step(verifying(), see("READY", T + 205), SILENT).record
    move = step(record, see("READY", T + 300), SILENT)
    assert move.record.phase is Phase.VERIFYING
    assert "its own tpuwatch has not answered since; 13 min 20 s are left for that" in move.sentence
    answers = step(move.record, see("READY", T + 400))
    assert answers.record.phase is Phase.DONE
    assert answers.record.note.endswith(": its own tpuwatch answers.")
    assert step(move.record, see("READY", T + 1_101), SILENT).record.phase is Phase.NOT_VERIFIED


def test_a_node_that_was_created_again_in_the_middle_is_not_called_restarted() -> None:
    record = step(verifying(), see("READY", T + 205, created=T + 150)).record
    assert (record.phase, record.history) == (Phase.CANCELLED, ())
    assert "created v5e-1 again" in record.note
    assert step(verifying(), see("READY", T + 205, created=T - 9_000)).record.open


def test_it_must_stay_well() -> None:
    record = step(verifying(), see("READY", T + 205)).record
    record = step(record, see("READY", T + 250, health="TIMEOUT")).record
    record = step(record, see("READY", T + 270)).record
    assert step(record, see("READY", T + 300)).record.phase is Phase.VERIFYING
    assert step(record, see("READY", T + 330)).record.phase is Phase.DONE


def test_what_is_not_proven_is_not_called_done() -> None:
    record = step(stopping(), see("READY", T + 10)).record
    record = refused_twice(record, see("READY", T + 900))
    record = step(record, see("READY", T + 925)).record
    record = step(record, see("READY", T + 990)).record
    assert record.phase is Phase.FAILED
    assert "it is not known whether it was restarted" in record.note


def test_times_of_a_clock_that_was_ahead_do_not_hold_it_up() -> None:
    record = replace(intent(), entered=T + 86_400, began=T + 86_400, shown_since=T + 86_400)
    record = step(record, see("READY", T + 1)).record
    assert (record.entered, record.began, record.shown_since) == (T + 1, T + 1, T + 1)


def test_a_record_that_has_ended_does_not_move() -> None:
    record = replace(REQUESTED, phase=Phase.DONE, note="It is done.")
    assert step(record, see("STOPPED")) == Step(record, sentence="It is done.")


def test_what_is_said_of_the_tries_and_of_the_wait_is_what_is_done() -> None:
    refused = CallAnswer(code="PERMISSION_DENIED", message="No.")
    record = answered(stopped(), ApiCall.START, refused, T + 61, LIMITS)
    assert "It was tried 1 time, and is tried on without end." in record.note
    assert (record.tries, record.failure) == (1, "No.")
    short = replace(LIMITS, settle_seconds=1.0)
    move = step(starting(), started(), limits=short)
    assert "It must stay well for 30 s" in move.sentence
    move = step(move.record, see("READY", T + 205), limits=short)
    assert step(move.record, see("READY", T + 234), limits=short).record.open
    move = step(move.record, see("READY", T + 235), limits=short)
    assert "has been well for 30 s" in move.record.note
