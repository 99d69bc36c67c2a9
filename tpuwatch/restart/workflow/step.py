"""One look at one record: what the phases ask of it, and the steps that they make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, doubled, length
from tpuwatch.model import TOUCHED, Action, Attempt, Grounds, Lease, Phase, RestartRecord
from tpuwatch.restart.workflow import commands
from tpuwatch.restart.workflow.types import ApiCall, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Target
    from tpuwatch.restart.workflow.types import NodeObservation, Operation, PhaseLimits, PresentEvidence

SKEW_SECONDS: Final = 120.0  # between the clocks of those who write records and the API's
HISTORY: Final = 50  # attempts kept in a record
OPERATIONS: Final = 100  # names kept in a record: a start may be refused for days
MAINTENANCE: Final = "UNHEALTHY_MAINTENANCE"
_ROUNDING: Final = 0.001  # seconds: of times that the API sends in nanoseconds
_UNSEEN: Final = "It is not known how node "
_TEXT: Final = 300
_NOTE: Final = 1000  # what to do about it stands at its end
_EVIDENCE: Final = 10  # sentences
_BOOTING_VERBS: Final = frozenset({"start", "reset"})  # after these it is another boot


class OperationsNeededError(Exception):
    """What is decided depends on the operations on the node, and they were not asked for."""


def begin(
    target: Target,
    previous: RestartRecord | None,
    action: Action,
    *,
    cause: str,
    reason: str,
    actor: str,
    now: float,
    evidence: Iterable[str] = (),
    signals: Iterable[str] = (),
    grounds: Grounds | None = None,
    sources: Iterable[str] = (),
) -> RestartRecord:
    """The record of a restart that is wanted now, in place of the node's record so far, if it has one.

    It carries on the history, and knows the operations of the restart before, which might else be taken for its own:
    clocks differ. Raises ValueError if that restart is to be finished first.
    """
    if previous is not None and previous.phase in TOUCHED:
        raise ValueError(f"a restart of node {target.node} is under way: it is {previous.phase.value}")
    return RestartRecord(
        target=target,
        action=action,
        phase=Phase.REQUESTED,
        cause=cause,
        reason=clean(reason, _TEXT),
        evidence=tuple(clean(one, _TEXT) for one in evidence)[:_EVIDENCE],
        actor=actor,
        requested=now,
        entered=now,
        signals=tuple(signals),
        grounds=grounds or Grounds(),
        sources=tuple(sources),
        history=previous.history if previous is not None else (),
        foreign=_newest((*previous.foreign, *previous.operations)) if previous is not None else (),
    )


def with_observation(record: RestartRecord, observation: NodeObservation, now: float) -> RestartRecord:
    """The record with what is shown now, and since when. Times that lie ahead, by another clock, are now."""
    if observation.shown != record.shown:
        record = replace(record, shown=observation.shown, shown_since=now, well_since=0.0)
    if record.unseen_since:
        record = replace(record, unseen_since=0.0, note="" if record.note.startswith(_UNSEEN) else record.note)
    return replace(
        record,
        began=min(record.began or now, now),
        entered=min(record.entered, now),
        shown_since=min(record.shown_since, now),
        well_since=min(record.well_since, now),
    )


def without_observation(record: RestartRecord, observation: NodeObservation, now: float, limits: PhaseLimits) -> Step:
    """Nothing is decided on what was not shown. If that lasts, the record calls for an operator."""
    since = min(record.unseen_since or now, now)
    what, why = f"{_UNSEEN}{record.target.node} is", observation.fault or "The Cloud TPU API did not report its state."
    note = record.note
    if now - since >= limits.wait_seconds:
        look = commands.describe(record.target)
        note = (
            f"{what}, for longer than {length(limits.wait_seconds)}, so nothing is done about it. {why} Look: {look}."
        )
    return Step(
        replace(record, unseen_since=since, note=note),
        again_in=limits.poll_seconds,
        sentence=f"{what}, so nothing is decided. {why} It is asked again in {length(limits.poll_seconds)}.",
    )


def ended(record: RestartRecord, phase: Phase, note: str, now: float) -> RestartRecord:
    """The record after its restart has ended, with a note for operators, and with the attempt in its history."""
    record = replace(record, phase=phase, entered=now, not_before=0.0, note=note)
    attempt = replace(Attempt.of(record), note=clean(note, _NOTE))
    return replace(record, history=(attempt, *record.history)[:HISTORY])


def withdrawn(record: RestartRecord, note: str, now: float) -> RestartRecord:
    """The record of a restart that tpuwatch gives up, with nothing done or the node another one: it counts as none."""
    return replace(
        record,
        action=Action.NONE,
        phase=Phase.CANCELLED,
        entered=now,
        not_before=0.0,
        lease=Lease(),
        signals=(),
        note=note,
    )


def with_operation(record: RestartRecord, operation: str) -> dict[str, Any]:
    """The changes to a record once the name of its operation is known."""
    return {"operation": operation, "operations": _newest((*record.operations, operation))}


def _newest(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, where it came last; only so many."""
    newest_first = tuple(dict.fromkeys(reversed((*names,))))[:OPERATIONS]
    return newest_first[::-1]


