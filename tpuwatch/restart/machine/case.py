"""One look at one record: what the phases ask of it, and the moves that they make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.verdict import Rung
from tpuwatch.health.words import clean, length
from tpuwatch.restart.machine import commands
from tpuwatch.restart.machine.sights import Call, Move
from tpuwatch.restart.record import TOUCHED, Attempt, Lease, Phase, Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.restart.machine.sights import Limits, Operation, Sight
    from tpuwatch.restart.record import Target

SKEW_SECONDS: Final = 120.0  # between the clocks of those who write records and the API's
HISTORY: Final = 50  # attempts kept in a record
OPERATIONS: Final = 100  # names kept in a record: a start may be refused for days
MAINTENANCE: Final = "UNHEALTHY_MAINTENANCE"
_UNSEEN: Final = "It is not known how node "
_TEXT: Final = 300
_EVIDENCE: Final = 10  # sentences
_ANEW: Final = frozenset({"start", "reset", "create"})  # after these it is another boot


def begin(
    target: Target,
    previous: Record | None,
    rung: Rung,
    *,
    cause: str,
    reason: str,
    actor: str,
    now: float,
    evidence: Iterable[str] = (),
    witnesses: Iterable[str] = (),
    lease: Lease | None = None,
) -> Record:
    """The record of a restart that is wanted now, in place of the node's record so far, if it has one.

    It carries on the history, and knows the operations of the restart before, which might else be taken for its own:
    clocks differ. Raises ValueError if that restart is to be finished first.
    """
    if previous is not None and previous.phase in TOUCHED:
        raise ValueError(f"a restart of node {target.node} is under way: it is {previous.phase.value}")
    return Record(
        target=target,
        rung=rung,
        phase=Phase.REQUESTED,
        cause=cause,
        reason=clean(reason, _TEXT),
        evidence=tuple(clean(one, _TEXT) for one in evidence)[:_EVIDENCE],
        actor=actor,
        requested=now,
        entered=now,
        lease=lease or Lease(),
        witnesses=tuple(witnesses),
        history=previous.history if previous is not None else (),
        foreign=_newest((*previous.foreign, *previous.operations)) if previous is not None else (),
    )


def noted(record: Record, sight: Sight, now: float) -> Record:
    """The record with what is shown now, and since when. Times that lie ahead, by another clock, are now."""
    if sight.shown != record.shown:
        record = replace(record, shown=sight.shown, shown_since=now, well_since=0.0)
    if record.unseen_since:
        record = replace(record, unseen_since=0.0, note="" if record.note.startswith(_UNSEEN) else record.note)
    return replace(
        record,
        began=min(record.began or now, now),
        entered=min(record.entered, now),
        shown_since=min(record.shown_since, now),
        well_since=min(record.well_since, now),
    )


def unseen(record: Record, sight: Sight, now: float, limits: Limits) -> Move:
    """Nothing is decided on what was not shown. If that lasts, the record calls for a person."""
    since = min(record.unseen_since or now, now)
    what, why = f"{_UNSEEN}{record.target.node} is", sight.fault or "The Cloud TPU API did not tell its state."
    note = record.note
    if now - since >= limits.wait_seconds:
        look = commands.describe(record.target)
        note = (
            f"{what}, for longer than {length(limits.wait_seconds)}, so nothing is done about it. {why} Look: {look}."
        )
    return Move(
        replace(record, unseen_since=since, note=note),
        again_in=limits.poll_seconds,
        sentence=f"{what}, so nothing is decided. {why} It is asked again in {length(limits.poll_seconds)}.",
    )


def ended(record: Record, phase: Phase, note: str, now: float) -> Record:
    """The record after its restart has ended, with what a person should know, and with the attempt in its history."""
    attempt = Attempt(
        rung=record.rung,
        cause=record.cause,
        began=record.began or record.requested,
        ended=now,
        phase=phase,
        stops=record.stops,
        actor=record.actor,
    )
    history = (attempt, *record.history)[:HISTORY]
    return replace(record, phase=phase, entered=now, not_before=0.0, note=note, history=history)


def named(record: Record, operation: str) -> dict[str, Any]:
    """The changes to a record once the name of its operation is known."""
    return {"operation": operation, "operations": _newest((*record.operations, operation))}


def _newest(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, where it came last; only so many."""
    newest_first = tuple(dict.fromkeys(reversed((*names,))))[:OPERATIONS]
    return newest_first[::-1]


def backoff(tries: int, limits: Limits) -> float:
    """Seconds to wait after so many failed calls."""
    return min(limits.retry_seconds * 2.0 ** min(max(tries - 1, 0), 30), limits.longest_retry_seconds)


