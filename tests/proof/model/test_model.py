"""The state machine under all interleavings, and the proof that the checker finds what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.model.checker import LIMITS, Checker, Violation, alone
from tests.proof.model.world import Budget
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.restart.workflow import workflow
from tpuwatch.restart.workflow.step import ended
from tpuwatch.restart.workflow.types import (
    ApiCall,
    CallAnswer,
    NodeObservation,
    PhaseLimits,
    PresentEvidence,
    Standing,
    Step,
)

WHOLE = 10_000  # deeper than anything
PATIENT = replace(LIMITS, wait_seconds=8)  # a stop too many comes before the end of the wait


@pytest.mark.parametrize(
    ("checker", "depth"),
    [
        (Checker(Budget(), 1), 9),
        (Checker(Budget(), 2), 10),
        pytest.param(Checker(alone("losses"), 1), WHOLE, marks=pytest.mark.long),
        (Checker(alone("losses"), 2), WHOLE),
        pytest.param(Checker(alone("losses"), 1, watched=True), WHOLE, marks=pytest.mark.long),
        (Checker(Budget(turns=1), 1, watched=True), 9),
        pytest.param(Checker(alone("turns"), 1, watched=True), WHOLE, marks=pytest.mark.long),
        (Checker(alone("turns"), 2, watched=True), WHOLE),
        (Checker(alone("turns", "losses"), 1, watched=True), 14),
        (Checker(alone("turns", "refusals"), 1, watched=True), 14),
        (Checker(alone("turns", "crashes"), 1, watched=True), 14),
        (Checker(alone("outages"), 1), 12),
        (Checker(alone("outages"), 2), 12),
        (Checker(alone("outages", "crashes"), 1, watched=True), 11),
        (Checker(alone("jumps"), 1), 13),
        (Checker(alone("jumps", "refusals", "crashes"), 1), 11),
        pytest.param(Checker(alone("stales"), 1), WHOLE, marks=pytest.mark.long),
        (Checker(alone("stales"), 2), WHOLE),
        (Checker(alone("stales", "crashes"), 1), 13),
        (Checker(alone("stales", "losses"), 1, watched=True), 13),
        (Checker(alone("stales", "refusals"), 1), 14),
        (Checker(alone("stales", "failures"), 1), 14),
    ],
    ids=[
        "all faults",
        "all faults, several hosts",
        "a lost answer",
        "a lost answer, several hosts",
        "a lost answer, wanted by a daemon",
        "all faults, and evidence that turns",
        "evidence that turns",
        "evidence that turns, several hosts",
        "a lost answer, and evidence that turns",
        "a refusal, and evidence that turns",
        "a crash, and evidence that turns",
        "a ledger that cannot be written",
        "a ledger that cannot be written, several hosts",
        "a ledger that cannot be written, and a crash, wanted by a daemon",
        "a clock that jumps",
        "a clock that jumps, a refusal and a crash",
        "an API that is stale",
        "an API that is stale, several hosts",
        "an API that is stale, and a crash",
        "an API that is stale, and a lost answer",
        "an API that is stale, and a refusal",
        "an API that is stale, and an operation that fails",
    ],
)
def test_nothing_is_violated(checker: Checker, depth: int) -> None:
    count = checker.run(depth)
    print(f"{count:,} states to a depth of {checker.depth} steps; all: {checker.whole}")
    assert count > 5_000
    assert checker.whole == (depth == WHOLE)


def _by_either_look(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """A look without operations leads to the same step as one with them, or to no decision."""
    step = workflow.advance(record, sight, now, limits, present)
    lean = workflow.advance(record, replace(sight, operations=None, listed=False), now, limits, present)
    if lean.needs_operations:
        assert (lean.record, lean.call) == (record, None)
    elif lean != step:
        raise Violation(f"{record.phase.value} on {sight.shown}: {lean.sentence!r} in place of {step.sentence!r}")
    return step


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [
        "losses",
        "crashes",
        pytest.param("failures", marks=pytest.mark.long),
        pytest.param("people", marks=pytest.mark.long),
    ],
)
def test_what_is_decided_without_operations_does_not_depend_on_them(fault: str, hosts: int) -> None:
    Checker(alone(fault), hosts, advance=_by_either_look, futures=False).run(WHOLE)


def _stops_again(
    record: RestartRecord, call: ApiCall, answer: CallAnswer, now: float, limits: PhaseLimits
) -> RestartRecord:
    """A lost answer is taken for a refusal."""
    if not answer.code and not answer.operation and call is ApiCall.STOP:
        answer = CallAnswer(code="FAILED_PRECONDITION")
    return workflow.answered(record, call, answer, now, limits)


def _forgets_stopped(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """When the node is stopped, that is the end."""
    move = workflow.advance(record, sight, now, limits, present)
    if record.phase is Phase.STOPPING and sight.state == "STOPPED":
        return Step(ended(move.record, Phase.DONE, "Stopped.", now))
    return move


def _gives_up_starting(
    record: RestartRecord, call: ApiCall, answer: CallAnswer, now: float, limits: PhaseLimits
) -> RestartRecord:
    """A start that is refused is the end."""
    after = workflow.answered(record, call, answer, now, limits)
    return ended(after, Phase.FAILED, "No start.", now) if call is ApiCall.START and answer.code else after


def _never_starts(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """STOPPED waits for somebody else."""
    move = workflow.advance(record, sight, now, limits, present)
    return Step(record, again_in=1.0) if move.call is ApiCall.START else move


def _stops_at_once(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """A record found at its intent is begun again."""
    if record.phase is Phase.INTENT:
        record = replace(record, phase=Phase.REQUESTED)
    return workflow.advance(record, sight, now, limits, present)


def _blind(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """Operations that cannot be listed are taken for none."""
    return workflow.advance(record, replace(sight, listed=True), now, limits, present)


def _judges_once(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, _present: PresentEvidence
) -> Step:
    """What was decided on holds for ever."""
    return workflow.advance(record, sight, now, limits, PresentEvidence(Standing.HOLDS))


def _abandons(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """A node that was well before it went down need not be started."""
    if record.phase is Phase.STOPPING and record.signals and present.standing is Standing.RECOVERED:
        return Step(ended(record, Phase.CANCELLED, "It was well.", now))
    return workflow.advance(record, sight, now, limits, present)


def _asks_no_api(record: RestartRecord, call: ApiCall, look: NodeObservation, present: PresentEvidence) -> bool:
    """Right before the call only the evidence counts."""
    return workflow.may_call(record, call, replace(look, health="TIMEOUT"), present)


def _gives_up_unrecorded(_before: RestartRecord, _after: RestartRecord) -> bool:
    """What cannot be written is left, wherever it stands."""
    return False


def _calls_unrecorded(_call: ApiCall) -> bool:
    """What is only in memory is as good as written."""
    return True


def _believes_times(record: RestartRecord, _now: float, limits: PhaseLimits, *, by_operator: bool) -> RestartRecord:
    """A wait is over when this machine's clock says so, whoever began it."""
    after = workflow.resumed(record, 0.0, limits, by_operator=by_operator)
    return replace(after, not_before=record.not_before)


