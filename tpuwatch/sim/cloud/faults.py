"""Faults that are set on the simulated cloud while it runs. Each service asks here before it answers."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.clock import Clock


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to calls whose method matches, instead of or besides the right answer.

    The method "StopNodeOperation" (StartNode, ResetQueuedResource, … likewise) strikes the operation that the call
    begins instead of the call: `code` is its error, `latency_seconds` (by the world's clock) makes it take longer, and
    in a `black_hole` it never ends.
    """

    method: str = "*"  # "ListNodes", "ListTimeSeries", "metadata", "GetRuntimeMetric", "*", "google.cloud.tpu.v2.*", …
    code: str = ""  # a gRPC status code's name, "UNAVAILABLE"; "" answers rightly (after the latency)
    message: str = ""
    reason: str = ""  # of google.rpc.ErrorInfo: "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "SERVICE_DISABLED", …
    latency_seconds: float = 0.0  # by real time
    retry_after_seconds: float | None = None  # google.rpc.RetryInfo and, over HTTP, Retry-After
    black_hole: bool = False  # take the request and never answer
    wrong_enum: bool = False  # states and health with numbers that no enum has
    stale_seconds: float = 0.0  # nodes and operations are shown as they were so long ago; see World.as_it_was
    drop: tuple[str, ...] = ()  # fields that are left out of nodes
    share: float = 1.0  # of the calls
    times: int | None = None  # how often it strikes; None: until it is cleared
    until: float | None = None  # the world's time at which it ends
    resource: str = "*"  # a pattern for the name or parent that is asked for: "*/locations/us-east5-a*"
    after_work: bool = False  # do what was asked, then strike: only the answer is lost
    half_open: bool = False  # strikes no call but the connections to the cloud: they stay open, and nobody answers


class Faults:
    """The faults that are set. Safe from any thread."""

    def __init__(self, clock: Clock, dice: random.Random | None = None) -> None:
        self._clock = clock
        self._dice = dice or random.Random(0)  # noqa: S311 (no secrets: the same seed tells the same story)
        self._lock = threading.Lock()
        self._faults: list[_Set] = []
        self.stalest = 0.0  # how far back any of them looks, since they were cleared last

    def set(self, fault: Fault) -> None:
        """Set one more fault; the newest that matches strikes."""
        with self._lock:
            self._faults.insert(0, _Set(fault, fault.times))
            self.stalest = max(self.stalest, fault.stale_seconds)

    def clear(self, method: str = "*") -> None:
        """Clear the faults of a method, or all."""
        with self._lock:
            self._faults = [one for one in self._faults if method not in ("*", one.fault.method)]
            self.stalest = max((one.fault.stale_seconds for one in self._faults), default=0.0)

    @property
    def now(self) -> tuple[Fault, ...]:
        """The faults that are set now, the newest first."""
        with self._lock:
            self._drop_ended()
            return tuple(one.fault for one in self._faults)

    @property
    def half_open(self) -> bool:
        """Whether connections to the cloud are half-open now."""
        return any(fault.half_open for fault in self.now)

    def take(self, method: str, resource: str = "", *, service: str = "") -> Fault | None:
        """The fault that strikes this call, which is then counted as struck; None where the call goes well.

        `method` is the short name, `service` the full name of the gRPC service where it has one.
        """
        with self._lock:
            self._drop_ended()
            for one in self._faults:
                if one.matches(method, f"{service}/{method}", resource) and self._dice.random() < one.fault.share:
                    if one.left is not None:
                        one.left -= 1
                    return one.fault
        return None

    def _drop_ended(self) -> None:
        now = self._clock.time()
        self._faults = [
            one for one in self._faults if one.left != 0 and (one.fault.until is None or now < one.fault.until)
        ]


@dataclass(slots=True)
class _Set:
    """A fault that is set, and how often it may strike yet."""

    fault: Fault
    left: int | None

    def matches(self, method: str, full: str, resource: str) -> bool:
        if self.fault.half_open:
            return False
        pattern = self.fault.method
        if pattern == "*":  # calls only: an operation is struck when it is named
            named = not method.endswith("Operation") or method in _CALLS_ON_OPERATIONS
        else:
            named = fnmatchcase(method, pattern) or fnmatchcase(full, pattern)
        return named and fnmatchcase(resource, self.fault.resource)


_CALLS_ON_OPERATIONS = frozenset({"GetOperation", "CancelOperation", "WaitOperation", "DeleteOperation"})