@dataclass(frozen=True, slots=True)
class Case:
    """A record, what the API shows of its node, and the time."""

    record: Record
    sight: Sight
    now: float
    limits: Limits

    # What is known

    @property
    def node(self) -> str:
        """As sentences begin."""
        return f"Node {self.record.target.node}"

    @property
    def several(self) -> bool:
        """Whether it has several hosts: then it cannot be stopped. While it is down the API may show none of them."""
        return self.sight.hosts > 1 or self.record.rung is Rung.RESET_QUEUED_RESOURCE

    @property
    def untouched(self) -> bool:
        """Whether nothing was ever called for this record, with success or in vain."""
        return not (self.record.tries or self.record.stops or self.record.operations)

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
        return min(max(0.0, self.record.not_before - self.now), self.limits.longest_retry_seconds)

    def operation(self, call: Call) -> Operation | None:
        """The record's operation; while its name is not known, the newest new one of this kind since the phase began.

        One of which the service does not say what it does may be it.
        """
        listed, named = self.sight.operations, self.record.operation
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
        """Whether it is proven that somebody else stopped the node after this restart had started it."""
        ours = set(self.record.operations)
        started = [one.created for one in self.sight.operations if one.name in ours and one.verb.lower() == "start"]
        last = max((at for at in started if at is not None), default=None)
        return last is not None and any(
            one.created is not None and one.created > last
            for one in self.sight.operations
            if one.name not in ours and one.verb.lower() == "stop"
        )

    @property
    def restarted_by_another(self) -> bool:
        """Whether somebody else has started, reset or made the node since its restart was asked for.

        It may have been done by hand, by another ledger, or for another node of the same queued resource. What seems
        to be done in the future proves nothing: then the clock here is behind, and it may be of before the request.
        """
        latest = self.now + SKEW_SECONDS
        if self.sight.created is not None and self.record.requested < self.sight.created <= latest:
            return True
        known = {*self.record.operations, *self.record.foreign}
        return any(
            one.done and not one.code and one.created is not None and self.record.requested <= one.created <= latest
            for one in self.sight.operations
            if one.verb.lower() in _ANEW and one.name not in known
        )

    # Moves

    def stay(self, sentence: str, *, again: float | None = None, **changes: Any) -> Move:
        """Look again in a while; in the same phase."""
        record = replace(self.record, **changes) if changes else self.record
        return Move(record, again_in=self.limits.poll_seconds if again is None else again, sentence=sentence)

    def wait(self, what: str, limit: float, then: str) -> Move:
        """Wait without end for what the service is doing; past the limit the record calls for a person."""
        took = length(self.elapsed)
        if self.elapsed < limit:
            soon = min(self.limits.poll_seconds, max(1.0, self.elapsed / 100))  # it shall not be ready and unnoticed
            return self.stay(f"{what}, since {took}; it is waited for, at first for {length(limit)}.", again=soon)
        note = f"{what}, for longer than {length(limit)}. {then}"
        again = min(max(self.limits.poll_seconds, self.elapsed / 20), self.limits.longest_retry_seconds)
        return self.stay(f"{note} It has taken {took}; tpuwatch goes on waiting.", again=again, note=note)

    def enter(self, phase: Phase, sentence: str, **changes: Any) -> Move:
        """Go on to a phase, and look again soon."""
        record = _entered(self.record, phase, self.now, changes)
        return Move(record, again_in=self.limits.poll_seconds, sentence=sentence)

    def adopt(self, phase: Phase, operation: Operation | None, sentence: str, **changes: Any) -> Move:
        """Go on to a phase with the operation that was found, if any was."""
        changes |= {"operation": ""} if operation is None else named(self.record, operation.name)
        return self.enter(phase, sentence, **changes)

    def call(self, call: Call, phase: Phase, sentence: str, **changes: Any) -> Move:
        """Write that a call is about to be made, then make it."""
        return Move(_entered(self.record, phase, self.now, changes), call=call, sentence=sentence)

    def bring_down(self, call: Call, sentence: str, **changes: Any) -> Move:
        """Write that a stop, or a reset, is about to be called, then call it. What is listed by now is not that one."""
        seen = (one.name for one in reversed(self.sight.operations) if one.name not in self.record.operations)
        foreign = _newest((*self.record.foreign, *seen))
        return self.call(call, Phase.INTENT, sentence, operation="", foreign=foreign, **changes)

    def end(self, phase: Phase, note: str) -> Move:
        """End the restart."""
        return Move(ended(self.record, phase, note, self.now), sentence=note)


def _entered(record: Record, phase: Phase, now: float, changes: dict[str, Any]) -> Record:
    fresh: dict[str, Any] = {"phase": phase, "entered": now, "well_since": 0.0, "not_before": 0.0, "note": ""}
    return replace(record, **(fresh | changes))
