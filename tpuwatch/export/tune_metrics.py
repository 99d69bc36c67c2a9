"""What tpuwatch tells Prometheus of tuning. No series knows a workload: their names are the operators'."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter

from tpuwatch.tune.changes import DIRECTIONS, VARIABLES

if TYPE_CHECKING:
    from tpuwatch.export.families import Families

RECORDS: Final = ("taken", "refused")  # what may become of what lies in the drop box
_OTHER: Final = "other"  # stands for all variables that only pins name


class TuneMetrics:
    """The part of `Metrics` that is about tuning. Its methods may be called from any thread."""

    def _add_tuning(self, new: Families) -> None:
        family = Counter(
            "tpuwatch_tune_changes_total",
            "Variables of a workload's next launch that were decided otherwise than before, by which way they went.",
            ["variable", "direction"],
            registry=new.registry,
        )
        self._tune_changes = {
            (variable, direction): family.labels(variable, direction)
            for variable in (*VARIABLES, _OTHER)
            for direction in DIRECTIONS
        }
        self._tune_workloads = new.gauge(
            "tpuwatch_tune_workloads",
            "Workloads whose next launch is decided here, as far as their launches are known.",
        )
        self._tune_stuck = new.gauge(
            "tpuwatch_tune_stuck",
            "Workloads for whose next launch no premapped buffer will do that is allowed and that memory has room for.",
        )
        self._tune_conflicts = new.gauge(
            "tpuwatch_tune_conflicts", "Workloads with needs that no size of the premapped buffer meets together."
        )
        self._tune_unwritten = new.gauge(
            "tpuwatch_tune_unwritten", "Workloads whose decided plan or environment file could not be written."
        )
        self._tune_errors = new.counter(
            "tpuwatch_tune_write_errors_total", "Times that a plan or an environment file could not be written."
        )
        self._tune_records = new.counters(
            "tpuwatch_tune_records_total",
            "Records of `tpuwatch exec` in the drop box: taken into the journal, or refused because they were none.",
            "result",
            {result: result for result in RECORDS},
        )

    def tune_changed(self, variable: str, direction: str) -> None:
        """A variable was decided otherwise."""
        self._tune_changes[variable if variable in VARIABLES else _OTHER, direction].inc()

    def tune_state(self, *, workloads: int, stuck: int, conflicts: int, unwritten: int) -> None:
        """How it stands with all workloads now."""
        self._tune_workloads.set(workloads)
        self._tune_stuck.set(stuck)
        self._tune_conflicts.set(conflicts)
        self._tune_unwritten.set(unwritten)

    def tune_write_failed(self) -> None:
        """A plan or an environment file could not be written."""
        self._tune_errors.inc()

    def tune_records(self, result: str, count: int) -> None:
        """So many files of the drop box: one of RECORDS."""
        self._tune_records[result].inc(count)
