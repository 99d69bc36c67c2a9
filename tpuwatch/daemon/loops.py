"""Loops: a thread of its own for each witness, so that one that is slow never stalls another."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tpuwatch.waker import Waker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.clock import Clock

_log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # after a turn that raised what nobody foresaw
SIGN_SECONDS = 30.0  # a loop that has to wait for longer than this gives a sign of life now and then


class Loop:
    """Calls `turn` over and over, in a thread. A turn returns the seconds until the next is due."""

    def __init__(
        self, name: str, turn: Callable[[], float], *, clock: Clock, done: Callable[[str, float], None]
    ) -> None:
        """`done` is told the loop's name, and how many seconds it took, after each turn that did not raise.

        Where the next turn is far off, as after a server's Retry-After, it is told again each SIGN_SECONDS: one that
        waits as it was asked to is not stuck.
        """
        self.name = name
        self._clock = clock
        self._turn = turn
        self._done = done
        self._waker = Waker()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first turn comes at once."""
        self._thread.start()

    def wake(self) -> None:
        """Let the next turn come now. May be called from any thread."""
        self._waker.wake()

    def stop(self) -> None:
        """No further turn begins; returns at once."""
        self._stopping = True
        self._waker.wake()

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end, at most so long; whether it came."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            begun = self._clock.monotonic()
            try:
                seconds = self._turn()
                took = self._clock.monotonic() - begun
                self._done(self.name, took)
            except Exception:  # noqa: BLE001 # the loop outlives what no one foresaw; it is told in full
                _log.exception("A turn of the loop %s failed.", self.name)
                seconds, took = RETRY_SECONDS, 0.0
            self._rest(seconds, took)

    def _rest(self, seconds: float, took: float) -> None:
        """Wait until the next turn is due, or it is woken."""
        while not self._stopping:
            piece = min(seconds, SIGN_SECONDS)
            if self._waker.wait(piece) or piece == seconds:
                return
            seconds -= piece
            self._done(self.name, took)
