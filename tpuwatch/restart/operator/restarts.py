"""What the ledger holds, and what only an operator may change in it: `tpuwatch restarts`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError, LedgerError, TpuwatchError, like
from tpuwatch.model import (
    Breaker,
    BreakerResetDocument,
    CancellationDocument,
    Lease,
    LedgerBreakerDocument,
    LedgerDocument,
    LedgerRestartDocument,
    PastRestartDocument,
    Phase,
    ledger_down,
)
from tpuwatch.restart.ledger.codec import DamagedError
from tpuwatch.restart.ledger.owner import ThisMachine, owner_words
from tpuwatch.restart.ledger.reading import read_ledger, require_writable
from tpuwatch.restart.operator.headline import left
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.wording import full_name, words
from tpuwatch.restart.workflow.step import ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.model import RestartBudget, RestartRecord, RestartsDocument, Target
    from tpuwatch.restart.ledger.reading import LedgerReading
    from tpuwatch.restart.operator.access import LedgerAccess
    from tpuwatch.restart.policy.settings import PolicySettings

_MAX_WRITES: Final = 5  # of a record that others are writing too


@dataclass(frozen=True, slots=True)
class RestartState:
    """A node's latest restart, and whether anybody drives it."""

    record: RestartRecord
    driver: str = ""  # in words; "" if there is none
    driver_ended: bool = False  # its process has ended for sure
    needs_operator: bool = False  # it ended so, not long ago

    @property
    def is_driven(self) -> bool:
        """Whether a driver is at work, as far as is known."""
        return bool(self.driver) and not self.driver_ended

    @property
    def is_request(self) -> bool:
        """Whether the node's own daemon requests it, and no driver has begun it."""
        return budgets.is_request(self.record)

    @property
    def is_alone(self) -> bool:
        """Whether it is unfinished, and nobody drives it who should."""
        return self.record.open and not (self.is_request or self.is_driven)

    @property
    def needs_attention(self) -> bool:
        """Whether it is alone, or needs an operator."""
        return self.is_alone or self.needs_operator or (self.record.open and bool(self.record.note))

    def document(self) -> LedgerRestartDocument:
        """It for JSON."""
        return like(
            LedgerRestartDocument,
            self.record,
            **asdict(self.record.target),
            driver=self.driver or None,
            alone=self.is_alone,
            needs_attention=self.needs_attention,
        )


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """What the ledger holds now."""

    breaker: Breaker
    budget: RestartBudget
    restarts: Sequence[RestartState]
    ledger_problem: str = ""  # why it cannot be written, a sentence; "" if it can

    @property
    def needs_attention(self) -> bool:
        """Whether an operator has something to do."""
        breaker = self.breaker.opened is not None or bool(self.budget.breaker_opens)
        return bool(self.ledger_problem) or breaker or any(state.needs_attention for state in self.restarts)

    def document(self) -> LedgerDocument:
        """It for JSON."""
        return LedgerDocument(
            breaker=like(LedgerBreakerDocument, self.breaker),
            restarts_in_window=self.budget.restarts,
            window_seconds=self.budget.window_seconds,
            restarts_max=self.budget.max_restarts,
            ledger_problem=self.ledger_problem or None,
            restarts=tuple(state.document() for state in self.restarts),
        )


@dataclass(frozen=True, slots=True)
class BreakerReset:
    """What a reset of the breaker did."""

    document: BreakerResetDocument
    note: str
    opens_again: bool = False


def read_status(access: LedgerAccess, targets: Sequence[Target], settings: PolicySettings, now: float) -> LedgerStatus:
    """The latest restart of these nodes, or of all, with what is used of the budgets, the breaker, and whether the
    ledger can be written, which is tried.
    """
    reading, machine, problem = read_ledger(access.ledger), ThisMachine(), ""
    try:
        require_writable(access.ledger, reading)
    except LedgerError as error:
        problem = ledger_down(str(error))
    view = reading.view
    return LedgerStatus(
        breaker=view.fleet.breaker,
        budget=budgets.fleet_budget(view, settings, now),
        restarts=[
            _state(record, machine, now - settings.node_window_seconds)
            for record in records_of(view.records.values(), targets)
        ],
        ledger_problem=problem,
    )


def read_history(access: LedgerAccess, targets: Sequence[Target]) -> list[PastRestartDocument]:
    """All restarts of these nodes, or of all, that have ended, the latest first."""
    return past_restarts([stored.record for stored in access.ledger.records()], targets)


def past_restarts(records: Iterable[RestartRecord], targets: Sequence[Target]) -> list[PastRestartDocument]:
    """All restarts of these nodes, or of all, that have ended, the latest first."""
    records = records_of(records, targets)
    past = [
        PastRestartDocument.of(record.target, attempt) for record in records for attempt in budgets.attempts(record)
    ]
    return sorted(past, key=lambda one: -one.ended)


