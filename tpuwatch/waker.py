"""Waking a loop that waits, from any thread and from signal handlers."""

from __future__ import annotations

import queue


class Waker:
    """A loop waits in `wait`; whoever has something for it calls `wake`. Many calls before it looks are one."""

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
