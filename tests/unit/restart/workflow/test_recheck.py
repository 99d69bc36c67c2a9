"""What a policy decided on is judged again before each call that takes the node down, and after each wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.workflow.test_workflow import HOLDS, LIMITS, REQUESTED, T, op, see, step
from tpuwatch.model.restart import Grounds, Phase, RestartRecord
from tpuwatch.model.signals import CloudNode
from tpuwatch.model.verdict import Action
from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation, PresentEvidence, Standing
from tpuwatch.restart.workflow.workflow import answered, may_call, resumed

DECIDED = replace(
    REQUESTED,
    cause="node_stuck",
    reason="The cloud and its own tpuwatch call it stuck.",
    signals=("cloud", "peer"),
    grounds=Grounds("node_stuck", Action.RESTART_NODE, T - 5),
    entered=T,
)
WELL = PresentEvidence(Standing.RECOVERED, "It is idle now: No job runs.")
OTHER = PresentEvidence(Standing.LAPSED, "It is runtime_stuck now: The runtime does not answer.")
UNSEEN = PresentEvidence(Standing.UNKNOWN, "The latest verdict on it is too old.")
ILL = replace(HOLDS, ill=True)
REFUSALS = [
    CallAnswer(code="RESOURCE_EXHAUSTED", message="Quota."),
    CallAnswer(code="FAILED_PRECONDITION", message="Not now."),
]
LOST = CallAnswer(message="The answer was UNAVAILABLE.")


def refused(answer: CallAnswer) -> tuple[RestartRecord, NodeObservation]:
    """The first stop came to nothing; what the API shows once it may be called again."""
    record = step(DECIDED, see("READY", T + 1, health="UNHEALTHY_TENSORFLOW")).record
    record = answered(record, ApiCall.STOP, answer, T + 2, LIMITS)
    record = step(record, see("READY", T + 3)).record
    return record, see("READY", T + 65)


@pytest.mark.parametrize("answer", REFUSALS, ids=["quota", "precondition"])
@pytest.mark.parametrize("present", [WELL, OTHER], ids=["well", "another verdict"])
def test_a_node_that_is_not_stuck_any_more_is_not_stopped(answer: CallAnswer, present: PresentEvidence) -> None:
    record, sight = refused(answer)
    assert step(record, sight).call is ApiCall.STOP  # it would be
    move = step(record, sight, present)
    assert (move.call, move.record.phase, move.record.action) == (None, Phase.CANCELLED, Action.NONE)
    assert move.record.history == ()  # it counts as no restart
    assert "It was node_stuck when that was decided (The cloud and its own tpuwatch call it stuck)." in move.record.note
    assert present.sentence in move.record.note


@pytest.mark.parametrize("present", [WELL, OTHER, UNSEEN], ids=["well", "another verdict", "unseen"])
def test_what_may_have_been_stopped_is_given_up_only_when_the_service_says_that_it_runs(
    present: PresentEvidence,
) -> None:
    """What the API shows may be old, the list of operations too."""
    record, _ = refused(LOST)
    for seconds in (65, 300, 599):
        move = step(record, see("READY", T + seconds), present)
        assert (move.call, move.record.phase) == (None, Phase.INTENT)
    record = move.record
    for seconds in (605, 620):
        move = step(record, see("READY", T + seconds), present)
        assert (move.call, move.record.phase) == (ApiCall.START, Phase.INTENT)
        record = answered(move.record, ApiCall.START, CallAnswer(code="FAILED_PRECONDITION"), T + seconds, LIMITS)
    assert record.phase is Phase.REQUESTED
    move = step(record, see("READY", T + 630), present)
    assert (move.call, move.record.phase, move.record.history) == (None, Phase.CANCELLED, ())


def test_it_is_judged_while_a_refused_call_is_waited_for() -> None:
    record = answered(step(DECIDED, see("READY", T + 1)).record, ApiCall.STOP, REFUSALS[0], T + 2, LIMITS)
    assert step(record, see("READY", T + 3), WELL).record.phase is Phase.CANCELLED


@pytest.mark.parametrize("answer", REFUSALS, ids=["quota", "precondition"])
def test_what_cannot_be_judged_is_waited_for_and_given_up_in_the_end(answer: CallAnswer) -> None:
    record, sight = refused(answer)
    move = step(record, sight, UNSEEN)
    assert (move.call, move.record.phase) == (None, Phase.REQUESTED)
    assert UNSEEN.sentence in move.sentence
    assert step(move.record, see("READY", T + 70)).call is ApiCall.STOP
    move = step(move.record, see("READY", T + 601), UNSEEN)
    assert (move.call, move.record.phase) == (None, Phase.CANCELLED)
    assert "could not be judged whether it is still node_stuck" in move.record.note


def test_a_queued_resource_is_not_reset_either() -> None:
    record = replace(DECIDED, action=Action.RESET_QUEUED_RESOURCE)
    sight = see("READY", T + 1, hosts=4, queued_resource="q")
    assert step(record, sight).call is ApiCall.RESET
    assert step(record, sight, WELL).record.phase is Phase.CANCELLED
    assert step(record, sight, UNSEEN).call is None


@pytest.mark.parametrize("present", [WELL, OTHER, UNSEEN, HOLDS])
@pytest.mark.parametrize("state", ["STOPPED", "STOPPING"])
def test_once_the_node_goes_down_nothing_stops_the_start(present: PresentEvidence, state: str) -> None:
    record, _ = refused(LOST)
    record = step(record, see("STOPPING", T + 66), present).record
    assert record.phase is Phase.STOPPING
    record = step(record, see(state, T + 67), present).record
    move = step(record, see("STOPPED", T + 130), present)
    assert move.call is ApiCall.START
    record = answered(move.record, ApiCall.START, CallAnswer(code="RESOURCE_EXHAUSTED"), T + 131, LIMITS)
    assert step(record, see("STOPPED", T + 200), present).call is ApiCall.START


def test_what_is_done_to_the_node_meanwhile_is_waited_for() -> None:
    record, _ = refused(REFUSALS[0])
    running = see("READY", T + 65, operations=(op("stop", name="theirs", created=T + 60),))
    assert step(record, running, WELL).record.phase is Phase.REQUESTED


@pytest.mark.parametrize("present", [WELL, OTHER, UNSEEN])
def test_an_operators_word_stands(present: PresentEvidence) -> None:
    assert step(REQUESTED, see("READY"), present).call is ApiCall.STOP


def test_an_operator_hears_that_the_node_has_become_well_before_it_is_stopped() -> None:
    record = replace(REQUESTED, grounds=Grounds("node_stuck", at=T))
    move = step(record, see("READY"), WELL)
    assert (move.call, move.record.phase) == (None, Phase.REQUESTED)
    assert "has become well since this was requested: It is idle now" in move.sentence
    assert move.record.note  # a note is shown by itself
    move = step(move.record, see("READY", T + 5), WELL)
    assert move.call is ApiCall.STOP
    assert step(replace(record, grounds=Grounds("healthy", at=T)), see("READY"), WELL).call is ApiCall.STOP


def test_right_before_the_call_the_evidence_counts_once_more() -> None:
    record = step(DECIDED, see("READY", T + 1)).record
    shown = see("READY", T + 1)
    for call in (ApiCall.STOP, ApiCall.RESET):
        assert may_call(record, call, shown, HOLDS)
        for present in (WELL, OTHER, UNSEEN, PresentEvidence(), ILL):
            assert not may_call(record, call, shown, present)
            assert may_call(replace(record, signals=()), call, shown, present)
        assert may_call(record, call, replace(shown, health="TIMEOUT"), ILL)
        for other in (see("STOPPING"), see(""), replace(shown, health="UNHEALTHY_MAINTENANCE")):
            assert not may_call(record, call, other, HOLDS)
            assert not may_call(replace(record, signals=()), call, other, HOLDS)
    assert may_call(record, ApiCall.START, see("STOPPED"), UNSEEN)


@pytest.mark.parametrize("health", ["HEALTHY", "", "HEALTH_9"])
def test_what_the_api_does_not_call_ill_any_more_is_not_stopped(health: str) -> None:
    sight = see("READY", T + 1, health=health)
    move = step(DECIDED, sight, ILL)
    assert (move.call, move.record.phase, move.record.history) == (None, Phase.CANCELLED, ())
    assert step(DECIDED, sight).call is ApiCall.STOP  # it was never called ill: others say that it is stuck
    assert step(DECIDED, replace(sight, health="UNHEALTHY_TENSORFLOW"), ILL).call is ApiCall.STOP


def test_an_operator_is_told_once_that_the_api_calls_it_healthy_now() -> None:
    asked = replace(DECIDED, signals=(), sources=("cloud",))
    unseen = PresentEvidence(Standing.UNKNOWN, "No daemon on this machine says how it is.")
    told = step(asked, see("READY", T + 1), unseen)
    assert (told.call, told.record.phase, told.record.note != "") == (None, Phase.REQUESTED, True)
    assert step(told.record, see("READY", T + 6), unseen).call is ApiCall.STOP
    assert step(asked, see("READY", T + 1, health="TIMEOUT"), unseen).call is ApiCall.STOP
    assert step(replace(asked, sources=("kernel",)), see("READY", T + 1), unseen).call is ApiCall.STOP


def beside(health: str = "HEALTHY") -> CloudNode:
    return CloudNode("lab", "us-east5-a", "v5e-2", "READY", health)


def test_a_reset_that_would_restart_a_node_that_is_not_known_to_be_bad_is_not_called() -> None:
    decided = replace(DECIDED, action=Action.RESET_QUEUED_RESOURCE)
    sight = see("READY", T + 1, hosts=4, queued_resource="q", health="TIMEOUT", beside=(beside(),))
    move = step(decided, sight)
    assert (move.call, move.record.phase) == (None, Phase.CANCELLED)
    assert "v5e-2 (READY, HEALTHY)" in move.record.note
    stopped = replace(beside(), state="STOPPED")
    assert step(decided, replace(sight, beside=(beside("TIMEOUT"), stopped))).call is None
    assert step(decided, replace(sight, beside=(beside("TIMEOUT"),))).call is ApiCall.RESET
    assert step(decided, sight, replace(HOLDS, stuck_beside=frozenset({"v5e-2"}))).call is ApiCall.RESET
    assert step(replace(decided, signals=()), sight).call is ApiCall.RESET  # an operator has confirmed it


def test_while_the_other_nodes_cannot_be_listed_nothing_is_reset() -> None:
    decided = replace(DECIDED, action=Action.RESET_QUEUED_RESOURCE)
    sight = see("READY", T + 1, hosts=4, queued_resource="q", health="TIMEOUT", beside=None)
    waits = step(decided, sight)
    assert (waits.call, waits.record.phase) == (None, Phase.REQUESTED)
    late = step(waits.record, replace(sight, at=T + 2 + LIMITS.wait_seconds))
    assert (late.call, late.record.phase) == (None, Phase.CANCELLED)


def test_a_refused_start_is_called_again_at_once_by_the_next_driver() -> None:
    record = replace(DECIDED, phase=Phase.STOPPED, entered=T, stops=1, tries=9, not_before=T + 600)
    assert step(record, see("STOPPED", T + 1)).call is None
    assert step(resumed(record, T + 1, LIMITS, by_operator=False), see("STOPPED", T + 1)).call is ApiCall.START
    # What keeps a start from overtaking a stop that may still be on its way stays.
    doubt = replace(DECIDED, phase=Phase.STOPPING, entered=T, stops=1, not_before=T + 60)
    assert step(resumed(doubt, T + 1, LIMITS, by_operator=False), see("STOPPED", T + 1)).call is None


HOUR, MONTHS = 3600.0, 90 * 86_400.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR, MONTHS, -MONTHS])
def test_a_clock_that_jumped_ends_no_wait_and_prolongs_none(jump: float) -> None:
    """A driver whose clock is otherwise takes over while a stop of ours may be on its way, or after a refusal."""
    now, doubt = T + 1 + jump, LIMITS.doubt_seconds
    called = replace(REQUESTED, phase=Phase.INTENT, entered=T)
    found = step(resumed(called, now, LIMITS, by_operator=False), see("STOPPED", now)).record
    assert found.phase is Phase.STOPPING
    accepted = replace(called, phase=Phase.STOPPING, stops=1, not_before=T + doubt)
    for record in (found, resumed(accepted, now, LIMITS, by_operator=False)):
        assert step(record, see("STOPPED", now + doubt - 1)).call is None
        assert step(record, see("STOPPED", now + doubt)).call is ApiCall.START
    refused = replace(REQUESTED, tries=1, entered=T, not_before=T + 40)
    taken = resumed(refused, now, LIMITS, by_operator=False)
    assert taken.not_before == now + 40
    again = resumed(taken, now + LIMITS.max_retry_seconds, LIMITS, by_operator=False)
    assert again.not_before <= now + 2 * LIMITS.max_retry_seconds


def test_what_an_operator_continues_is_the_operators() -> None:
    record, sight = refused(REFUSALS[0])
    assert step(resumed(record, T, LIMITS, by_operator=True), sight, WELL).record.note.startswith(
        "Node v5e-1 has become well"
    )
    assert step(resumed(record, T, LIMITS, by_operator=True), sight, UNSEEN).call is ApiCall.STOP
