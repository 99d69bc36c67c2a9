"""Keeping the journal within its limits, now and then and in small steps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tpuwatch.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.clock import Clock
    from tpuwatch.config.schema import State
    from tpuwatch.daemon.logwatch import LogWatch
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.journal import Journal

EVERY_SECONDS: Final = 60.0
PRUNE_EVENTS: Final = 20_000  # a storm may not outgrow the journal's limit between two times
FORGET_EVERY_SECONDS: Final = 3600.0
FORGET_SECONDS: Final = 7 * 86_400.0  # where reading stood in a file that is gone

_log = logging.getLogger(__name__)


class Upkeep:
    """Prunes the journal, and knows how many events it holds. For the daemon's thread."""

    def __init__(self, journal: Journal, *, metrics: Metrics, clock: Clock, step: Callable[[], None]) -> None:
        """`step` is called after each step, which are many after a storm. Raises JournalError."""
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._step = step
        self._events = sum(journal.counts().values())
        self._counted = self._unpruned = 0  # events stored when the journal's were counted, and when it was pruned
        self._next = self._next_forget = float("-inf")

    def events(self, logs: LogWatch) -> int:
        """How many events the journal holds now."""
        return self._events + logs.stored - self._counted

    def look(self, state: State, logs: LogWatch) -> None:
        """Prune it if that is due."""
        now = self._clock.monotonic()
        if now >= self._next or logs.stored - self._unpruned >= PRUNE_EVENTS:
            self._next, self._unpruned = now + EVERY_SECONDS, logs.stored
            self._prune(state, logs)

    def _prune(self, state: State, logs: LogWatch) -> None:
        try:
            while self._journal.prune(state.max_age_days * 86_400.0, state.max_mib << 20):
                self._step()
            if self._clock.monotonic() >= self._next_forget:
                self._next_forget = self._clock.monotonic() + FORGET_EVERY_SECONDS
                self._journal.forget_cursors(logs.ingest.follower.present(), FORGET_SECONDS)
            self._events, self._counted = sum(self._journal.counts().values()), logs.stored
        except JournalError as error:
            self._metrics.journal_error()
            _log.warning("%s", error)
