"""What tpuwatch tells Prometheus of restarts: what was done and what not, what is under way, and who has to be called.

What is under way is a snapshot that is rendered at the scrape, from the ledger as it was read last.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Metric

from tpuwatch.export.families import Families, Snapshot
from tpuwatch.restart.policy.decision import Blocked
from tpuwatch.restart.policy.settings import SWITCHED
from tpuwatch.restart.record import ENDED, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.health.verdict import Rung
    from tpuwatch.restart.record import Record

MOST_NODES: Final = 100  # that have series of their own; the others are in the counts
MESSAGES: Final = ("sent", "failed", "dropped")  # what may become of one
OPEN: Final = tuple(phase for phase in Phase if phase not in ENDED)
_RESULTS: Final = tuple(phase for phase in Phase if phase in ENDED)
_LABEL: Final = re.compile(r"[A-Za-z0-9._:/-]{1,200}")


class RestartMetrics:
    """The part of `Metrics` that is about restarts. Its methods may be called from any thread."""

    def _add_restarts(self, new: Families) -> None:
        self._open_records: tuple[Record, ...] = ()
        family = Counter(
            "tpuwatch_restarts_total",
            "What was done about nodes from here and has ended, by what it was and how it ended.",
            ["action", "result"],
            registry=new.registry,
        )
        self._restarts = {
            (rung, phase): family.labels(rung.value, phase.value) for rung in SWITCHED for phase in _RESULTS
        }
        self._begun = new.counters(
            "tpuwatch_restarts_begun_total",
            "What was begun about nodes from here because of a verdict.",
            "action",
            {rung: rung.value for rung in SWITCHED},
        )
        self._blocked = new.counters(
            "tpuwatch_restarts_blocked_total",
            "Decisions not to do what a verdict calls for, by reason; each is counted when it becomes another one.",
            "reason",
            {blocked: blocked.value for blocked in Blocked},
        )
        self._restart_requests = new.counter(
            "tpuwatch_restart_requests_total", "Times that others were asked to restart the node that tpuwatch runs on."
        )
        self._breaker_open = new.gauge(
            "tpuwatch_breaker_open",
            "1 while too many restarts have failed and none is begun, until a person closes the breaker.",
        )
        self._persons = new.gauge(
            "tpuwatch_restart_person_needed", "Watched nodes that only a person can help now, as far as is decided."
        )
        self._ledger_errors = new.counter(
            "tpuwatch_ledger_errors_total", "Times that the ledger of restarts could not be read or written."
        )
        self._ledger_up = new.gauge(
            "tpuwatch_ledger_up",
            "1 if the ledger of restarts could be used when it was needed last, 0 if it could not.",
        )
        self._ledger_up.set(1)
        self._webhook = new.counters(
            "tpuwatch_webhook_messages_total",
            "Messages to people by the webhook: sent, failed for good, or dropped because too many wait.",
            "result",
            {result: result for result in MESSAGES},
        )
        new.registry.register(Snapshot(self._restart_families))

    def restart_begun(self, rung: Rung) -> None:
        """Something was begun about a node."""
        if rung in self._begun:
            self._begun[rung].inc()

    def restart_ended(self, rung: Rung, phase: Phase) -> None:
        """What was driven from here has ended so."""
        if (rung, phase) in self._restarts:
            self._restarts[rung, phase].inc()

    def restart_blocked(self, blocked: Blocked) -> None:
        """What a verdict calls for is not done, for another reason than before."""
        self._blocked[blocked].inc()

    def restart_requested(self) -> None:
        """Those who watch the own node were asked to restart it."""
        self._restart_requests.inc()

    def restart_state(self, *, records: Sequence[Record], breaker_open: bool) -> None:
        """The open records of the ledger and its breaker, as they were read last."""
        self._open_records = tuple(record for record in records if record.open)
        self._breaker_open.set(breaker_open)

    def restart_persons(self, count: int) -> None:
        """So many watched nodes need a person now."""
        self._persons.set(count)

    def ledger(self, *, works: bool) -> None:
        """The ledger was read or written, or could not be."""
        self._ledger_up.set(works)
        if not works:
            self._ledger_errors.inc()

    def webhook(self, result: str) -> None:
        """What became of a message: one of MESSAGES."""
        self._webhook[result].inc()

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
        waiting.add_sample(
            waiting.name, {}, sum(record.phase is Phase.STOPPED and record.tries > 0 for record in records)
        )
        entered = Metric(
            "tpuwatch_restart_phase_timestamp_seconds", "Since when a node's restart has been in its phase.", "gauge"
        )
        for name, record in _labelled(records):
            entered.add_sample(entered.name, {"node": name, "phase": record.phase.value}, record.entered)
        yield from (count, waiting, entered)


def _labelled(records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """The first of them, each with a label of its own: what a ledger holds was written by others, too."""
    seen: set[str] = set()
    for record in records[:MOST_NODES]:
        target = record.target
        name = f"{target.zone}/{target.node}" if target.node in seen else target.node
        if name not in seen and _LABEL.fullmatch(name):
            seen.add(name)
            yield name, record
