"""Counts the seconds of trainings by state as they pass, and interruptions as they become known. Pure.

A counter cannot fall: a second keeps the state that it was first seen in. Steps that a later launch repeats are counted
as repeated once that launch makes its first step, besides the state that they had.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.goodput.goodput import training_account
from tpuwatch.model import InterruptionReason, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.goodput.account import NodePeriods
    from tpuwatch.goodput.trainings import Training


class Counted(NamedTuple):
    """The growth of the counters."""

    seconds: Mapping[TrainingState, float]
    interruptions: Mapping[InterruptionReason, int]


class GoodputCounter:
    """Counts what is new at each call."""

    def __init__(self, now: float) -> None:
        """`now`: the time from which seconds are counted."""
        self._at = now
        self._began = now
        self._repeated: dict[tuple[str, str, float], float] = {}
        self._interrupted: set[tuple[str, str, float]] = set()

    def count(self, trainings: Iterable[Training], node: NodePeriods, now: float) -> Counted:
        """What is new since the last call."""
        seconds = dict.fromkeys(TrainingState, 0.0)
        interruptions: Counter[InterruptionReason] = Counter()
        whole_repeated: dict[tuple[str, str, float], float] = {}
        interrupted: set[tuple[str, str, float]] = set()
        for training in trainings:
            passed = training_account(training, node, self._at, now, repeats=False)
            if passed is not None:
                _add(seconds, passed.seconds)
            whole = training_account(training, node, 0.0, now)
            if whole is None:
                continue
            repeated = whole_repeated[training.key] = whole.seconds[TrainingState.REPEATED]
            if training.key in self._repeated or training.attempts[0].began >= self._began:  # else counted before
                seconds[TrainingState.REPEATED] += max(0.0, repeated - self._repeated.get(training.key, 0.0))
            for one in whole.interruptions:
                known = (training.workload, training.user, one.at)
                interrupted.add(known)
                if one.at >= self._began and known not in self._interrupted:
                    interruptions[one.reason] += 1
        self._at, self._repeated, self._interrupted = max(self._at, now), whole_repeated, interrupted
        return Counted(seconds, interruptions)


def _add(seconds: dict[TrainingState, float], more: Mapping[TrainingState, float]) -> None:
    for state, amount in more.items():
        seconds[state] += amount
