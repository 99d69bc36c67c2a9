"""Metrics of restarts: those begun, ended, blocked and under way, and the nodes that need an operator.

What is under way is a snapshot that is rendered at the scrape, from the ledger as it was read last.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram, Metric

from tpuwatch.metrics.families import Families, FamilyCollector, node_labels
from tpuwatch.model import ENDED, SWITCHED, Blocked, Phase, split_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.model import Action, RestartRecord

MAX_NODES: Final = 100  # with series of their own; the others are in the counts
MESSAGES: Final = ("sent", "failed", "dropped")  # the results of a message
# From a runtime's restart to a node that waited for capacity for half a day.
DURATION_BUCKETS: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0)
OPEN: Final = tuple(phase for phase in Phase if phase not in ENDED)
_RESULTS: Final = tuple(phase for phase in Phase if phase in ENDED)


class RestartMetrics:
    """Metrics of restarts. The methods may be called from any thread."""

    def __init__(self, new: Families) -> None:
        self._open_records: tuple[RestartRecord, ...] = ()
        self._operators_needed: Sequence[str] = ()
        self._restarts = new.counter_pairs(
            "tpuwatch_restarts_total",
            "What was done about nodes from here and has ended, by what it was and how it ended.",
            ("action", "result"),
            SWITCHED,
            _RESULTS,
        )
        durations = Histogram(
            "tpuwatch_restart_seconds",
            "How long it took until a node ran again, of what was done about nodes from here, by what it was.",
            ["action"],
            buckets=DURATION_BUCKETS,
            registry=new.registry,
        )
        self._durations = {action: durations.labels(action.value) for action in SWITCHED}
        self._begun = new.counters(
            "tpuwatch_restarts_begun_total",
            "What was begun about nodes from here because of a verdict.",
            "action",
            SWITCHED,
        )
        self.count_blocked = new.counting(
            "tpuwatch_restarts_blocked_total",
            "Decisions not to do what a verdict calls for, by reason; each is counted when it becomes another one.",
            "reason",
            Blocked,
        )
        self.count_request = new.counter(
            "tpuwatch_restart_requests_total", "Times that others were asked to restart the node that tpuwatch runs on."
        ).inc
        self._breaker_open = new.gauge(
            "tpuwatch_breaker_open",
            "1 while too many restarts have failed and none is begun, until a person closes the breaker.",
        )
        self.set_unrecorded = new.gauge(
            "tpuwatch_restarts_unrecorded",
            "Restarts that go on in memory alone, because their records cannot be written: nobody else would start "
            "these nodes.",
        ).set
        self._ledger_errors = new.counter(
            "tpuwatch_ledger_errors_total", "Times that the ledger of restarts could not be read or written."
        )
        self._ledger_up = new.gauge(
            "tpuwatch_ledger_up",
            "1 if the ledger of restarts could be used when it was needed last, 0 if it could not.",
        )
        self._ledger_up.set(1)
        self.count_webhook_message = new.counting(
            "tpuwatch_webhook_messages_total",
            "Messages to people by the webhook: sent, failed for good, or dropped because too many wait.",
            "result",
            MESSAGES,
        )
        new.registry.register(FamilyCollector(self._restart_families))

    def count_begun(self, action: Action) -> None:
        """An action on a node was begun."""
        if action in self._begun:
            self._begun[action].inc()

    def count_ended(self, action: Action, phase: Phase) -> None:
        """An action that this daemon drove ended in this phase."""
        if (action, phase) in self._restarts:
            self._restarts[action, phase].inc()

    def observe_duration(self, action: Action, seconds: float) -> None:
        """An action after which the node ran again took so long."""
        if action in self._durations:
            self._durations[action].observe(max(0.0, seconds))

    def set_state(self, *, records: Sequence[RestartRecord], breaker_open: bool) -> None:
        """The open records of the ledger and its breaker, as they were read last."""
        self._open_records = tuple(record for record in records if record.open)
        self._breaker_open.set(breaker_open)

    def set_operators_needed(self, labels: Sequence[str]) -> None:
        """The nodes that need an operator, by their labels."""
        self._operators_needed = labels

    def set_ledger(self, *, works: bool) -> None:
        """The ledger was read or written, or could not be."""
        self._ledger_up.set(works)
        if not works:
            self._ledger_errors.inc()

    def _restart_families(self) -> Iterator[Metric]:
        records = self._open_records
        count = Metric("tpuwatch_restarts_open", "Restarts that are under way, by how far they have come.", "gauge")
        tally = Tally(record.phase for record in records)
        for phase in OPEN:
            count.add_sample(count.name, {"phase": phase.value}, tally[phase])
        waiting = Metric(
            "tpuwatch_restarts_waiting_for_capacity",
            "Nodes that were stopped for a restart and whose start was refused so far; it is tried on and on.",
            "gauge",
        )
        waiting.add_sample(waiting.name, {}, sum(record.waits_for_capacity for record in records))
        entered = Metric(
            "tpuwatch_restart_phase_timestamp_seconds", "Since when a node's restart has been in its phase.", "gauge"
        )
        labels = node_labels((record.target.zone, record.target.node, record) for record in records[:MAX_NODES])
        for node, record in labels:
            entered.add_sample(entered.name, {**node, "phase": record.phase.value}, record.entered)
        needed = Metric(
            "tpuwatch_restart_person_needed",
            "1 for a node that only a person can help now, as far as is decided.",
            "gauge",
        )
        for node, _ in node_labels((*split_label(label), label) for label in self._operators_needed[:MAX_NODES]):
            needed.add_sample(needed.name, node, 1)
        yield from (count, waiting, entered, needed)
