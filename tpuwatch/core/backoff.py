"""When a signal is asked next: a jittered interval, back-off after faults, and a breaker for faults that last.

Everyone who polls one project shares its quota, and quotas refill for all at once. So intervals and retries are spread
at random: intervals are shortened by up to a tenth (never stretched, for others count on them), retries take any time
up to a bound that doubles with each failure ("full jitter").
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from tpuwatch.core.clock import Clock

JITTER: Final = 0.1  # the share by which an interval is shortened at most
TRIP_AFTER: Final = 5  # failures in a row that open the breaker
MAX_RETRY_AFTER: Final = 3600.0  # no server can delay the next request for longer than this
_DOUBLINGS: Final = 40  # beyond this every bound has long been reached


class Pacing:
    """Paces one signal. Report the outcome of each request; `due_in` is when the next is due. Times in seconds.

    Up to TRIP_AFTER failures in a row are retried soon. Then the breaker opens: one trial after each pause, and the
    pauses double up to `max_pause`, which is the interval unless given. So a service that comes back is noticed within
    one interval, and one that stays away is not asked more often than one that is well.
    """

    def __init__(
        self,
        interval: float,
        *,
        clock: Clock,
        rng: random.Random,
        max_pause: float | None = None,
    ) -> None:
        self.interval = interval
        self.max_pause = interval if max_pause is None else max_pause
        self.failures = 0  # in a row
        self._clock = clock
        self._rng = rng
        self._due = -math.inf

    @property
    def due_in(self) -> float:
        """Seconds until the next request is due; 0 when it is overdue, as it is at first."""
        return max(0.0, self._due - self._clock.monotonic())

    @property
    def held(self) -> bool:
        """Whether a request now would be sooner than a fault allows."""
        return self.failures > 0 and self.due_in > 0

    @property
    def breaker_notice(self) -> str:
        """A notice of the open breaker: a sentence, or "" while it is closed."""
        if self.failures < TRIP_AFTER:
            return ""
        return (
            f"It has failed {TRIP_AFTER} times in a row or more, so the circuit breaker is open: tpuwatch makes single "
            "trials until one succeeds."
        )

    def hasten(self) -> None:
        """Make a request due at once, unless it must wait after a fault."""
        if not self.failures:
            self._due = -math.inf

    def succeeded(self) -> None:
        """The request succeeded: the next is due after the interval."""
        self.failures = 0
        self._wait(self._shortened(self.interval))

    def failed(self, retry_after: float | None = None) -> None:
        """The request failed. It is not repeated sooner than `retry_after` seconds, if the server has said that."""
        self.failures += 1
        self._wait(self._back_off() + _bounded(retry_after))

    def _back_off(self) -> float:
        if self.failures < TRIP_AFTER:
            return self._rng.uniform(0.0, doubled(self.interval / 16, self.failures - 1, self.max_pause))
        return self._shortened(doubled(self.interval / 2, self.failures - TRIP_AFTER, self.max_pause))

    def _shortened(self, seconds: float) -> float:
        return seconds * (1.0 - self._rng.uniform(0.0, JITTER))

    def _wait(self, seconds: float) -> None:
        self._due = self._clock.monotonic() + seconds


def doubled(seconds: float, times: int, limit: float) -> float:
    """Return `seconds` doubled so many times, at most `limit`. Any number of times is valid."""
    return min(limit, seconds * 2.0 ** min(times, _DOUBLINGS))


def parse_retry_after(header: str | None) -> float | None:
    """Seconds by the header Retry-After. Its other form, a date, is not used by the servers that are asked here."""
    return float(header) if header and header.isascii() and header.isdecimal() and len(header) < 9 else None


def _bounded(retry_after: float | None) -> float:
    if retry_after is None or math.isnan(retry_after):
        return 0.0
    return min(MAX_RETRY_AFTER, max(0.0, retry_after))
