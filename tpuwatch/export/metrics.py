"""What tpuwatch tells Prometheus.

One `Metrics` holds one registry; nothing is global. Each method names a thing that happens and takes only enums,
numbers and names that were declared at the start, so the text of a log can never become a series. Sizes are bytes,
durations seconds, times seconds since the Unix epoch.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from tpuwatch import __version__
from tpuwatch.export.agent_metrics import AgentMetrics
from tpuwatch.export.families import Families, WithoutCreated
from tpuwatch.export.node_metrics import NodeMetrics
from tpuwatch.export.restart_metrics import RestartMetrics
from tpuwatch.export.tune_metrics import TuneMetrics
from tpuwatch.model import Cause, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEVERITIES: Final = {"I": "info", "W": "warning", "E": "error", "F": "fatal"}
ENDED: Final[tuple[Outcome, ...]] = tuple(outcome for outcome in Outcome if outcome is not Outcome.STARTING)
HTTP_CODES: Final = ("200", "400", "404", "405", "431", "500", "503", "other")
# 15 s is where a launch counts as slow; 300 s is the compile grace.
INIT_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0)


class Metrics(NodeMetrics, RestartMetrics, AgentMetrics, TuneMetrics):
    """All series of one tpuwatch process, each there from the start: at 0 until something happens."""

    def __init__(self, *, loops: Iterable[str], refusals: Iterable[str]) -> None:
        """`loops` are the names of all loops that will report a success, `refusals` all reasons not to read a file."""
        families = Families()
        ProcessCollector(registry=families.registry)
        build = Info(
            "tpuwatch_build", "The version of tpuwatch that runs here, and of its Python.", registry=families.registry
        )
        build.info({"version": __version__, "python": platform.python_version()})
        self._add_events(families)
        self._add_launches(families)
        self._add_logs(families, refusals)
        self._add_own_state(families, loops)
        super().__init__(families)
        self._add_restarts(families)
        self._add_agents(families)
        self._add_tuning(families)
        self._shown = CollectorRegistry()
        self._shown.register(WithoutCreated(families.registry))

    def _add_events(self, new: Families) -> None:
        self._events = new.counters(
            "tpuwatch_events_total",
            "Faults recognised in logs, by cause; what stood there before tpuwatch first ran is not counted.",
            "cause",
            {cause: cause.value for cause in Cause if cause.is_fault},
        )
        self._history = new.counter(
            "tpuwatch_history_events_total",
            "Faults that stood in the logs before tpuwatch first ran here; they are stored and alert nothing.",
        )
        self._premapped_failures = new.counter(
            "tpuwatch_premapped_failures_total",
            "Allocations that failed because the premapped host buffer was too small.",
        )

    def _add_launches(self, new: Families) -> None:
        self._launches = new.counters(
            "tpuwatch_launches_total",
            "Processes that tried to bring the TPU up, by how it went: ok, slow, failed, silent or killed.",
            "outcome",
            {outcome: outcome.value for outcome in ENDED},
        )
        self._init = Histogram(
            "tpuwatch_tpu_init_seconds",
            "How long TPU initialisation took, as libtpu reports it.",
            buckets=INIT_BUCKETS,
            registry=new.registry,
        )
        self._last_init = new.gauge(
            "tpuwatch_last_init_seconds", "How long the latest TPU initialisation took; 0 until one has been seen."
        )
        self._premapped = new.gauge(
            "tpuwatch_premapped_buffer_bytes",
            "Size of the premapped host buffer that the latest launch announced; 0 until one has been seen.",
        )

    def _add_logs(self, new: Families, refusals: Iterable[str]) -> None:
        self._read = new.counter("tpuwatch_log_read_bytes_total", "Bytes read from all followed logs.")
        self._last_read = new.gauge(
            "tpuwatch_log_last_read_timestamp_seconds",
            "When something was last read from any followed log; 0 until then.",
        )
        self._lag = new.gauge("tpuwatch_log_lag_bytes", "Bytes that stand in followed logs and are not read yet.")
        self._records = new.counters(
            "tpuwatch_log_records_total", "Records read from libtpu's own logs, by severity.", "severity", SEVERITIES
        )
        self._files = new.gauges(
            "tpuwatch_log_files",
            "Log files found now: followed, or refused because they cannot be read or must not be trusted.",
            "state",
            ("followed", "refused"),
        )
        self._refused = new.counters(
            "tpuwatch_log_refused_total",
            "Files that match the configured logs and were not read, by reason; the status page names them.",
            "reason",
            {reason: reason for reason in refusals},
        )
        self._truncations = new.counter(
            "tpuwatch_log_truncations_total", "Times that a followed log was cut short or overwritten in place."
        )

    def _add_own_state(self, new: Families, loops: Iterable[str]) -> None:
        self._journal_errors = new.counter(
            "tpuwatch_journal_errors_total", "Writes to the journal that failed and are tried again."
        )
        self._journal_durable = new.gauge(
            "tpuwatch_journal_durable",
            "1 while events reach the disk, 0 while they are held in memory only and a crash would lose them.",
        )
        self._journal_events = new.gauge(
            "tpuwatch_journal_events", "Events that the journal holds now, history among them."
        )
        self._rules_loaded = new.gauge("tpuwatch_rules_loaded", "Rules of the catalogue that are in use.")
        self._rules_refused = new.gauge(
            "tpuwatch_rules_refused", "Rules that are not in use because they are wrong; tpuwatch's log names them."
        )
        self._config_success = new.gauge(
            "tpuwatch_config_reload_success",
            "1 if the configuration read last is good, 0 if it is bad and the one before stays in force.",
        )
        self._config_time = new.gauge(
            "tpuwatch_config_last_reload_timestamp_seconds", "When a configuration last came into force."
        )
        self._loop_family = Gauge(
            "tpuwatch_loop_last_success_timestamp_seconds",
            "When each loop of tpuwatch last finished a turn without error; 0 until its first.",
            ["loop"],
            registry=new.registry,
        )
        self._turn_family = Gauge(
            "tpuwatch_loop_turn_seconds",
            "How long the last turn of each loop took, waits for others included.",
            ["loop"],
            registry=new.registry,
        )
        self._loops: dict[str, tuple[Gauge, Gauge]] = {}
        self.loops(loops)
        self._requests = new.counters(
            "tpuwatch_http_requests_total",
            "Requests that tpuwatch's own HTTP server answered, by status code.",
            "code",
            {code: code for code in HTTP_CODES},
        )

    def event(self, cause: Cause, *, history: bool = False) -> None:
        """A fault was stored, and is new; `history` as in `Event.history`. Copies of a record must not be reported."""
        if history:
            self._history.inc()
        else:
            self._events[cause].inc()

    def premapped_failed(self) -> None:
        """An allocation was found to have failed because the premapped buffer had no room; never for history."""
        self._premapped_failures.inc()

    def launch(self, outcome: Outcome) -> None:
        """A launch has ended its start: once per launch, never with STARTING, never for history."""
        self._launches[outcome].inc()

    def init_seconds(self, seconds: float) -> None:
        """A TPU initialisation that took `seconds` was seen."""
        self._init.observe(seconds)
        self._last_init.set(seconds)

    def premapped(self, size: int) -> None:
        """A launch announced a premapped host buffer of `size` bytes."""
        self._premapped.set(size)

    def read(self, size: int, at: float) -> None:
        """`size` bytes were read from the logs, the last of them at the time `at`."""
        self._read.inc(size)
        self._last_read.set(at)

    def records(self, counts: Mapping[str, int]) -> None:
        """Records were read: how many, by libtpu's severity letter (I, W, E, F)."""
        for letter, count in counts.items():
            self._records[letter].inc(count)

    def lag(self, size: int) -> None:
        """`size` bytes of the followed files are not read yet."""
        self._lag.set(size)

    def files(self, *, followed: int, refused: int) -> None:
        """So many files are followed now, and so many refused."""
        self._files["followed"].set(followed)
        self._files["refused"].set(refused)

    def refused(self, reason: str) -> None:
        """A file was newly refused, for one of the declared reasons."""
        self._refused[reason].inc()

    def truncation(self) -> None:
        """A followed file became shorter, or other bytes stand where it had been read."""
        self._truncations.inc()

    def journal_error(self) -> None:
        """A commit to the journal failed."""
        self._journal_errors.inc()

    def journal(self, *, durable: bool, events: int) -> None:
        """The journal holds `events` events; `durable` says whether new ones reach the disk."""
        self._journal_durable.set(durable)
        self._journal_events.set(events)

    def rules(self, *, loaded: int, refused: int) -> None:
        """A catalogue came into use."""
        self._rules_loaded.set(loaded)
        self._rules_refused.set(refused)

    def config(self, *, success: bool, at: float) -> None:
        """A configuration was read at the time `at`; without `success` the one before stays in force."""
        self._config_success.set(success)
        if success:
            self._config_time.set(at)

    def loops(self, names: Iterable[str]) -> None:
        """From now on these are the loops that run; the others lose their series."""
        names = set(names)
        for ended in self._loops.keys() - names:
            self._loop_family.remove(ended)
            self._turn_family.remove(ended)
        self._loops = {name: (self._loop_family.labels(name), self._turn_family.labels(name)) for name in sorted(names)}

    def loop_success(self, loop: str, at: float, seconds: float) -> None:
        """A loop finished a turn of `seconds` at the time `at`. One that does not run any more is not heard."""
        if loop in self._loops:
            last, turn = self._loops[loop]
            last.set(at)
            turn.set(seconds)

    def http_request(self, code: int) -> None:
        """A request was answered with the status `code`."""
        self._requests.get(str(code), self._requests["other"]).inc()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The scrape and its content type: OpenMetrics or Prometheus' text, as the Accept header asks."""
        try:
            encode, content_type = choose_encoder(accept)
        except (
            TypeError,
            ValueError,
        ):  # a version that is no number: the client's fault, and plain text still serves it
            encode, content_type = choose_encoder("")
        return encode(self._shown), content_type
