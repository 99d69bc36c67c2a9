"""The account of all trainings within a period, with the figures that follow from it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.goodput.account import account, best_step_seconds
from tpuwatch.goodput.poisson import mean_duration, share_up, time_between
from tpuwatch.model import NO_PROCESS, Goodput, TrainingAccount, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpuwatch.goodput.account import NodePeriods, Segment
    from tpuwatch.goodput.trainings import Training
    from tpuwatch.model import Interruption

_UNAVAILABLE = (TrainingState.STUCK, *NO_PROCESS)


class Accounted(NamedTuple):
    """A training, and its time until now."""

    training: Training
    segments: Sequence[Segment]


def accounted(trainings: Iterable[Training], node: NodePeriods, now: float) -> list[Accounted]:
    """The trainings with their time until now."""
    return [Accounted(training, account(training.attempts, node, now)) for training in trainings]


def goodput_of(trainings: Iterable[Accounted], *, since: float, now: float, workload: str = "") -> Goodput:
    """Where the time of trainings went from `since` until now; of one workload, if it is named."""
    wanted = [one for one in trainings if workload in ("", one.training.workload)]
    accounts = [found for one in wanted if (found := training_account(one, since, now)) is not None]
    seconds = {state: sum(one.seconds[state] for one in accounts) for state in TrainingState}
    interruptions = tuple(sorted((each for one in accounts for each in one.interruptions), key=lambda each: each.at))
    return _with_figures(Goodput(since, now, tuple(accounts), seconds, interruptions))


def training_account(one: Accounted, since: float, now: float) -> TrainingAccount | None:
    """Where the time of a training went; None if none of it is in the period."""
    training, attempts = one.training, one.training.attempts
    inside = list(counted_segments(one, since, now))
    if not inside:
        return None
    began, until = inside[0].since, inside[-1].until
    seconds = dict.fromkeys(TrainingState, 0.0)
    for segment in inside:
        for state, amount in segment.seconds.items():
            seconds[state] += amount
    last = attempts[-1]
    waits = last.interruption is not None and until >= now
    interruptions: tuple[Interruption, ...] = ()
    if training.shows_steps:
        found = (one.interruption for one in attempts)
        interruptions = tuple(one for one in found if one is not None and since <= one.at <= now)
    runs = [run for attempt in attempts for run in attempt.runs]
    return TrainingAccount(
        workload=training.workload,
        user=training.user,
        began=began,
        ended=None if last.ended is None or waits else until,
        launches=sum(attempt.began < now and (attempt.ended or now) > since for attempt in attempts),
        step=runs[-1].step if runs else None,
        step_seconds=best_step_seconds(attempts),
        seconds=seconds,
        interruptions=interruptions,
    )


def counted_segments(one: Accounted, since: float, now: float) -> Iterator[Segment]:
    """The time of a training within a period.

    Of one without any step only the time of its processes counts: nothing shows that it is one.
    """
    for segment in one.segments:
        inside = segment.within(since, now)
        if inside is not None and (
            one.training.shows_steps or not any(state in NO_PROCESS for state in inside.seconds)
        ):
            yield inside


def _with_figures(found: Goodput) -> Goodput:
    whole, count = found.total_seconds, len(found.interruptions)
    if not whole:
        return found
    gone = sum(found.seconds[state] for state in NO_PROCESS)
    unavailable = sum(found.seconds[state] for state in _UNAVAILABLE)
    recovered = [one.recovery_seconds for one in found.interruptions if one.recovery_seconds is not None]
    return replace(
        found,
        time_between_interruptions=time_between(whole - gone, count) if count else None,
        time_to_recover=mean_duration(recovered) if recovered else None,
        availability=share_up(whole, unavailable, count),
    )
