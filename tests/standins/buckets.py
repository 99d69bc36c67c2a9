"""A simulated Cloud Storage, and ledgers in a bucket of it, each with a monotonic clock that its own waiting moves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.standins.storage import BUCKET, StorageServer
from tpuwatch.config.restart import LedgerConfig as Settings
from tpuwatch.core.clock import ManualClock
from tpuwatch.restart.ledger.gcs import GcsLedger


class OwnClock(ManualClock):
    """One machine's clock: monotonic time of its own, and wall time that is everybody's."""

    def __init__(self, everybody: ManualClock) -> None:
        super().__init__()
        self._everybody = everybody

    def time(self) -> float:
        return self._everybody.time()


def bucket_settings(server: StorageServer, **changes: Any) -> Settings:
    """Those of a ledger there. A request has half a minute of real time, which none should need."""
    patient = {"timeout_seconds": 60.0, "lease_seconds": 180.0}
    own = {"kind": "gcs", "bucket": BUCKET, "endpoint": server.address, "insecure": True}
    return Settings(**{**own, **patient, **changes})


class Machine:
    """A ledger, and what it did: its clock, its waits, its requests by method and code."""

    def __init__(self, server: StorageServer, clock: ManualClock, **settings: Any) -> None:
        self.clock = clock
        self.waits: list[float] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.wants_end = False
        self.ledger = GcsLedger(
            bucket_settings(server, **settings),
            clock,
            wait=self._wait,
            rng=random.Random(4),
            counted=lambda *what: self._count(what),
        )

    def _count(self, what: tuple[str, str]) -> None:
        self.counts[what] += 1

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if not self.wants_end:
            self.clock.advance(seconds)
        return self.wants_end


@contextmanager
def storage_running(clock: ManualClock, **given: Any) -> Iterator[StorageServer]:
    server = StorageServer(clock, **given)
    server.start()
    try:
        yield server
    finally:
        server.close()
