"""Where the time of trainings goes, as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from tpuwatch.core import Digits, Time, Words, like
from tpuwatch.model.goodput import (
    Estimate,
    Goodput,
    Interruption,
    InterruptionReason,
    TrainingAccount,
    TrainingState,
    shares,
)

Seconds = Annotated[float, Digits(3)]
Share = Annotated[float, Digits(4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimeDocument:
    """The time in one state."""

    state: Annotated[str, Words(TrainingState)]
    seconds: Seconds
    share: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateDocument:
    """A figure with the interval that has it with 95 %; null where there are too few interruptions for one."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionDocument:
    """The end of a launch that nobody wanted."""

    at: Time
    reason: Annotated[str, Words(InterruptionReason)]
    cause: str
    recovery_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAccountDocument:
    """Where the time of one training went."""

    workload: str
    user: str
    began: Time
    ended: Time | None
    launches: int
    step: int | None
    step_seconds: float | None
    states: tuple[StateTimeDocument, ...]

    @classmethod
    def of(cls, account: TrainingAccount) -> "TrainingAccountDocument":
        """As it is known."""
        return like(cls, account, states=_states(account.seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputDocument:
    """/api/v1/goodput."""

    since: Time
    until: Time
    goodput: float | None
    google_goodput: float | None
    total_seconds: Seconds
    lost_seconds: Seconds
    sentence: str
    states: tuple[StateTimeDocument, ...]
    interruptions: tuple[InterruptionDocument, ...]
    time_between_interruptions: EstimateDocument | None
    time_to_recover: EstimateDocument | None
    availability: EstimateDocument | None
    trainings: tuple[TrainingAccountDocument, ...]

    @classmethod
    def of(cls, goodput: Goodput) -> "GoodputDocument":
        """As it is known."""
        return like(
            cls,
            goodput,
            sentence=goodput.lost_sentence() if goodput.trainings else "",
            states=_states(goodput.seconds),
            interruptions=tuple(map(_interruption, goodput.interruptions)),
            time_between_interruptions=_estimate(goodput.time_between_interruptions),
            time_to_recover=_estimate(goodput.time_to_recover),
            availability=_estimate(goodput.availability),
            trainings=tuple(map(TrainingAccountDocument.of, goodput.trainings)),
        )


def _states(seconds: Mapping[TrainingState, float]) -> tuple[StateTimeDocument, ...]:
    parts = shares(seconds)
    return tuple(
        StateTimeDocument(state=state.value, seconds=seconds[state], share=parts[state])
        for state in TrainingState
        if state in seconds
    )


def _interruption(interruption: Interruption) -> InterruptionDocument:
    return like(InterruptionDocument, interruption)


def _estimate(estimate: Estimate | None) -> EstimateDocument | None:
    return None if estimate is None else like(EstimateDocument, estimate)
