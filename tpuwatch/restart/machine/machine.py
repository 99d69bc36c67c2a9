"""The state machine of a restart: pure. It is fed what the API shows, and says what to write and what to call next.

Whoever drives a record calls `advance`, writes the record that it gives, only then makes the call that it gives, and
feeds the answer to `answered`, whose record is written too. Between any two of these steps the driver may die, and a
write or an answer may be lost: the next driver goes on from the record and from what the API shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean
from tpuwatch.restart.machine.after import loud, starting, stopped, stopping, verifying
from tpuwatch.restart.machine.before import intent, requested
from tpuwatch.restart.machine.case import SKEW_SECONDS, Case, backoff, begin, ended, named, noted, unseen
from tpuwatch.restart.machine.sights import Call, CallAnswer, Limits, Move, Operation, Sight
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.restart.record import Record

__all__ = [
    "Call",
    "CallAnswer",
    "Limits",
    "Move",
    "Operation",
    "Sight",
    "advance",
    "answered",
    "begin",
    "ended",
    "relevant_since",
]

_PHASES: Final[dict[Phase, Callable[[Case], Move]]] = {
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
_HOPELESS: Final = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "UNIMPLEMENTED"})

_SAID_CHARS: Final = 600


def relevant_since(record: Record) -> float:
    """From when on operations matter to the record: what `NodeApi.look` is to be asked for."""
    times = (record.requested, record.began or record.requested, record.entered or record.requested)
    return min(times) - SKEW_SECONDS


def advance(record: Record, sight: Sight, now: float, limits: Limits) -> Move:
    """The next move for a record. One that has ended does not move."""
    handle = _PHASES.get(record.phase)
    if handle is None:
        return Move(record, sentence=record.note)
    if not sight.shown:
        return unseen(record, sight, now, limits)
    return handle(Case(noted(record, sight, now), sight, now, limits))


def answered(record: Record, call: Call, answer: CallAnswer, now: float, limits: Limits) -> Record:
    """The record after a call's answer."""
    if answer.operation:
        return _accepted(record, call, answer.operation, now)
    if call is Call.START:
        return _not_started(record, answer, now, limits)
    if record.phase is not Phase.INTENT:
        return record
    if answer.code in _HOPELESS:
        note = f"{_said(call, answer)} Nothing was done: node {record.target.node} is as it was."
        return ended(record, Phase.FAILED, note, now)
    if answer.code in _REFUSALS:
        tries = record.tries + 1
        later = _later(tries, answer, limits)
        note = _said(call, answer)
        return replace(record, phase=Phase.REQUESTED, entered=now, tries=tries, not_before=now + later, note=note)
    return record  # nobody knows: the next looks will tell


def _accepted(record: Record, call: Call, operation: str, now: float) -> Record:
    phase = Phase.STOPPING if call is Call.STOP else Phase.STARTING
    changes = named(record, operation)
    if call is Call.START:
        changes["down"] = record.down or now
    else:
        changes |= {"stops": record.stops + 1, "tries": 0, "note": ""}
    return replace(record, phase=phase, entered=now, not_before=0.0, **changes)


def _not_started(record: Record, answer: CallAnswer, now: float, limits: Limits) -> Record:
    """Refused, or nobody knows: it is called again later, if the node is stopped still."""
    tries = record.tries + 1
    needed = tries >= limits.capacity_tries or answer.code in _HOPELESS
    note = loud(record.target, _said(Call.START, answer), tries) if needed else record.note
    return replace(record, tries=tries, not_before=now + _later(tries, answer, limits), note=note)


def _later(tries: int, answer: CallAnswer, limits: Limits) -> float:
    return min(max(backoff(tries, limits), answer.retry_after or 0.0), limits.longest_retry_seconds)


def _said(call: Call, answer: CallAnswer) -> str:
    """Why it was not accepted, a sentence."""
    if answer.message:
        return clean(answer.message, _SAID_CHARS)
    return f"The {call.value} was refused: {answer.code}." if answer.code else f"The {call.value} was not answered."
