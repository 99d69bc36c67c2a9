"""The account of all trainings within a period, with the figures that follow from it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.goodput.account import account, best_step_seconds
from tpuwatch.goodput.poisson import mean_duration, share_up, time_between
from tpuwatch.model import NO_PROCESS, Goodput, TrainingAccount, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.goodput.account import NodePeriods
    from tpuwatch.goodput.trainings import Training
    from tpuwatch.model import Interruption

_UNAVAILABLE = (TrainingState.STUCK, *NO_PROCESS)


def goodput_of(
    trainings: Iterable[Training], node: NodePeriods, *, since: float, now: float, workload: str = ""
) -> Goodput:
    """Where the time of trainings went from `since` until now; of one workload, if it is named."""
    wanted = [one for one in trainings if workload in ("", one.workload)]
    accounts = [found for one in wanted if (found := training_account(one, node, since, now)) is not None]
    seconds = {state: sum(one.seconds[state] for one in accounts) for state in TrainingState}
    interruptions = tuple(sorted(each for one in accounts for each in one.interruptions))
    return _with_figures(Goodput(since, now, tuple(accounts), seconds, interruptions))


def training_account(
    training: Training, node: NodePeriods, since: float, now: float, *, repeats: bool = True
) -> TrainingAccount | None:
    """Where the time of a training went; None if none of it is in the period.

    Of one without any step only the time of its processes counts: nothing shows that it is one.
    """
    attempts = training.attempts
    segments = account(attempts, node, now, repeats=repeats)
    seconds = dict.fromkeys(TrainingState, 0.0)
    began = until = None
    for segment in segments:
        inside = segment.within(since, now)
        if inside is None or (not training.shows_steps and any(state in NO_PROCESS for state in inside.seconds)):
            continue
        began, until = inside.since if began is None else began, inside.until
        for state, amount in inside.seconds.items():
            seconds[state] += amount
    if began is None or until is None:
        return None
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
