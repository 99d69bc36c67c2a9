"""Fault injection: the faults that are set on the simulated cloud; each service consults them for each call."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.core import Clock


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault for calls whose method and resource match.

    The method "StopNodeOperation" (StartNode, ResetQueuedResource, … likewise) affects the operation that the call
    starts, not the call: `code` is its error, `latency_seconds` (by the world's clock) prolongs it, and with
    `black_hole` it never ends.
    """

    method: str = "*"  # "ListNodes", "ListTimeSeries", "metadata", "GetRuntimeMetric", "*", "google.cloud.tpu.v2.*", …
    code: str = ""  # a gRPC status code's name, "UNAVAILABLE"; "" for the correct answer (after the latency)
    message: str = ""
    reason: str = ""  # of google.rpc.ErrorInfo: "ACCESS_TOKEN_SCOPE_INSUFFICIENT", "SERVICE_DISABLED", …
    latency_seconds: float = 0.0  # by real time
    retry_after_seconds: float | None = None  # google.rpc.RetryInfo and, over HTTP, Retry-After
    black_hole: bool = False  # take the request and never answer
    wrong_enum: bool = False  # states and health with numbers that no enum has
    stale_seconds: float = 0.0  # nodes and operations are shown as they were then; see World.rewound
    drop: tuple[str, ...] = ()  # fields that are left out of nodes
    omit: tuple[str, ...] = ()  # nodes that are missing from lists: names, or patterns
    share: float = 1.0  # of the calls
    times: int | None = None  # number of calls that it affects; None: until it is cleared
    until: float | None = None  # the world's time at which it ends
    resource: str = "*"  # a pattern for the name or parent that is asked for: "*/locations/us-east5-a*"
    after_work: bool = False  # execute the request, then apply the fault: only the answer is lost
    half_open: bool = False  # affects connections, not calls: they stay open without answers


class Faults:
    """The faults that are set. Safe from any thread."""

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng or random.Random(0)  # noqa: S311 (not for secrets; a fixed seed makes runs reproducible)
        self._lock = threading.Lock()
        self._faults: list[_ActiveFault] = []
        self.max_stale_seconds = 0.0  # the maximum since the faults were last cleared

    def set(self, fault: InjectedFault) -> None:
        """Set one more fault; the newest that matches a call applies."""
        with self._lock:
            self._faults.insert(0, _ActiveFault(fault, fault.times))
            self.max_stale_seconds = max(self.max_stale_seconds, fault.stale_seconds)

    def clear(self, method: str = "*") -> None:
        """Clear the faults of a method, or all."""
        with self._lock:
            self._faults = [one for one in self._faults if method not in ("*", one.fault.method)]
            self.max_stale_seconds = max((one.fault.stale_seconds for one in self._faults), default=0.0)

    @property
    def active(self) -> tuple[InjectedFault, ...]:
        """The faults that are set, the newest first."""
        with self._lock:
            self._drop_ended()
            return tuple(one.fault for one in self._faults)

    @property
    def half_open(self) -> bool:
        """Whether connections to the cloud are half-open now."""
        return any(fault.half_open for fault in self.active)

    def take(self, method: str, resource: str = "", *, service: str = "") -> InjectedFault | None:
        """Return the fault for this call, and count it; None if no fault applies.

        `method` is the short name, `service` the full name of the gRPC service where it has one.
        """
        with self._lock:
            self._drop_ended()
            for one in self._faults:
                if one.matches(method, f"{service}/{method}", resource) and self._rng.random() < one.fault.share:
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
class _ActiveFault:
    """A fault that is set, and the number of calls left for it."""

    fault: InjectedFault
    left: int | None

    def matches(self, method: str, full: str, resource: str) -> bool:
        if self.fault.half_open:
            return False
        pattern = self.fault.method
        if pattern == "*":  # calls only: operations must be named
            named = not method.endswith("Operation") or method == "GetOperation"
        else:
            named = fnmatchcase(method, pattern) or fnmatchcase(full, pattern)
        return named and fnmatchcase(resource, self.fault.resource)
