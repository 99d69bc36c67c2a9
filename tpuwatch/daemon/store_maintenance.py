"""Keeps the store durable, and within its limits, periodically and in small steps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tpuwatch.core import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import StateConfig
    from tpuwatch.core import Clock
    from tpuwatch.ingest import LogService
    from tpuwatch.metrics import Metrics
    from tpuwatch.store import EventStore

EVERY_SECONDS: Final = 60.0
PRUNE_EVENTS: Final = 20_000  # a flood of them must not outgrow the limit in between
RENEW_SECONDS: Final = 5.0  # between two trials to make the store durable again
LOOK_SECONDS: Final = 1.0  # between two looks whether it is; each commit looks besides
FORGET_EVERY_SECONDS: Final = 3600.0
FORGET_SECONDS: Final = 7 * 86_400.0  # how long the offset of a deleted file is kept

_log = logging.getLogger(__name__)


class StoreMaintenance:
    """Renews and prunes the store, and counts its events. For the daemon's thread."""

    def __init__(self, store: EventStore, *, metrics: Metrics, clock: Clock, on_step: Callable[[], None]) -> None:
        """`on_step` is called after each step; there are many after a flood of events. Raises StoreError."""
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._on_step = on_step
        self._events = sum(store.counts().values())
        self._stored_at_count = self._stored_at_prune = 0  # events stored when they were last counted and pruned
        self._next = self._next_forget = self._next_look = float("-inf")
        self._problem = store.problem  # why it is not durable, as it was logged last
        self._noticed = len(store.notices)  # that were logged

    def events(self, logs: LogService) -> int:
        """How many events the store holds now."""
        return self._events + logs.stored_events - self._stored_at_count

    def run_if_due(self, state: StateConfig, logs: LogService) -> None:
        """Renew the store if it is no longer durable, and prune it if that is due."""
        now = self._clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            if not self._store.durable:
                self._next_look = now + RENEW_SECONDS
                self._renew(logs)
        for notice in self._store.notices[self._noticed :]:
            _log.warning("%s", notice)
        self._noticed = len(self._store.notices)
        if now >= self._next or logs.stored_events - self._stored_at_prune >= PRUNE_EVENTS:
            self._next, self._stored_at_prune = now + EVERY_SECONDS, logs.stored_events
            self._prune(state, logs)

    def _renew(self, logs: LogService) -> None:
        try:
            self._store.renew()
            self._count(logs)
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("%s", error)
        else:
            self._problem = ""
            _log.warning("The store is durable again.")

    def _count(self, logs: LogService) -> None:
        self._events, self._stored_at_count = sum(self._store.counts().values()), logs.stored_events

    def _prune(self, state: StateConfig, logs: LogService) -> None:
        try:
            while self._store.prune(state.max_age_days * 86_400.0, state.max_mib << 20):
                self._on_step()
            if self._clock.monotonic() >= self._next_forget:
                self._next_forget = self._clock.monotonic() + FORGET_EVERY_SECONDS
                self._store.forget_cursors(logs.ingest.follower.present(), FORGET_SECONDS)
            self._count(logs)
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            _log.warning("%s", error)
