"""Metrics of training loops. Without a loop there is no series of one: 0 would be a claim."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Metric

from tpuwatch.metrics.families import Families, FamilyCollector
from tpuwatch.model import LOOP_FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.model import TrainingLoop

# By the field of TrainingLoop: of the loop that comes first.
_OF_THE_FIRST: Final = {
    "step": ("step", "The latest step of the training loop."),
    "stepped": ("last_step_timestamp_seconds", "When the training loop made its latest step."),
    "step_seconds": ("step_seconds", "The median time of the loop's latest steps."),
    "usual_step_seconds": ("baseline_step_seconds", "The step time that the loop's steps are compared with."),
    "input_share": ("input_wait_ratio", "Share of the time of the latest steps in which the loop waited for input."),
    "loss": ("loss", "The latest loss that the loop reports."),
    "tokens_per_second": ("tokens_per_second", "The tokens a second that the loop reports."),
}
RESULTS: Final = ("taken", "malformed", "too_many")  # of heartbeats


class ProgressMetrics:
    """Metrics of progress. The loops may be set from any thread; the last ones count."""

    def __init__(self, new: Families) -> None:
        self._loops: Sequence[TrainingLoop] = ()
        self.count_heartbeat = new.counting(
            "tpuwatch_heartbeats_total",
            "Heartbeats of training loops that were received: taken, or dropped as malformed or of too many loops.",
            "result",
            RESULTS,
        )
        new.registry.register(FamilyCollector(self._families))

    def set_loops(self, loops: Sequence[TrainingLoop]) -> None:
        """All loops that are known, the one that counts first."""
        self._loops = loops

    def _families(self) -> Iterator[Metric]:
        running = [loop for loop in self._loops if loop.is_running]
        for field, (name, text) in _OF_THE_FIRST.items():
            family = Metric(f"tpuwatch_workload_{name}", text, "gauge")
            value = getattr(running[0], field) if running else None
            if value is not None:
                family.add_sample(family.name, {}, value)
            yield family
        yield from _slowdown(running)
        family = Metric("tpuwatch_workload_loops", "Training loops that run.", "gauge")
        family.add_sample(family.name, {}, len(running))
        yield family
        family = Metric("tpuwatch_workload_loop_faults", "Training loops that run with a fault, by its cause.", "gauge")
        held = Tally(cause for loop in running for cause in loop.faults)
        for cause in LOOP_FAULTS:
            family.add_sample(family.name, {"cause": cause.value}, held[cause])
        yield family


def _slowdown(running: Sequence[TrainingLoop]) -> Iterator[Metric]:
    """How slow the first loop is: 0 while its baseline is known and it is not."""
    first = running[0] if running else None
    slow = first.slowdown if first is not None else None
    known = first is not None and (slow is not None or first.usual_step_seconds is not None)
    text = "How much longer than their baseline the steps of the loop take, or the share of time more in pauses."
    ratio = Metric("tpuwatch_workload_slowdown_ratio", text, "gauge")
    since = Metric("tpuwatch_workload_slow_since_timestamp_seconds", "Since when the loop is slower; 0: not.", "gauge")
    if known:
        ratio.add_sample(ratio.name, {}, 0.0 if slow is None else slow.slower)
        since.add_sample(since.name, {}, 0.0 if slow is None else slow.since)
    yield ratio
    yield since
