"""A ledger in memory: for tests that kill no real process, and need hundreds of ledgers."""

from __future__ import annotations

import threading

from tpuwatch.core.clock import Clock
from tpuwatch.core.errors import ConflictError
from tpuwatch.model.restart import Fleet, RestartRecord, Target
from tpuwatch.restart.ledger.base import Stored, StoredFleet
from tpuwatch.restart.ledger.codec import decode, decode_fleet, encode


class MemoryLedger:
    """Holds what any ledger holds, as text."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[int, str]] = {}
        self._last = 0

    def read(self, target: Target) -> Stored | None:
        found = self._entries.get(target.path)
        return None if found is None else Stored(decode(found[1], "memory"), found[0])

    def write(self, record: RestartRecord, version: int) -> Stored:
        return Stored(record, self._put(record.target.path, encode(record), version))

    def records(self) -> list[Stored]:
        entries = sorted(self._entries.items())
        return [Stored(decode(text, "memory"), version) for name, (version, text) in entries if name]

    def fleet(self) -> StoredFleet:
        found = self._entries.get("")
        return StoredFleet(Fleet(), 0) if found is None else StoredFleet(decode_fleet(found[1], "memory"), found[0])

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        return StoredFleet(fleet, self._put("", encode(fleet), version))

    def close(self) -> None:
        """Nothing is held."""

    def _put(self, name: str, text: str, version: int) -> int:
        with self._lock:
            if self._entries.get(name, (0, ""))[0] != version:
                raise ConflictError("somebody else has written it")
            self._last += 1
            self._entries[name] = (self._last, text)
            return self._last
