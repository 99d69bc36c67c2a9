"""Clocks that are passed in, so that tests control the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time, both in seconds."""

    def time(self) -> float:
        """Wall time in seconds since the Unix epoch; it may jump."""

    def monotonic(self) -> float:
        """Monotonic time in seconds from an arbitrary start; it never jumps."""


class SystemClock:
    """The machine's own clocks."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that only moves when it is advanced: for tests and simulated time."""

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self.wall = now
        self.mono = 0.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        """Advance both clocks by `seconds`."""
        self.wall += seconds
        self.mono += seconds
