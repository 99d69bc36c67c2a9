"""Metrics of what is read from logs: the reading itself, the events and the launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram

from tpuwatch.model import Cause, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.metrics.families import Families

SEVERITIES: Final = {"I": "info", "W": "warning", "E": "error", "F": "fatal"}
FINAL_OUTCOMES: Final[tuple[Outcome, ...]] = tuple(outcome for outcome in Outcome if outcome is not Outcome.STARTING)
# 15 s is where a launch counts as slow; 300 s is the compile grace.
INIT_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0)


class LogMetrics:
    """Metrics of events, launches and log files. For the thread that reads the logs."""

    def __init__(self, new: Families, refusals: Iterable[str]) -> None:
        """`refusals` are all reasons for which a file is not read."""
        events = new.counters(
            "tpuwatch_events_total",
            "Faults recognised in logs, by cause; what stood there before tpuwatch first ran is not counted.",
            "cause",
            [cause for cause in Cause if cause.is_fault],
        )
        backlog_events = new.counter(
            "tpuwatch_backlog_events_total",
            "Faults that stood in the logs before tpuwatch first ran here; they are stored and alert nothing.",
        )
        # Failures and launches are counted once, and never for history.
        premapped_failures = new.counter(
            "tpuwatch_premapped_failures_total",
            "Allocations that failed because the premapped host buffer was too small.",
        )
        launches = new.counters(
            "tpuwatch_launches_total",
            "Processes that tried to bring the TPU up, by how it went: ok, slow, failed, silent or killed.",
            "outcome",
            FINAL_OUTCOMES,
        )
        self._totals = {
            **{("events", cause.value): counter for cause, counter in events.items()},
            ("backlog_events", ""): backlog_events,
            ("premapped_failures", ""): premapped_failures,
            **{("launches", outcome.value): counter for outcome, counter in launches.items()},
        }
        self._init = Histogram(
            "tpuwatch_tpu_init_seconds",
            "How long TPU initialisation took, as libtpu reports it.",
            buckets=INIT_BUCKETS,
            registry=new.registry,
        )
        self._last_init = new.gauge(
            "tpuwatch_last_init_seconds", "How long the latest TPU initialisation took; 0 until one has been seen."
        )
        self.set_premapped_size = new.gauge(
            "tpuwatch_premapped_buffer_bytes",
            "Size of the premapped host buffer that the latest launch announced; 0 until one has been seen.",
        ).set
        self._read = new.counter("tpuwatch_log_read_bytes_total", "Bytes read from all followed logs.")
        self._last_read = new.gauge(
            "tpuwatch_log_last_read_timestamp_seconds",
            "When something was last read from any followed log; 0 until then.",
        )
        self.set_lag = new.gauge(
            "tpuwatch_log_lag_bytes", "Bytes that stand in followed logs and are not read yet."
        ).set
        self._records = new.counters(
            "tpuwatch_log_records_total",
            "Records read from libtpu's own logs, by severity.",
            "severity",
            SEVERITIES.values(),
        )
        self._files = new.gauge(
            "tpuwatch_log_files",
            "Log files found now: followed, or refused because they cannot be read or must not be trusted.",
            "state",
        )
        self.set_files(followed=0, refused=0)
        self.set_watched = new.gauge(
            "tpuwatch_log_inotify_up",
            "1 while inotify reports writes to logs, 0 while the system has no more watches and logs are polled.",
        ).set
        self.set_watched(True)
        self.count_refused = new.counting(
            "tpuwatch_log_refused_total",
            "Files that match the configured logs and were not read, by reason; the status page names them.",
            "reason",
            refusals,
        )
        self.count_lost = new.counter(
            "tpuwatch_log_lost_bytes_total",
            "Bytes that were gone before they were read: the log was truncated, or deleted or moved away.",
        ).inc
        self.count_truncation = new.counter(
            "tpuwatch_log_truncations_total", "Times that a followed log was cut short or overwritten in place."
        ).inc
        self.count_report_failure = new.counter(
            "tpuwatch_log_report_failures_total",
            "Times that something stored could not be counted or passed on; tpuwatch's log has the reason.",
        ).inc

    def count(self, series: str, label: str, number: int) -> None:
        """Something was stored, and is new: add to `events` (by cause), `backlog_events` (faults that are history),
        `launches` (by outcome) or `premapped_failures`. `label` is empty where there is none.

        Raises KeyError for a series that is not declared.
        """
        self._totals[series, label].inc(number)

    def restore(self, totals: Mapping[tuple[str, str], int]) -> None:
        """Begin with what earlier runs have counted, of the series that this version knows."""
        for total in totals.keys() & self._totals.keys():
            self._totals[total].inc(totals[total])

    def observe_init(self, seconds: float) -> None:
        """A TPU initialisation that took `seconds` was seen."""
        self._init.observe(seconds)
        self._last_init.set(seconds)

    def count_read(self, size: int, at: float) -> None:
        """`size` bytes were read from the logs, the last of them at the time `at`."""
        self._read.inc(size)
        self._last_read.set(at)

    def count_records(self, counts: Mapping[str, int]) -> None:
        """Records were read: how many, by libtpu's severity letter (I, W, E, F)."""
        for letter, count in counts.items():
            self._records[SEVERITIES[letter]].inc(count)

    def set_files(self, *, followed: int, refused: int) -> None:
        """The numbers of files that are followed and refused now."""
        self._files.labels("followed").set(followed)
        self._files.labels("refused").set(refused)
