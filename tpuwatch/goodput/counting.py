"""Counts the seconds of trainings by state as they pass, and interruptions as they become known. Pure.

A counter cannot fall: a second keeps the state that it was first seen in. Steps that a later launch repeats are counted
as repeated once that launch makes its first step, besides the state that they had.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tpuwatch.goodput.account import account
from tpuwatch.goodput.goodput import Accounted, counted_segments
from tpuwatch.model import InterruptionReason, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.goodput.account import NodePeriods


_Key = tuple[str, str, float]  # workload, user, time


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
        self._repeated: dict[_Key, float] = {}
        self._interrupted: set[_Key] = set()

    def count(self, trainings: Iterable[Accounted], node: NodePeriods, now: float) -> Counted:
        """What is new since the last call."""
        seconds = dict.fromkeys(TrainingState, 0.0)
        interruptions: Counter[InterruptionReason] = Counter()
        known_repeated: dict[_Key, float] = {}
        interrupted: set[_Key] = set()
        for one in trainings:
            training, attempts = one.training, one.training.attempts
            passed = account(attempts, node, now, since=self._at, repeats=False)
            for segment in counted_segments(Accounted(training, passed), self._at, now):
                for state, amount in segment.seconds.items():
                    seconds[state] += amount
            repeated = sum(segment.seconds.get(TrainingState.REPEATED, 0.0) for segment in one.segments)
            known_repeated[training.key] = repeated
            if training.key in self._repeated or attempts[0].began >= self._began:  # else it was counted before
                seconds[TrainingState.REPEATED] += max(0.0, repeated - self._repeated.get(training.key, 0.0))
            for each in (attempt.interruption for attempt in attempts if training.shows_steps):
                if each is None:
                    continue
                key = (training.workload, training.user, each.at)
                interrupted.add(key)
                if each.at >= self._began and key not in self._interrupted:
                    interruptions[each.reason] += 1
        self._at, self._repeated, self._interrupted = max(self._at, now), known_repeated, interrupted
        return Counted(seconds, interruptions)