def _believes_ready(
    record: RestartRecord, sight: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """What was stopped, and is shown READY, runs."""
    move = workflow.advance(record, sight, now, limits, present)
    if move.call is ApiCall.START and sight.state == "READY":
        return Step(replace(move.record, phase=Phase.VERIFYING, entered=now))
    return move


def _believes_one_refusal(
    record: RestartRecord, call: ApiCall, answer: CallAnswer, now: float, limits: PhaseLimits
) -> RestartRecord:
    """What the service refuses to start once, and is shown READY, runs."""
    return workflow.answered(replace(record, tries=max(1, record.tries)), call, answer, now, limits)


def _calls_whatever_is_known(
    _record: RestartRecord, _call: ApiCall, _look: NodeObservation, _present: PresentEvidence
) -> bool:
    return True


@pytest.mark.parametrize(
    ("checker", "found"),
    [
        (Checker(alone("losses", "people"), answered=_stops_again, limits=PATIENT, futures=False), "a second stop"),
        (Checker(alone("crashes", "people"), advance=_stops_at_once, limits=PATIENT, futures=False), "a second stop"),
        (Checker(alone("losses", "people", "blinds"), advance=_blind, limits=PATIENT, futures=False), "a second stop"),
        (Checker(alone(), advance=_forgets_stopped), "the node is STOPPED"),
        (Checker(alone("refusals"), answered=_gives_up_starting), "the node is STOPPED"),
        (Checker(alone(), advance=_never_starts), "never ends"),
        (
            Checker(alone("losses"), limits=replace(LIMITS, stale_seconds=0, call_seconds=0, settle_seconds=0)),
            "a second stop",
        ),
        (
            Checker(alone("turns"), watched=True, advance=_judges_once, may_call=_calls_whatever_is_known),
            "a stop, and the evidence: recovered",
        ),
        (Checker(alone("turns"), watched=True, may_call=_calls_whatever_is_known), "a stop, and the evidence"),
        (Checker(alone("turns"), watched=True, advance=_abandons), "cancelled, and the node is STOPPED"),
        (Checker(alone("outages", "crashes"), goes_on_unrecorded=_gives_up_unrecorded), "cannot be written"),
        (
            Checker(alone("outages"), may_call_unrecorded=_calls_unrecorded, limits=PATIENT, futures=False),
            "a stop, and the ledger cannot be written",
        ),
        (Checker(alone("jumps", "refusals", "crashes"), resumed=_believes_times, futures=False), "a jump of the clock"),
        (Checker(alone("jumps", "losses"), is_steady=False, futures=False), "a jump of the clock ends a wait"),
        (Checker(alone("stales"), advance=_believes_ready), "the node is STOPPED"),
        (Checker(alone("stales", "refusals"), answered=_believes_one_refusal), "the node is STOP"),
        (
            Checker(alone("turns"), watched=True, may_call=_asks_no_api),
            "of a node that the API calls well",
        ),
    ],
    ids=[
        "stops again after a lost answer",
        "stops again after a crash",
        "takes no list for an empty one",
        "forgets STOPPED",
        "gives up starting",
        "never starts",
        "trusts old looks",
        "judges once",
        "does not judge right before the call",
        "abandons what has recovered once it is down",
        "gives up when a write fails after the stop",
        "stops from memory",
        "takes up another's wait by its own clock",
        "counts its own wait by a clock that jumps",
        "believes that what it stopped runs, as the API shows it",
        "believes one refusal of a start",
        "does not ask the API right before the call",
    ],
)
def test_the_checker_finds_what_is_wrong(checker: Checker, found: str) -> None:
    with pytest.raises(Violation, match=found) as violation:
        checker.run(40)
    assert "takes the lease" in str(violation.value)  # it shows how it came about
