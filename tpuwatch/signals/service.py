"""The signals service: it asks each source, and posts the answers to the snapshot.

Turns: the sources of signals, each in a loop of its own.
Every: interval of its source, longer after faults, and never sooner than the source asked for.
Owns: for one configuration: the sources with their connections, and the snapshot.
Never: judges a node, or lets one source that hangs delay another.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING

from tpuwatch.model import Answer, Signal, SignalStatus
from tpuwatch.signals.notices import combined, new_events
from tpuwatch.signals.sources import SignalSources

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopGroup
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Event, Identity, Logs, Notices, Peer, Snapshot, TrainingLoop
    from tpuwatch.store import EventStore

# The modules of the signals in the order in which they start, and whether a configuration wants them. The others are
# not imported. What the daemon itself posts has none: the logs.
_MODULES: tuple[tuple[str, Signal | None, Callable[[Config], bool]], ...] = (
    ("host", Signal.HOST, lambda _: True),
    ("runtime", Signal.RUNTIME, lambda config: config.runtime.enabled),
    ("peers", Signal.PEER, lambda config: config.peers.enabled and config.cloud.enabled),
    ("identity", None, lambda _: True),
    ("cloud", Signal.CLOUD, lambda config: config.cloud.enabled),
    ("notices", Signal.METADATA, lambda config: config.cloud.enabled),
    ("kubernetes", Signal.KUBERNETES, lambda config: config.kubernetes.enabled),
    ("monitoring", Signal.MONITORING, lambda config: config.monitoring.read),
    ("server", Signal.SERVER, lambda config: bool(config.workload.metrics_url)),
)


class SignalsService:
    """Asks the sources. Made and used by the daemon's thread; `snapshot` may be read from any."""

    def __init__(
        self,
        config: Config,
        *,
        loops: LoopGroup,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        on_event: Callable[[Event], None],
        on_change: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        """Adds its loops to `loops`. Calls `on_event` for each event to store and `on_change` when the snapshot has
        changed, both from any thread. `rng` spreads the polls."""
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._on_event = on_event
        self._on_change = on_change
        self._notices: Notices | None = None  # the last ones
        self._announcing = threading.Lock()
        # A signal that the configuration has just switched off must leave no number behind.
        metrics.node.set_runtime(None)
        metrics.node.set_runtime_response_pending(None)
        metrics.node.set_notices(None)
        metrics.node.set_api_breaker(False)
        metrics.peers.set_answers(None)
        self._sources = SignalSources(
            config,
            loops=loops,
            store=store,
            metrics=metrics,
            clock=clock,
            on_event=on_event,
            on_change=self._changed,
            rng=rng,
        )
        self._sources.post(Signal.LOGS, Answer())
        for name, signal, wanted in _MODULES:
            if not wanted(config):
                if signal is not None:
                    self._sources.post_off(signal)
                continue
            if signal is not None:
                self._sources.post(signal, Answer())
            import_module(f"tpuwatch.signals.{name}").start(self._sources)

    @property
    def snapshot(self) -> Snapshot:
        """The latest answers."""
        return self._sources.snapshot

    @property
    def problem(self) -> str:
        """What is wrong in the configuration of this machine's place: a sentence, or ""."""
        return self._sources.misplaced

    def identity(self) -> Identity:
        """The identity of this machine, as far as it is known."""
        return self._sources.identity()

    def ask_peer(self, label: str) -> Peer | None:
        """What the tpuwatch on that node says now; None where it cannot be asked. For any thread."""
        return self._sources.peers.ask_now(label) if self._sources.peers is not None else None

    def first_wait(self, *names: str) -> float:
        """Seconds left to wait for the first answers of these loops' sources; without names, of all."""
        return self._sources.first_wait(*names)

    def post_logs(self, logs: Answer[Logs]) -> None:
        """Post what the logs report of the node."""
        self._sources.post(Signal.LOGS, logs)

    def post_loops(self, loops: tuple[TrainingLoop, ...]) -> None:
        """Post how far the jobs' loops have come."""
        self._sources.post_fields(loops=loops)

    def status(self) -> list[SignalStatus]:
        """The state of each signal."""
        return [
            SignalStatus(signal.value, answer.at, answer.tried, answer.problem, answer.detail)
            for signal, answer in self.snapshot.answers().items()
        ]

    def close(self) -> None:
        """Cancel calls in progress. Call it after the loops are stopped: no answer is posted any more."""
        self._metrics.node.set_runtime_response_pending(None)
        self._sources.close()

    def _changed(self) -> None:
        self._announce()
        self._on_change()

    def _announce(self) -> None:
        """Put what metadata server and Kubernetes announce into the metrics, and what of it is new into the store."""
        with self._announcing:  # each of them answers in a thread of its own
            kubernetes = self.snapshot.kubernetes.value
            notices = combined(self.snapshot.notices.value, kubernetes)
            if notices is None or notices == self._notices:
                return
            self._metrics.node.set_notices(notices)
            now, boot_id = self._clock.time(), self._boot_id
            for event in new_events(notices, self._notices, now=now, boot_id=boot_id, kubernetes=kubernetes):
                self._on_event(event)
            self._notices = notices
