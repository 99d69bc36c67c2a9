"""A cloud witness and the simulated cloud that it asks, for tests."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.config.schema import Cloud as CloudSection
from tpuwatch.health.evidence import Answer, CloudNode, Identity, Known
from tpuwatch.node.cloud import CloudWitness
from tpuwatch.node.cloudmemory import CloudMemory


class Watcher:
    """A witness with its own clock's time, and what it counted."""

    def __init__(self, address: str, clock: Any, *, node: str = "train-1", **cloud: Any) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.clock = clock
        self.identity = Identity(Known(PROJECT, "config"), Known(ZONE, "config"), Known(node, "metadata"))
        section = {"endpoint": address, "insecure": True, "poll_seconds": 30.0, "timeout_seconds": 60.0, **cloud}
        self.section = CloudSection(**section)
        self.witness = self.new()

    def new(self, memory: CloudMemory | None = None) -> CloudWitness:
        return CloudWitness(
            self.section,
            lambda: self.identity,
            clock=self.clock,
            dice=random.Random(5),
            counted=lambda method, code: self.counts.update([(method, code)]),
            memory=memory,
        )

    def ask(self) -> Answer[tuple[CloudNode, ...]]:
        return self.witness.ask()

    def next(self) -> Answer[tuple[CloudNode, ...]]:
        """Ask when it is due."""
        self.clock.advance(self.witness.due_in)
        return self.witness.ask()

    def answer(self, label: str = "train-1") -> Answer[CloudNode]:
        return self.witness.answers[label]

    def node(self, label: str = "train-1") -> CloudNode:
        node = self.answer(label).value
        assert node is not None
        return node