def backoff(tries: int, limits: PhaseLimits) -> float:
    """Seconds to wait after so many failed calls."""
    return doubled(limits.retry_seconds, max(tries - 1, 0), limits.max_retry_seconds)


@dataclass(frozen=True, slots=True)
class StepContext:
    """A record, what the API shows of its node, the time, and what else is known of the node."""

    record: RestartRecord
    observation: NodeObservation
    now: float
    limits: PhaseLimits
    present: PresentEvidence

    # What is known

    @property
    def node(self) -> str:
        """As sentences begin."""
        return f"Node {self.record.target.node}"

    @property
    def several(self) -> bool:
        """Whether it has several hosts: then it cannot be stopped. While it is down the API may show none of them."""
        return self.observation.hosts > 1 or self.record.action is Action.RESET_QUEUED_RESOURCE

    @property
    def undone(self) -> str:
        """That nothing was done, a sentence. A call of which no answer came may have been carried out."""
        return "Nothing was done." if self.record.untouched else "Nothing was done, as far as is known."

    @property
    def elapsed(self) -> float:
        """Seconds in this phase."""
        return self.since(self.record.entered)

    def since(self, when: float) -> float:
        """Seconds since then."""
        return max(0.0, self.now - when)

    @property
    def lasting(self) -> bool:
        """Whether the state has been shown for so long, in this phase, that it is not an old one."""
        return min(self.elapsed, self.since(self.record.shown_since)) >= self.limits.stale_seconds

    @property
    def held_for(self) -> float:
        """Seconds until the next call may be made."""
        return min(max(0.0, self.record.not_before - self.now), self.limits.max_retry_seconds)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations on the node. Whatever depends on them is decided by a look that has asked for them."""
        if self.observation.operations is None:
            raise OperationsNeededError
        return self.observation.operations

    def operation(self, call: ApiCall) -> Operation | None:
        """The record's operation; while its name is not known, the newest new one of this kind since the phase began.

        One of an unknown kind may be it.
        """
        listed, named = self.operations, self.record.operation
        if named:
            return next((one for one in listed if one.name == named), None)
        earliest = self.record.entered - SKEW_SECONDS
        fitting = (
            one
            for one in listed
            if one.name not in self.record.operations
            and one.name not in self.record.foreign
            and one.verb.lower() in (call.value, "")
            and (one.created is None or one.created >= earliest)
        )
        return max(fitting, key=lambda one: one.created or 0.0, default=None)

    @property
    def stopped_by_another(self) -> bool:
        """Whether it is proven that the node was stopped by another client after this restart had started it."""
        ours = set(self.record.operations)
        started = [one.created for one in self.operations if one.name in ours and one.verb.lower() == "start"]
        last = max((at for at in started if at is not None), default=None)
        return last is not None and any(
            one.created is not None and one.created > last
            for one in self.operations
            if one.name not in ours and one.verb.lower() == "stop"
        )

    @property
    def restarted_by_another(self) -> bool:
        """Whether another client has started or reset the node since its restart was asked for.

        It may have been done by hand, by another ledger, or for another node of the same queued resource. What seems
        to be done in the future proves nothing: then the clock here is behind, and it may be of before the request.
        """
        return self._done_by_another(_BOOTING_VERBS)

    @property
    def recreated(self) -> bool:
        """Whether another client has created the node again since its restart was asked for: it is another node."""
        created, latest = self.observation.created, self.now + SKEW_SECONDS
        if created is None:
            return self._done_by_another(frozenset({"create"}))
        return self.record.requested + _ROUNDING < created <= latest

    def _done_by_another(self, verbs: frozenset[str]) -> bool:
        latest, known = self.now + SKEW_SECONDS, {*self.record.operations, *self.record.foreign}
        return any(
            one.done and not one.code and one.created is not None and self.record.requested <= one.created <= latest
            for one in self.operations
            if one.verb.lower() in verbs and one.name not in known
        )

    # Moves

    def stay(self, sentence: str, *, again: float | None = None, **changes: Any) -> Step:
        """Look again in a while; in the same phase."""
        record = replace(self.record, **changes) if changes else self.record
        return Step(record, again_in=self.limits.poll_seconds if again is None else again, sentence=sentence)

    def wait(self, what: str, limit: float, then: str) -> Step:
        """Wait without end for what the service is doing; past the limit the record calls for an operator."""
        took = length(self.elapsed)
        if self.elapsed < limit:
            soon = min(self.limits.poll_seconds, max(2.0, self.elapsed / 20))  # it is noticed within 5 % of the time
            return self.stay(f"{what}, since {took}; it is waited for, at first for {length(limit)}.", again=soon)
        note = f"{what}, for longer than {length(limit)}. {then}"
        again = min(max(self.limits.poll_seconds, self.elapsed / 20), self.limits.max_retry_seconds)
        return self.stay(f"{note} It has taken {took}; tpuwatch goes on waiting.", again=again, note=note)

    def enter(self, phase: Phase, sentence: str, **changes: Any) -> Step:
        """Go on to a phase, and look again soon."""
        record = _entered(self.record, phase, self.now, changes)
        return Step(record, again_in=self.limits.poll_seconds, sentence=sentence)

    def enter_with(self, phase: Phase, operation: Operation | None, sentence: str, **changes: Any) -> Step:
        """Go on to a phase with the operation that was found, if any was."""
        changes |= {"operation": ""} if operation is None else with_operation(self.record, operation.name)
        return self.enter(phase, sentence, **changes)

    def call(self, call: ApiCall, phase: Phase, sentence: str, **changes: Any) -> Step:
        """Write that a call is about to be made, then make it."""
        return Step(_entered(self.record, phase, self.now, changes), call=call, sentence=sentence)

    def bring_down(self, call: ApiCall, sentence: str, **changes: Any) -> Step:
        """Write that a stop, or a reset, is about to be called, then call it. What is listed by now is not that one."""
        seen = (one.name for one in reversed(self.operations) if one.name not in self.record.operations)
        foreign = _newest((*self.record.foreign, *seen))
        return self.call(call, Phase.INTENT, sentence, operation="", foreign=foreign, **changes)

    def withdraw(self, note: str) -> Step:
        """Give the restart up: it counts as none."""
        return Step(withdrawn(self.record, note, self.now), sentence=note)

    def end(self, phase: Phase, note: str) -> Step:
        """End the restart."""
        return Step(ended(self.record, phase, note, self.now), sentence=note)


def _entered(record: RestartRecord, phase: Phase, now: float, changes: dict[str, Any]) -> RestartRecord:
    fresh: dict[str, Any] = {"phase": phase, "entered": now, "well_since": 0.0, "not_before": 0.0, "note": ""}
    return replace(record, **(fresh | changes))
