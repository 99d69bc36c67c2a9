"""Restarts of nodes and the latest decisions as JSON, and back again for those who may not read the ledger.

First what the API serves, then what commands print.
"""

from dataclasses import asdict, dataclass, fields
from typing import Annotated

from tpuwatch.core import Time, Words, like
from tpuwatch.model.documents.words import ActionWord, SignalWord, SourceWord, VerdictWord
from tpuwatch.model.labels import split_label
from tpuwatch.model.restart import Attempt, Blocked, Breaker, Phase, RestartDecision, RestartRecord, Target
from tpuwatch.model.status import RestartBudget
from tpuwatch.model.verdict import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerDocument:
    """The breaker of all restarts."""

    open: bool
    opened: Time | None
    reason: str

    @classmethod
    def of(cls, breaker: Breaker) -> "BreakerDocument":
        """As the ledger has it."""
        return like(cls, breaker, open=breaker.opened is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """A restart that has ended."""

    action: Action
    phase: Phase
    cause: str
    began: Time
    ended: Time
    stops: int
    actor: str
    reason: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartDocument:
    """What the ledger holds of one node."""

    node: str
    zone: str
    project: str
    action: Action
    phase: Phase
    open: bool
    cause: str
    reason: str
    evidence: tuple[str, ...]
    signals: tuple[str, ...]
    sources: tuple[str, ...]
    actor: str
    requested: Time
    entered: Time
    began: Time | None
    driver: str | None
    driver_ended: bool
    operations: tuple[str, ...]
    stops: int
    tries: int
    failure: str
    not_before: Time | None
    note: str
    history: tuple[AttemptDocument, ...]

    @classmethod
    def of(cls, record: RestartRecord, *, driver: str, driver_ended: bool) -> "RestartDocument":
        """As the ledger has it. `driver`: in words; "" without one."""
        return like(
            cls,
            record,
            **asdict(record.target),
            began=record.began or None,
            driver=driver or None,
            driver_ended=driver_ended,
            not_before=record.not_before or None,
            history=tuple(like(AttemptDocument, one) for one in record.history),
        )

    def record(self) -> RestartRecord:
        """As the ledger has it, as far as the document tells."""
        known = {one.name: getattr(self, one.name) for one in fields(RestartRecord) if hasattr(self, one.name)}
        known |= {"began": self.began or 0.0, "not_before": self.not_before or 0.0}
        history = tuple(like(Attempt, one) for one in self.history)
        return RestartRecord(**{**known, "target": Target(self.project, self.zone, self.node), "history": history})


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDocument:
    """The latest decision on one node."""

    node: str
    zone: str
    at: Time
    verdict: VerdictWord
    wanted: ActionWord
    act: ActionWord | None
    blocked: Annotated[str, Words(Blocked)] | None
    sentence: str
    person_needed: bool
    retry: Time | None
    signals: tuple[SignalWord, ...]
    sources: tuple[SourceWord, ...]
    evidence: tuple[str, ...]
    against: tuple[str, ...]
    held_seconds: float

    @classmethod
    def of(cls, label: str, decision: RestartDecision) -> "DecisionDocument":
        """As it was made."""
        zone, node = split_label(label)
        needed = decision.needs_operator
        return like(cls, decision, node=node, zone=zone, person_needed=needed, retry=decision.retry_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartsDocument:
    """/api/v1/restarts: open restarts first, and the latest decisions."""

    now: Time
    mode: str
    ledger_read: Time | None
    ledger_problem: str | None
    unrecorded: tuple[str, ...]
    breaker: BreakerDocument
    budget: RestartBudget | None
    restarts: tuple[RestartDocument, ...]
    decisions: tuple[DecisionDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBreakerDocument:
    """The breaker as `tpuwatch restarts` shows it."""

    opened: Time | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRestartDocument:
    """A node's latest restart as `tpuwatch restarts` shows it."""

    node: str
    zone: str
    project: str
    action: Action
    phase: Phase
    open: bool
    entered: Time
    requested: Time
    actor: str
    cause: str
    reason: str
    driver: str | None
    alone: bool
    needs_attention: bool
    operations: tuple[str, ...]
    stops: int
    tries: int
    failure: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDocument:
    """`tpuwatch restarts`: what the ledger holds."""

    breaker: LedgerBreakerDocument
    restarts_in_window: int
    window_seconds: float
    restarts_max: int
    ledger_problem: str | None
    restarts: tuple[LedgerRestartDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRestartDocument:
    """`tpuwatch restarts history`: a restart that has ended."""

    node: str
    zone: str
    project: str
    action: Action
    phase: Phase
    cause: str
    actor: str
    reason: str
    note: str
    stops: int
    began: Time
    ended: Time
    seconds: float

    @classmethod
    def of(cls, target: Target, attempt: Attempt) -> "PastRestartDocument":
        """As the ledger has it."""
        return like(cls, attempt, **asdict(target), seconds=attempt.ended - attempt.began)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancellationDocument:
    """`tpuwatch restarts cancel`: whether a node's restart was cancelled."""

    node: str
    outcome: str  # "cancelled" or "not_cancelled"
    phase: Phase | None  # as it is now
    note: str  # what was done, or why it was not, a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerResetDocument:
    """`tpuwatch restarts reset-breaker`: who closed the breaker last."""

    outcome: str  # "reset"; "closed": it was, and nothing would have opened it
    reset: Time | None
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartResultDocument:
    """`tpuwatch restart`: what came of one node."""

    node: str
    outcome: str
    phase: Phase | None
    operations: tuple[str, ...]
    seconds: float
    zone: str
    project: str
    note: str