def reported_status(document: RestartsDocument, targets: Sequence[Target], now: float) -> LedgerStatus:
    """What the ledger held of these nodes, or of all, when the daemon read it last, for those who may not read it.

    Raises TpuwatchError if the daemon never did.
    """
    if document.budget is None:
        problem = document.ledger_problem or "It has only just begun; ask again in a moment."
        raise TpuwatchError(f"the daemon has not read the ledger yet. {problem}")
    since = now - document.budget.node_window_seconds
    return LedgerStatus(
        breaker=Breaker(opened=document.breaker.opened, reason=document.breaker.reason),
        budget=document.budget,
        restarts=[
            RestartState(
                record=record,
                driver=one.driver or "",
                driver_ended=one.driver_ended,
                needs_operator=record.phase is Phase.NEEDS_OPERATOR and record.entered > since,
            )
            for one in document.restarts
            for record in records_of([one.record()], targets)
        ],
        ledger_problem=document.ledger_problem or "",
    )


def reported_history(document: RestartsDocument, targets: Sequence[Target]) -> list[PastRestartDocument]:
    """All restarts of these nodes, or of all, that have ended, the latest first, as far as the daemon has read them."""
    return past_restarts((one.record() for one in document.restarts), targets)


def cancel_restart(access: LedgerAccess, target: Target, now: float) -> CancellationDocument:
    """Cancel a restart for which nothing has been done. Raises LedgerError."""
    for _ in range(_MAX_WRITES):
        stored = access.ledger.read(target)
        refusal = _cancel_refusal(access, target, stored.record if stored is not None else None)
        if refusal or stored is None:
            phase = stored.record.phase if stored is not None else None
            return CancellationDocument(node=target.node, outcome="not_cancelled", phase=phase, note=refusal)
        note = f"{access.actor} cancelled it before anything was done."
        record = replace(ended(stored.record, Phase.CANCELLED, note, now), lease=Lease())
        try:
            access.ledger.write(record, stored.version)
        except ConflictError:
            continue  # its driver wrote meanwhile
        access.audit.note(target, "cancel", "done", note)
        note = f"The restart of {target.node} is cancelled: nothing was done."
        return CancellationDocument(node=target.node, outcome="cancelled", phase=record.phase, note=note)
    raise ConflictError(
        f"the record of {target.node} changes all the time: try again, or see {access.command('restarts')}"
    )


def reset_breaker(access: LedgerAccess, settings: PolicySettings, now: float) -> BreakerReset:
    """Close the breaker: failures until now count no more. Raises LedgerError, also where the ledger was damaged and is
    set aside: then the operator has to look first.
    """
    for _ in range(_MAX_WRITES):
        reading = _reading(access)
        view = reading.view
        before = view.fleet.breaker
        if before.opened is None and not budgets.trips(view, settings, now):
            return BreakerReset(_reset("closed", before), "The breaker is closed already: there is nothing to reset.")
        fleet = budgets.closed(view, access.actor, now)
        try:
            access.ledger.write_fleet(fleet, reading.fleet.version)
        except ConflictError:
            continue
        access.audit.note(None, "reset_breaker", "done", before.reason)
        note = "The breaker is closed; failures until now count no more."
        if before.reason:
            note += f" It was opened because of this: {before.reason}"
        if opens := budgets.trips(replace(view, fleet=fleet), settings, now):
            note += f" It opens again, because some failures are in the future by this machine's clock: {opens}"
        return BreakerReset(_reset("reset", fleet.breaker), note, bool(opens))
    raise ConflictError("the ledger changes all the time: try again")


def _reset(outcome: str, breaker: Breaker) -> BreakerResetDocument:
    return BreakerResetDocument(outcome=outcome, reset=breaker.reset_at or None, by=breaker.reset_by)


def _reading(access: LedgerAccess) -> LedgerReading:
    try:
        return read_ledger(access.ledger)
    except DamagedError as error:
        if not access.ledger.set_aside():
            raise
        raise LedgerError(
            f"{error}. It is set aside now, and a new one has begun, with its breaker open: see "
            f"`{access.command('restarts')}`, then close the breaker with this command"
        ) from error


def _state(record: RestartRecord, machine: ThisMachine, since: float) -> RestartState:
    """`since`: what ended before then is over."""
    owner, needs_operator = record.lease.owner, record.phase is Phase.NEEDS_OPERATOR and record.entered > since
    if not owner:
        return RestartState(record, needs_operator=needs_operator)
    return RestartState(record, owner_words(owner), machine.is_gone(owner), needs_operator)


def records_of(records: Iterable[RestartRecord], targets: Sequence[Target]) -> list[RestartRecord]:
    """The records of these nodes, or all if there are none."""
    return [record for record in records if not targets or record.target in targets]


def _cancel_refusal(access: LedgerAccess, target: Target, record: RestartRecord | None) -> str:
    """Why a restart cannot be cancelled, a sentence; "" if it can."""
    if record is None:
        return f"The ledger has no restart of {full_name(target)}."
    if not record.open:
        return f"The restart of {target.node} has ended ({words(record.phase)}): there is nothing to cancel."
    if record.phase is not Phase.REQUESTED or record.stops:
        return (
            f"The restart of {target.node} can no longer be cancelled: its phase is {words(record.phase)!r}. "
            "A node is never left half restarted. "
            f"{left(record, ThisMachine().driver_of(record), access.command('restart', target.path))}"
        )
    return ""
