"""Faults that are set on the simulated cloud while it runs. Each service asks here before it answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.clock import Clock


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to calls whose method matches, instead of or besides the right answer."""

    method: str = "*"  # "ListNodes", "ListTimeSeries", "metadata", "GetRuntimeMetric", … or "*"
    code: str = ""  # a gRPC status code's name, "UNAVAILABLE"; "" answers rightly (after the latency)
    message: str = ""
    reason: str = ""  # of google.rpc.ErrorInfo: "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "SERVICE_DISABLED", …
    latency_seconds: float = 0.0
    retry_after_seconds: float | None = None  # google.rpc.RetryInfo and, over HTTP, Retry-After
    black_hole: bool = False  # take the request and never answer
    wrong_enum: bool = False  # states and health with numbers that no enum has
    drop: tuple[str, ...] = ()  # fields that are left out of nodes
    share: float = 1.0  # of the calls
    times: int | None = None  # how often it strikes; None: until it is cleared
    until: float | None = None  # the world's time at which it ends


class Faults:
    """The faults that are set. Safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def set(self, fault: Fault) -> None:
        """Set one more fault; the newest that matches strikes."""
        with self._lock:
            self._faults.insert(0, fault)

    def clear(self, method: str = "*") -> None:
        """Clear the faults of a method, or all."""
        with self._lock:
            self._faults = [fault for fault in self._faults if method not in ("*", fault.method)]
