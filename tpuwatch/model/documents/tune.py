"""What is decided for the next launches as JSON: first what the API serves, then what `tpuwatch tune` prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from tpuwatch.core import Time, Words, clean, like, printable
from tpuwatch.model.documents.logs import LaunchDocument
from tpuwatch.model.status import TunedStatus, TuneStatus
from tpuwatch.model.tune import Advice, Bounds, Fit, SizeDecision, SizeStep, TuneHost, VariableSetting

_ADVICE: Final = 1000  # characters: what to do stands at its end
_MAX_REASONS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDecisionDocument:
    """What is decided about the premapped buffer, and why."""

    step: Annotated[str, Words(SizeStep)]
    size_bytes: int | None
    threshold_bytes: int | None
    reasons: tuple[str, ...]
    before_bytes: int | None
    trial: bool
    conflict: str | None
    need_bytes: int | None
    ceiling_bytes: int | None
    fast_bytes: int | None
    fit: Fit | None
    advice: tuple[Advice, ...]

    @classmethod
    def of(cls, decision: SizeDecision) -> "SizeDecisionDocument":
        """As it was made."""
        return like(
            cls,
            decision,
            reasons=tuple(clean(one, _ADVICE) for one in decision.reasons[:_MAX_REASONS]),
            conflict=clean(decision.conflict, _ADVICE) or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDocument:
    """A workload: its plan and the launches behind it."""

    workload: str
    decided: Time
    launches: int
    last_launch: Time
    environment_file: str | None
    problem: str | None
    settings: tuple[VariableSetting, ...]
    decision: SizeDecisionDocument

    @classmethod
    def of(cls, one: TunedStatus) -> "TunedDocument":
        """As it was decided last."""
        plan = one.plan
        return like(
            cls,
            one,
            workload=plan.workload,
            decided=plan.decided,
            environment_file=one.file or None,
            problem=clean(one.problem, _ADVICE) or None,
            settings=tuple(
                VariableSetting(each.name, printable(each.value), clean(each.why, _ADVICE)) for each in plan.settings
            ),
            decision=SizeDecisionDocument.of(plan.decision),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneDocument:
    """/api/v1/tune: the workload that was launched last comes first."""

    now: Time
    mode: str
    directory: str
    problems: tuple[str, ...]
    workloads: tuple[TunedDocument, ...]

    @classmethod
    def of(cls, status: TuneStatus, now: float, limit: int) -> "TuneDocument":
        """As it is now; `limit` workloads."""
        return cls(
            now=now,
            mode="act" if status.acts else "observe",
            directory=status.directory,
            problems=tuple(clean(one, _ADVICE) for one in status.problems),
            workloads=tuple(map(TunedDocument.of, status.workloads[:limit])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVariableDocument:
    """A variable that the operator has set."""

    name: str
    value: str
    ours: str  # what tpuwatch would have set


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDocument:
    """What a plan makes of the environment of the command."""

    set: Mapping[str, str]
    kept: tuple[KeptVariableDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingPlanDocument:
    """The plan in the tune directory, and whether it gives what is decided now."""

    decided: Time
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLaunchDocument:
    """A workload: what is decided for its next launch, and the launches behind it."""

    workload: str
    decided: Time
    step: SizeStep
    size_bytes: int | None
    threshold_bytes: int | None
    reasons: tuple[str, ...]
    before_bytes: int | None
    trial: bool
    conflict: str
    need_bytes: int | None
    ceiling_bytes: int | None
    fast_bytes: int | None
    fit: Fit | None
    advice: tuple[Advice, ...]
    settings: tuple[VariableSetting, ...]
    environment: EnvironmentDocument
    unusable: str  # why the plan in the tune directory cannot be used, a clause
    stored: StandingPlanDocument | None
    host: TuneHost
    warnings: tuple[str, ...]
    reset: Time | None
    launches: tuple[LaunchDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSourceDocument:
    """Where launches were found."""

    kind: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLaunchesDocument:
    """`tpuwatch tune`: the workload that was launched last comes last."""

    mode: str
    directory: str
    source: TuneSourceDocument
    bounds: Bounds
    workloads: tuple[NextLaunchDocument, ...]
    written: tuple[str, ...]
    would_write: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLogDocument:
    """A log file of libtpu that is, or was to be, removed."""

    path: str
    size_bytes: int
    written: Time
    why: str
    spared: str | None  # why it was left


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneDocument:
    """`tpuwatch tune --prune-logs`."""

    dry_run: bool
    removed: tuple[OldLogDocument, ...]
    spared: tuple[OldLogDocument, ...]
    freed_bytes: int
    left_bytes: int
    problems: tuple[str, ...]
