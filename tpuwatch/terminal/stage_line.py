"""One line of a terminal that shows how far a child process has come."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tpuwatch.core import printable

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS: Final = 1.0  # between two changes of the line


class StageLine:
    """On a terminal: at which stage it is, and for how long already. Elsewhere nothing."""

    def __init__(self, name: str = "", *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`name`: what the stages are of, shown before them. `monotonic`: seconds."""
        self._monotonic = monotonic
        self._prefix = f"{name}: " if name else ""
        self._started = self._next = monotonic()
        self._wanted = sys.stderr.isatty()

    def show(self, stage: str) -> None:
        """Show the stage, at most once a second."""
        now = self._monotonic()
        if self._wanted and now >= self._next:
            self._next = now + _SECONDS
            sys.stderr.write(f"\r\x1b[K{self._prefix}{printable(stage)}, {now - self._started:.0f} s")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leave the line empty."""
        if self._wanted:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
