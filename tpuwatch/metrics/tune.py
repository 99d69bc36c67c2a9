"""Metrics of tuning. No label holds a workload's name: operators choose those freely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.libtpu import TUNED_VARIABLES
from tpuwatch.model import DIRECTIONS

if TYPE_CHECKING:
    from tpuwatch.metrics.families import Families

RECORDS: Final = ("taken", "refused")  # the results of reading the drop box
_OTHER: Final = "other"  # all variables that only overrides name


class TuneMetrics:
    """Metrics of tuning. The methods may be called from any thread."""

    def __init__(self, new: Families) -> None:
        self._tune_changes = new.counter_pairs(
            "tpuwatch_tune_changes_total",
            "Variables of a workload's next launch that were decided otherwise than before, by which way they went.",
            ("variable", "direction"),
            (*TUNED_VARIABLES, _OTHER),
            DIRECTIONS,
        )
        self._tune_workloads = new.gauge(
            "tpuwatch_tune_workloads",
            "Workloads whose next launch is decided here, as far as their launches are known.",
        )
        self._tune_unsatisfiable = new.gauge(
            "tpuwatch_tune_workloads_unsatisfiable",
            "Workloads for whose next launch no premapped buffer will do that is allowed and that memory has room for.",
        )
        self._tune_conflicts = new.gauge(
            "tpuwatch_tune_conflicts", "Workloads with needs that no size of the premapped buffer meets together."
        )
        self._tune_write_failures = new.gauge(
            "tpuwatch_tune_write_failed", "Workloads whose decided plan or environment file could not be written."
        )
        self.count_write_failure = new.counter(
            "tpuwatch_tune_write_errors_total", "Times that a plan or an environment file could not be written."
        ).inc
        self._tune_records = new.counters(
            "tpuwatch_tune_records_total",
            "Records of `tpuwatch exec` in the drop box: taken into the store, or refused because they were none.",
            "result",
            RECORDS,
        )

    def count_change(self, variable: str, direction: str) -> None:
        """The decision on a variable changed."""
        self._tune_changes[variable if variable in TUNED_VARIABLES else _OTHER, direction].inc()

    def set_state(self, *, workloads: int, unsatisfiable: int, conflicts: int, write_failed: int) -> None:
        """The state of all workloads now."""
        self._tune_workloads.set(workloads)
        self._tune_unsatisfiable.set(unsatisfiable)
        self._tune_conflicts.set(conflicts)
        self._tune_write_failures.set(write_failed)

    def count_records(self, result: str, count: int) -> None:
        """Files of the drop box with this result, one of RECORDS."""
        self._tune_records[result].inc(count)
