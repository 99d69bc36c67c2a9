"""The ledger as the daemon's loop has read it, and whether it can be used.

While all nodes are healthy it is read at the start and once an hour, and more often while an action is needed or under
way, or the breaker is open. One that is a file is read too once another process has written it: an operator's command
may have left a restart to be finished.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from tpuwatch.core import LedgerError
from tpuwatch.model import ledger_down
from tpuwatch.restart.ledger.reading import read_repaired, require_writable

if TYPE_CHECKING:
    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.ledger.reading import LedgerReading

# Seconds between two readings of the ledger …
OPEN_SECONDS: Final = 15.0  # … while a restart is under way
BREAKER_SECONDS: Final = 60.0  # … while the breaker is open
IDLE_SECONDS: Final = 3600.0  # … while nothing is wrong, and between two trials whether it can be written
RETRY_SECONDS: Final = 30.0  # … while it cannot be used
PURGE_SECONDS: Final = 86_400.0  # between two purges of the ledger, by the monotonic clock

_log = logging.getLogger(__name__)


class WatchedLedger:
    """Used from the loop's thread."""

    def __init__(self, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self.latest: LedgerReading | None = None
        self.read_time: float | None = None
        self.problem = ""  # why the ledger cannot be used; "" if it can
        self.unwritable = False  # whether that is because it could not be written
        self._stamp: object = None  # of the ledger, before the latest reading
        self._read_at = -math.inf  # by the monotonic clock, as the next two
        self._tried_at = -math.inf  # when it was tried last whether it can be written
        self._purge_at = clock.monotonic() + PURGE_SECONDS

    @property
    def usable(self) -> LedgerReading | None:
        """The latest reading; None while the ledger cannot be used."""
        return self.latest if not self.problem else None

    def is_due(self, pace: float, *, has_new: bool) -> bool:
        """Whether there is a reason to read the ledger now. `pace`: seconds between two readings for the candidates."""
        age = self._clock.monotonic() - self._read_at
        if math.isinf(age):
            return True
        if self.latest is None or self.problem:
            return age >= RETRY_SECONDS
        is_open = any(record.open for record in self.latest.view.records.values())
        broken = self.latest.fleet.fleet.breaker.opened is not None
        is_late = age >= min(pace, IDLE_SECONDS)
        is_pending = (is_open and age >= OPEN_SECONDS) or (broken and age >= BREAKER_SECONDS)
        return has_new or is_late or is_pending or self._ledger.stamp() != self._stamp

    def expire(self) -> None:
        """Have it read at the next turn."""
        self._read_at = -math.inf

    def read(self) -> None:
        """Read it; one that is damaged is set aside. Where that fails `problem` is set."""
        self._stamp = self._ledger.stamp()
        try:
            self.latest, self.read_time = read_repaired(self._ledger), self._clock.time()
        except LedgerError as error:
            self._on_error(error)
            return
        self._read_at = self._clock.monotonic()
        try:
            if self.unwritable or self._read_at - self._tried_at >= IDLE_SECONDS:
                self.latest = require_writable(self._ledger, self.latest)
                self._tried_at = self._read_at
        except LedgerError as error:
            self.on_write_error(error)
            return
        if self.problem:
            _log.info("The ledger of restarts can be used again.")
        self.problem, self.unwritable = "", False
        self._metrics.restart.set_ledger(works=True)

    def on_write_error(self, error: LedgerError) -> None:
        """It is down until it was written: that it can be read is not enough."""
        self.unwritable = True
        self._on_error(error)

    def purge(self) -> None:
        """Once a day, apart from all that is decided."""
        if self._clock.monotonic() >= self._purge_at and self.usable is not None:
            self._purge_at = self._clock.monotonic() + PURGE_SECONDS
            try:
                self._ledger.purge()
            except LedgerError as error:
                self.on_write_error(error)

    def close(self) -> None:
        """Let the ledger go."""
        self._ledger.close()

    def _on_error(self, error: LedgerError) -> None:
        if str(error) != self.problem:
            _log.warning("%s", ledger_down(str(error)))
        self.problem, self._read_at = str(error), self._clock.monotonic()
        self._metrics.restart.set_ledger(works=False)
