"""The time by a server, as its latest dated answer gives it."""

from __future__ import annotations

import contextlib
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.core import Clock


class ServerTime:
    """Safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.epoch: float | None = None  # the server's time at the zero of the monotonic clock; None before an answer

    def on_answer(self, date: str) -> None:
        """An answer has come with this Date header; one that makes no sense is no answer."""
        with contextlib.suppress(ValueError, TypeError):  # a proxy may leave it out
            self.epoch = parsedate_to_datetime(date).timestamp() - self._clock.monotonic()

    @property
    def now(self) -> float | None:
        """The time by the server; None before its first answer."""
        epoch = self.epoch
        return epoch + self._clock.monotonic() if epoch is not None else None
