"""Whether this machine's clock may be believed: budgets are windows of time, and a clock that jumps would free them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import length
from tpuwatch.restart.policy.budgets import SKEW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.restart.policy.budgets import LedgerView


class ClockCheck:
    """Made when tpuwatch begins. Used from one thread."""

    def __init__(self, clock: Clock, servers: Mapping[str, Callable[[], float | None]]) -> None:
        """`servers` give the time by each server, by its name; None where there is none, or it has not answered yet."""
        self._clock = clock
        self._servers = servers
        self._epoch = clock.time() - clock.monotonic()

    def problem(self, view: LedgerView | None) -> str:
        """Why the clock cannot be believed, for a sentence; "" if nothing is known against it.

        A server knows best, and the first that has answered decides. Without one the clock has to go on as the
        monotonic one does, and must not be behind what was written already.
        """
        now = self._clock.time()
        for name, time in self._servers.items():
            if (server := time()) is not None:
                return _difference(now - server, f"by {name}")
        if jump := _difference(now - self._clock.monotonic() - self._epoch, "against the time since tpuwatch began"):
            return f"{jump}; restart tpuwatch when the clock is right"
        newest = view.newest if view is not None else now
        return _difference(min(0.0, now - newest), "by the newest record in the ledger")


def _difference(ahead: float, by: str) -> str:
    if abs(ahead) <= SKEW_SECONDS:
        return ""
    return f"this machine's clock is {length(abs(ahead))} {'ahead' if ahead > 0 else 'behind'} {by}"
