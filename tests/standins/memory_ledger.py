"""A ledger in memory: for tests that kill no real process, and need hundreds of ledgers."""

from __future__ import annotations

import threading

from tpuwatch.core.errors import ConflictError
from tpuwatch.model.restart import Fleet, RestartRecord, Target
from tpuwatch.restart.ledger.base import Stored, StoredFleet
from tpuwatch.restart.ledger.codec import decode, encode


class MemoryLedger:
    """Holds what any ledger holds: what is written passes through the text that the others store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, Stored] = {}
        self._fleet = StoredFleet(Fleet(), 0)
        self._last = 0

    def read(self, target: Target) -> Stored | None:
        return self._records.get(target.path)

    def records(self) -> list[Stored]:
        return [self._records[path] for path in sorted(self._records)]

    def fleet(self) -> StoredFleet:
        return self._fleet

    def write(self, record: RestartRecord, version: int) -> Stored:
        path = record.target.path
        text = encode(record)
        with self._lock:
            before = self._records.get(path)
            stored = self._records[path] = Stored(
                decode(RestartRecord, text, "memory"), self._next(before.version if before else 0, version)
            )
            return stored

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        text = encode(fleet)
        with self._lock:
            self._fleet = StoredFleet(decode(Fleet, text, "memory"), self._next(self._fleet.version, version))
            return self._fleet

    def stamp(self) -> None:
        """Only a reading tells."""

    def server_time(self) -> float | None:
        return None

    def purge(self) -> int:
        return 0

    def set_aside(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""

    def _next(self, held: int, version: int) -> int:
        """The version of a write in the place of `version`. Raises ConflictError."""
        if held != version:
            raise ConflictError("somebody else has written it")
        self._last += 1
        return self._last
