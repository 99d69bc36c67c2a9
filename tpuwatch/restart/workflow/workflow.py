"""The state machine of a restart. Pure: it maps a record and what is known to what to write and what to call next.

A driver calls `advance`, writes the record that it gives, only then makes the call that it gives, and
feeds the answer to `answered`, whose record is written too. Between any two of these steps the driver may die, and a
write or an answer may be lost: the next driver goes on from the record and from what the API shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean
from tpuwatch.model import TOUCHED, Phase
from tpuwatch.restart.workflow.start import start_failing_note, starting, stopped, stopping, verifying
from tpuwatch.restart.workflow.step import (
    MAINTENANCE,
    SKEW_SECONDS,
    OperationsNeededError,
    StepContext,
    backoff,
    ended,
    with_observation,
    with_operation,
    without_observation,
)
from tpuwatch.restart.workflow.stop import intent, requested, withdrawn_by_cloud
from tpuwatch.restart.workflow.types import (
    ApiCall,
    CallAnswer,
    NodeObservation,
    PhaseLimits,
    PresentEvidence,
    Standing,
    Step,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.model import RestartRecord

_PHASES: Final[dict[Phase, Callable[[StepContext], Step]]] = {
    Phase.REQUESTED: requested,
    Phase.INTENT: intent,
    Phase.STOPPING: stopping,
    Phase.STOPPED: stopped,
    Phase.STARTING: starting,
    Phase.VERIFYING: verifying,
}
# With these the service has looked at the call and has not begun it. With any other it may have.
_REFUSALS: Final = frozenset(
    {"FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "NOT_FOUND", "ALREADY_EXISTS", "OUT_OF_RANGE"}
)
_NOT_IN_THAT_STATE: Final = frozenset({"FAILED_PRECONDITION", "INVALID_ARGUMENT"})
_HOPELESS: Final = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "UNIMPLEMENTED"})

_REFUSAL_CHARS: Final = 600


def relevant_since(record: RestartRecord) -> float:
    """From when on operations matter to the record: what `CloudNodeApi.look` is to be asked for."""
    times = (record.requested, record.began or record.requested, record.entered or record.requested)
    return min(times) - SKEW_SECONDS


def advance(
    record: RestartRecord, observation: NodeObservation, now: float, limits: PhaseLimits, present: PresentEvidence
) -> Step:
    """The next step for a record. One that has ended does not step.

    To list the operations of a zone is dear, and mostly the node's state decides. So a look may leave them out; where
    the step depends on them it says so in place of a decision, and is to be asked for again with a look that has them:
    before a stop or a reset is called (is another operation under way, has another client restarted the node?), while
    it is not known what came of a call, and where a state is not what the last call leads to. A step is the same by
    either look: nothing is ever decided on operations that were not asked for.
    """
    if not record.open:
        return Step(record, sentence=record.note)
    if not observation.shown:
        return without_observation(record, observation, now, limits)
    try:
        known = with_observation(record, observation, now)
        phase = Phase.INTENT if _called_in_doubt(record) else record.phase
        return _PHASES[phase](StepContext(replace(known, phase=phase), observation, now, limits, present))
    except OperationsNeededError:
        return Step(record, needs_operations=True)


def _called_in_doubt(record: RestartRecord) -> bool:
    """Whether a stop is called, or was about to be, while it is not known what came of the one before."""
    return record.phase is Phase.STOPPING and not record.stops


def may_call(record: RestartRecord, call: ApiCall, observation: NodeObservation, present: PresentEvidence) -> bool:
    """Whether a call may be made by what is known right before it, and what the API shows then.

    A start always may. What takes the node down may on an operator's word, or while what was decided on is seen to
    hold.
    """
    if call is ApiCall.START:
        return True
    if observation.state != "READY" or observation.health == MAINTENANCE:
        return False
    return not record.signals or (present.standing is Standing.HOLDS and not withdrawn_by_cloud(observation, present))


def goes_on_unrecorded(before: RestartRecord, after: RestartRecord) -> bool:
    """Whether a driver goes on from `before` to `after` though that cannot be written.

    Once the node may have been taken down, until the restart ends: then it is not to stay down.
    """
    return before.phase in TOUCHED and after.phase in TOUCHED


def may_call_unrecorded(call: ApiCall) -> bool:
    """Whether a call may be made while the record cannot be written: a start, of which a second one does no harm."""
    return call is ApiCall.START


def resumed(record: RestartRecord, now: float, limits: PhaseLimits, *, by_operator: bool) -> RestartRecord:
    """The record as another driver begins with it: an operator's makes it the operator's own, whoever decided on it.

    How long a state has been shown is by another clock, which may have been wrong, or have jumped since: it is counted
    again, and so is for how long nothing may be called.
    """
    return replace(
        record,
        shown="",
        not_before=_held_until(record, now, limits),
        signals=() if by_operator else record.signals,
    )


def _held_until(record: RestartRecord, now: float, limits: PhaseLimits) -> float:
    """Until when the next driver calls nothing. A refused start is called at once: what it was refused for may be over.

    A stop may be on its way still where it is not known what came of it.
    """
    if record.phase is Phase.INTENT or (record.phase is Phase.STOPPING and record.not_before):
        return now + limits.doubt_seconds
    if record.phase is Phase.REQUESTED and record.not_before:
        return now + min(max(0.0, record.not_before - record.entered), limits.max_retry_seconds)
    return 0.0


def answered(
    record: RestartRecord, call: ApiCall, answer: CallAnswer, now: float, limits: PhaseLimits
) -> RestartRecord:
    """The record after a call's answer."""
    if answer.operation:
        return _accepted(record, call, answer.operation, now)
    if call is ApiCall.START:
        return _not_started(record, answer, now, limits)
    if _called_in_doubt(record):  # what came of the call before is not known still
        return replace(record, phase=Phase.INTENT, not_before=now + _later(record.tries, answer, limits))
    if record.phase is not Phase.INTENT:
        return record
    if answer.code in _HOPELESS:
        note = f"{_refusal(call, answer)} Nothing was done: node {record.target.node} is as it was."
        return ended(record, Phase.FAILED, note, now)
    if answer.code in _REFUSALS:
        tries = record.tries + 1
        later = _later(tries, answer, limits)
        note = _refusal(call, answer)
        again: dict[str, Any] = {"phase": Phase.REQUESTED, "entered": now, "not_before": now + later}
        return replace(record, **again, tries=tries, failure=note, note=note)
    return record  # not known: the next observations decide


