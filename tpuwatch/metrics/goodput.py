"""Metrics of where the time of trainings goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.model import InterruptionReason, TrainingState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.metrics.families import Families


class GoodputMetrics:
    """Metrics of goodput. For the daemon's thread."""

    def __init__(self, new: Families) -> None:
        self._seconds = new.counters(
            "tpuwatch_training_seconds_total",
            "Time of trainings by state, as each second was first seen; repeated steps are counted besides, once a "
            "later launch does them again.",
            "state",
            TrainingState,
        )
        self._interruptions = new.counters(
            "tpuwatch_interruptions_total",
            "Launches of trainings that ended though nobody wanted it, by the kind of reason.",
            "reason",
            InterruptionReason,
        )

    def count(self, seconds: Mapping[TrainingState, float], interruptions: Mapping[InterruptionReason, int]) -> None:
        """So much time has passed in each state, and so many interruptions became known."""
        for state, amount in seconds.items():
            self._seconds[state].inc(max(0.0, amount))
        for reason, number in interruptions.items():
            self._interruptions[reason].inc(number)
