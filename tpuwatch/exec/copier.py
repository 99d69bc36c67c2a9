"""Copies the command's output to its destination, byte for byte, and offers each chunk to the output buffer.

One thread for each stream: it waits for the command and the real reader only.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.exec.streams import PIPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 1 << 18
_HELD_BYTES = 2 * PIPE_BYTES  # more than any pipe or terminal of ours holds: what was in it before has been read
_FLUSH, _END = b"f", b"e"


class StreamState(Enum):
    """The state of a stream when its copier stops."""

    ENDED = "ended"  # it has no writer any more, or no reader
    HELD = "held"  # processes that outlive the command may go on writing to it


class Copier:
    """Copies one stream: `source` to `sink`, both descriptors. `source` is closed when nothing is to come of it."""

    def __init__(self, source: int, sink: int, offer: Callable[[bytes], None] | None = None) -> None:
        """`offer` is given each piece after it was written, and must not block."""
        self.state = StreamState.HELD
        self._source = source
        self._sink = sink
        self._offer = offer
        self._requests, self._wakeup = os.pipe()
        self._flushed = threading.Event()
        self._thread = self._new_thread()

    def start(self) -> bool:
        """Begin to copy; False where there can be no thread for it now."""
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = self._new_thread()  # one that could not be started is not to be started again
            return False
        return True

    def flush(self, seconds: float) -> bool:
        """Copy what has been written so far; whether that was done in time."""
        self._flushed.clear()
        os.write(self._wakeup, _FLUSH)
        return self._flushed.wait(seconds) or not self._thread.is_alive()

    def end(self) -> None:
        """The command has ended: have what it wrote copied, and then stop."""
        os.write(self._wakeup, _END)

    def ended(self, seconds: float) -> bool:
        """Wait for the copier to stop; whether it did."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def copy_on(self) -> None:
        """Copy, in this thread, until no writer is left: for what outlives the command."""
        self._offer = None
        self._run()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, daemon=True, name=f"copier-{self._sink}")

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._sink, 0)  # its reader's end is reported without a request
        poll.register(self._requests, select.POLLIN)
        try:
            while True:
                ready = dict(poll.poll())
                if self._sink in ready:  # the reader has gone: the command gets the same error as without tpuwatch
                    break
                if self._requests in ready:
                    asked = os.read(self._requests, 64)
                    if not self._copy_held():
                        break
                    self._flushed.set()
                    if _END in asked:
                        return
                elif self._source in ready and not self._copy():
                    break
        except OSError:  # it cannot be written: the command gets the same error
            pass
        self.state = StreamState.ENDED
        os.close(self._source)
        self._flushed.set()

    def _copy_held(self) -> bool:
        """Copy what is there, or was when this began; False when no writer is left."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        left = _HELD_BYTES
        while left > 0 and poll.poll(0):
            size = self._copy()
            if not size:
                return False
            left -= size
        return True

    def _copy(self) -> int:
        """Copy one piece; its size, 0 when no writer is left."""
        try:
            data = os.read(self._source, CHUNK_BYTES)
        except OSError:  # a terminal that no process has open any more
            return 0
        if data:
            _write(self._sink, data)
            if self._offer is not None:
                self._offer(data)
        return len(data)


def _write(sink: int, data: bytes) -> None:
    """Write all of it. Raises OSError."""
    left = memoryview(data)
    while left:
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(sink, left) :]
            continue
        # Another process that shares it has made it non-blocking.
        poll = select.poll()
        poll.register(sink, select.POLLOUT)
        poll.poll()
