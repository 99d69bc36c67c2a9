"""Loops: threads that do a turn, wait, and are woken from any thread and from signal handlers."""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.core.clock import Clock


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """One loop of the daemon. It is fresh when its last success is no older than it may be."""

    name: str
    last_success: float | None
    fresh: bool


class Waker:
    """A loop waits in `wait`; any thread that has something for it calls `wake`. Many calls before it looks are one."""

    def __init__(self) -> None:
        # What a signal handler may put into while its own thread is taking out.
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._called = False

    def wake(self) -> None:
        """Let the wait end, now or when it begins."""
        if not self._called:
            self._called = True
            self._queue.put(None)

    def wait(self, seconds: float) -> bool:
        """Wait for a call, at most `seconds`; whether there was one."""
        try:
            self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return False
        self._called = False
        return True


_log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # after a turn that raised what nobody foresaw
SIGN_SECONDS = 30.0  # a loop that has to wait for longer than this gives a sign of life now and then


class Loop:
    """Calls `turn` over and over, in a thread. A turn returns the seconds until the next is due."""

    def __init__(
        self, name: str, turn: Callable[[], float], *, clock: Clock, done: Callable[[str, float], None]
    ) -> None:
        """`done` is given the loop's name, and how many seconds it took, after each turn that did not raise.

        Where the next turn is far off, as after a server's Retry-After, it is called again each SIGN_SECONDS: one that
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
            except Exception:  # noqa: BLE001 # the loop outlives what no one foresaw; it is logged in full
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


SLACK_SECONDS = 60.0  # a turn may take so long in addition to its interval and the deadlines of its calls


class LoopGroup:
    """Loops that start and stop together: when each last succeeded, and how long it may go without success."""

    def __init__(self, *, clock: Clock, on_turn: Callable[[str, float], None]) -> None:
        """Calls `on_turn` with a loop's name and the seconds that its turn took, after each successful turn, from the
        loop's thread; never after `stop`."""
        self._clock = clock
        self._on_turn = on_turn
        self._began_at = clock.time()
        self._loops: dict[str, Loop] = {}
        self._limits: dict[str, float] = {}
        self._has_begun: dict[str, Callable[[], bool]] = {}
        self._successes: dict[str, float] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def add(
        self,
        name: str,
        turn: Callable[[], float],
        interval: float,
        calls: float = 0.0,
        has_begun: Callable[[], bool] = lambda: True,
    ) -> None:
        """Add a loop before the start.

        `calls` is how many seconds the calls of one turn may take together. As long as `has_begun` is false a turn only
        waits for something, and is no success.
        """
        self._loops[name] = Loop(name, turn, clock=self._clock, done=self._done)
        self._limits[name] = 3 * interval + calls + SLACK_SECONDS
        self._has_begun[name] = has_begun

    def start(self) -> None:
        """Start all loops."""
        for loop in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """No further turn begins, and nothing is reported any more. Returns at once."""
        with self._lock:
            self._stopped = True
        for loop in self._loops.values():
            loop.stop()

    def join(self, name: str, seconds: float) -> bool:
        """Wait for the end of a loop's thread, at most `seconds`. Returns whether it has ended."""
        return self._loops[name].join(seconds)

    def wake(self, *names: str) -> None:
        """Start the next turn of these loops now. May be called from any thread. Ignores loops that do not exist."""
        for name in names:
            if name in self._loops:
                self._loops[name].wake()

    @contextmanager
    def while_running(self) -> Iterator[bool]:
        """Delay a stop. Gives False once the loops are stopped, when nothing may be reported any more."""
        with self._lock:
            yield not self._stopped

    @property
    def stopped(self) -> bool:
        return self._stopped

    def limits(self) -> dict[str, float]:
        """How long each loop may go without success, in seconds."""
        return dict(self._limits)

    def status(self) -> list[LoopStatus]:
        """The state of each loop. One that has not finished its first turn is fresh as long as a turn may take."""
        now = self._clock.time()
        last = {name: self._successes.get(name) for name in self._limits}
        return [
            LoopStatus(name, at, now - (self._began_at if at is None else at) < self._limits[name])
            for name, at in last.items()
        ]

    def _done(self, name: str, seconds: float) -> None:
        with self.while_running() as running:
            if running and self._has_begun[name]():
                self._successes[name] = self._clock.time()
                self._on_turn(name, seconds)
