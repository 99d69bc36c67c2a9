"""Metrics of tpuwatch itself: its store, rules, configuration, loops and HTTP server."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from prometheus_client import Info, ProcessCollector

from tpuwatch import __version__
from tpuwatch.model import PROBLEM_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.metrics.families import Families

HTTP_CODES: Final = ("200", "400", "401", "404", "405", "421", "431", "500", "503", "other")


def add_build(new: Families) -> None:
    """The process's own metrics and the versions that run."""
    ProcessCollector(registry=new.registry)
    build = Info("tpuwatch_build", "The version of tpuwatch that runs here, and of its Python.", registry=new.registry)
    build.info({"version": __version__, "python": platform.python_version()})


class DaemonMetrics:
    """Metrics of the daemon. The methods may be called from any thread."""

    def __init__(self, new: Families, loops: Iterable[str]) -> None:
        """`loops` are the names of all loops that report a success."""
        self.count_store_error = new.counter(
            "tpuwatch_store_errors_total", "Writes to the store that failed and are tried again."
        ).inc
        self._store_durable = new.gauge(
            "tpuwatch_store_durable",
            "1 while events reach the disk, 0 while they are held in memory only and a crash would lose them.",
        )
        self._store_events = new.gauge("tpuwatch_store_events", "Events that the store holds now, history among them.")
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
        self._loop_success = new.gauge(
            "tpuwatch_loop_last_success_timestamp_seconds",
            "When each loop of tpuwatch last finished a turn without error; 0 until its first.",
            "loop",
        )
        self._loop_seconds = new.gauge(
            "tpuwatch_loop_turn_seconds", "How long the last turn of each loop took, waits for others included.", "loop"
        )
        self._loops: set[str] = set()
        self.set_loops(loops)
        self._problems = new.gauge(
            "tpuwatch_problems",
            "What is wrong now, as `tpuwatch status` and the page count it: bad nodes, findings that are not over, "
            "queued resources with a problem, and why tpuwatch itself does not do its work.",
            "kind",
        )
        self.set_problems(dict.fromkeys(PROBLEM_KINDS, 0))
        self._finding = new.gauge(
            "tpuwatch_finding",
            "1 for each cause of a finding that is not over, as `tpuwatch status` shows it; others have no series.",
            "cause",
        )
        self._found: set[str] = set()
        self._requests = new.counters(
            "tpuwatch_http_requests_total",
            "Requests that tpuwatch's own HTTP server answered, by status code.",
            "code",
            HTTP_CODES,
        )

        self.set_certificate_expiry = new.gauge(
            "tpuwatch_http_certificate_expiry_timestamp_seconds",
            "When the certificate that tpuwatch's own HTTP server uses ends; 0 without TLS.",
        ).set

    def set_store(self, *, durable: bool, events: int) -> None:
        """The store holds `events` events; `durable`: new ones reach the disk."""
        self._store_durable.set(durable)
        self._store_events.set(events)

    def set_rules(self, *, loaded: int, refused: int) -> None:
        """A catalogue came into use."""
        self._rules_loaded.set(loaded)
        self._rules_refused.set(refused)

    def set_config(self, *, success: bool, at: float) -> None:
        """A configuration was read at the time `at`; without `success` the one before stays active."""
        self._config_success.set(success)
        if success:
            self._config_time.set(at)

    def set_loops(self, names: Iterable[str]) -> None:
        """The loops that run from now on; others lose their series."""
        before, self._loops = self._loops, set(names)
        for family in (self._loop_success, self._loop_seconds):
            for ended in before - self._loops:
                family.remove(ended)
            for name in sorted(self._loops):
                family.labels(name)

    def set_loop_success(self, loop: str, at: float, seconds: float) -> None:
        """A loop finished a turn of `seconds` at the time `at`. One that no longer runs is ignored."""
        if loop in self._loops:
            self._loop_success.labels(loop).set(at)
            self._loop_seconds.labels(loop).set(seconds)

    def set_problems(self, counts: Mapping[str, int]) -> None:
        """How many problems there are of each kind."""
        for kind, number in counts.items():
            self._problems.labels(kind).set(number)

    def set_findings(self, causes: Iterable[str]) -> None:
        """These causes have findings that are not over; others lose their series."""
        before, self._found = self._found, set(causes)
        for over in before - self._found:
            self._finding.remove(over)
        for cause in self._found:
            self._finding.labels(cause).set(1)

    def count_http_request(self, code: int) -> None:
        """A request was answered with the status `code`."""
        self._requests.get(str(code), self._requests["other"]).inc()