def _accepted(record: RestartRecord, call: ApiCall, operation: str, now: float) -> RestartRecord:
    phase = Phase.STOPPING if call is ApiCall.STOP else Phase.STARTING
    changes = with_operation(record, operation)
    if call is ApiCall.START:
        changes["down"] = record.down or now
    else:
        changes |= {"stops": record.stops + 1, "tries": 0, "note": ""}
    return replace(record, phase=phase, entered=now, not_before=0.0, **changes)


def _not_started(record: RestartRecord, answer: CallAnswer, now: float, limits: PhaseLimits) -> RestartRecord:
    """Refused, or not known: it is called again later, if the node is stopped still."""
    tries = record.tries + 1
    if record.shown == "READY" and _runs(record, answer, now, limits):
        phase = Phase.REQUESTED if record.phase is Phase.INTENT else Phase.VERIFYING
        return replace(record, phase=phase, entered=now, well_since=0.0, not_before=0.0, note="")
    needed, why = tries >= limits.stockout_alert_after or answer.code in _HOPELESS, _refusal(ApiCall.START, answer)
    note = start_failing_note(record.target, why, tries) if needed else record.note
    return replace(record, tries=tries, failure=why, not_before=now + _later(tries, answer, limits), note=note)


def _runs(record: RestartRecord, answer: CallAnswer, now: float, limits: PhaseLimits) -> bool:
    """Whether the service refuses to start a node because that runs, as is shown of it.

    Twice, for it also does so while it is at something else; and a stop that may be on its way is over by then.
    """
    is_over = record.phase is not Phase.INTENT or now - record.entered >= limits.wait_seconds
    return answer.code in _NOT_IN_THAT_STATE and record.tries > 0 and is_over


def _later(tries: int, answer: CallAnswer, limits: PhaseLimits) -> float:
    return min(max(backoff(tries, limits), answer.retry_after or 0.0), limits.max_retry_seconds)


def _refusal(call: ApiCall, answer: CallAnswer) -> str:
    """Why it was not accepted, a sentence."""
    if answer.message:
        return clean(answer.message, _REFUSAL_CHARS)
    return f"The {call.value} was refused: {answer.code}." if answer.code else f"The {call.value} was not answered."
