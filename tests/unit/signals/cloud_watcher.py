"""A cloud signal and the simulated cloud that it asks, for tests."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.unit.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.config.schema import CloudConfig as CloudSection
from tpuwatch.model.answers import Answer
from tpuwatch.model.labels import node_label
from tpuwatch.model.signals import CloudNode, Identity, Known
from tpuwatch.signals.cloud import CloudSignal
from tpuwatch.signals.cloud_memory import CloudMemory


class Watcher:
    """A signal with its own clock's time, and what it counted."""

    def __init__(self, address: str, clock: Any, *, node: str = "train-1", **cloud: Any) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.clock = clock
        self.identity = Identity(Known(PROJECT, "config"), Known(ZONE, "config"), Known(node, "metadata"))
        section = {"endpoint": address, "insecure": True, "poll_seconds": 30.0, "timeout_seconds": 60.0, **cloud}
        self.section = CloudSection(**section)
        self.signal = self.new()

    def new(self, memory: CloudMemory | None = None) -> CloudSignal:
        return CloudSignal(
            self.section,
            lambda: self.identity,
            clock=self.clock,
            rng=random.Random(5),
            on_call=lambda method, code: self.counts.update([(method, code)]),
            memory=memory,
        )

    def ask(self) -> Answer[tuple[CloudNode, ...]]:
        return self.signal.ask()

    def next(self) -> Answer[tuple[CloudNode, ...]]:
        """Ask when it is due."""
        self.clock.advance(self.signal.due_in)
        return self.signal.ask()

    def answer(self, name: str = "train-1") -> Answer[CloudNode]:
        """Of a node, by its name, in the home zone while that is known, or by its label."""
        zone = self.identity.zone.value
        return self.signal.answers[name if "/" in name else node_label(zone, name)]

    def node(self, name: str = "train-1") -> CloudNode:
        node = self.answer(name).value
        assert node is not None
        return node
