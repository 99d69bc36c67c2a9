"""Wires the parts that watch nodes: the signals, the judge over them, and the export to Cloud Monitoring.

Made for one configuration. When that changes they are stopped and replaced together.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tpuwatch.core import LoopGroup
from tpuwatch.health import EVERY_SECONDS, JudgeLimits, JudgeService
from tpuwatch.signals import SignalsService

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.metrics import CloudMonitoringExport, Metrics
    from tpuwatch.model import Event
    from tpuwatch.store import EventStore

JUDGE_SECONDS = 5.0  # how long to wait for the judge's last turn, which makes no calls


class NodeServices:
    """Made and used by the daemon's thread."""

    def __init__(
        self,
        config: Config,
        *,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        on_event: Callable[[Event], None],
        on_turn: Callable[[str, float], None],
        rng: random.Random | None = None,
        loops: LoopGroup | None = None,
    ) -> None:
        """Calls `on_event` for each event to store, and `on_turn` with a loop's name and the seconds that its turn
        took, both from any thread. `rng` spreads the polls."""
        rng = rng or random.Random()  # noqa: S311 (spreads polls, keeps no secret)
        self.loops = loops or LoopGroup(clock=clock, on_turn=on_turn)
        self.signals = SignalsService(
            config,
            loops=self.loops,
            store=store,
            metrics=metrics,
            clock=clock,
            boot_id=boot_id,
            on_event=on_event,
            on_change=lambda: self.loops.wake("judge"),
            rng=rng,
        )
        self.judge = JudgeService(
            lambda: self.signals.snapshot,
            limits=JudgeLimits(config),
            store=store,
            metrics=metrics,
            clock=clock,
            boot_id=boot_id,
            first_wait=self.signals.first_wait,
        )
        self.loops.add("judge", self.judge.turn, EVERY_SECONDS)
        self._export = self._new_export(config, metrics, clock, rng) if config.monitoring.export else None

    def start(self) -> None:
        self.loops.start()

    def stop(self) -> None:
        """Stop the loops and cancel calls in progress. What they still bring is dropped."""
        self.loops.stop()
        self.signals.close()
        if self._export is not None:
            self._export.close()
        self.loops.join("judge", JUDGE_SECONDS)

    def problems(self) -> list[str]:
        """What keeps them from their work, other than failures of the signals: a sentence each."""
        return list(filter(None, [self.signals.problem, self._export.problem if self._export is not None else ""]))

    def _new_export(self, config: Config, metrics: Metrics, clock: Clock, rng: random.Random) -> CloudMonitoringExport:
        from tpuwatch.metrics import CloudMonitoringExport, samples

        export = CloudMonitoringExport(
            config.monitoring,
            lambda: samples(self.signals.snapshot, self.judge.nodes),
            self.signals.identity,
            clock=clock,
            rng=rng,
            on_call=metrics.node.count_api_request,
            insecure=config.cloud.insecure,
            timeout_seconds=config.cloud.timeout_seconds,
        )
        self.loops.add("export", export.turn, config.monitoring.export_seconds, 2 * config.cloud.timeout_seconds)
        return export
