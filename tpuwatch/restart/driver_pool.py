"""The threads that drive restarts, one for each node."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.model import Action, RestartRecord, Target
    from tpuwatch.restart.driver import LeasedDriver, Progress

MAX_DRIVERS: Final = 64  # a node that waits for capacity has its thread for hours, and must not keep others from theirs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriveResult:
    """How one driver ended."""

    target: Target
    action: Action
    record: RestartRecord | None  # as the driver left it; None if it failed, or never held it


class DriverPool:
    """Used from one thread, but for `wait` and `on_progress`, which the drivers call."""

    def __init__(self, clock: Clock, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called from any thread when a driver enters another phase, writes a note, ends, or goes on
        unrecorded or recorded.
        """
        self._clock = clock
        self._on_change = on_change
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads: dict[Target, threading.Thread] = {}
        self._latest: dict[Target, Progress] = {}
        self._results: list[DriveResult] = []

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the drivers are to stop; whether they are."""
        return self._stopping.wait(seconds)

    def on_progress(self, progress: Progress) -> None:
        """Keep how far a driver is."""
        with self._lock:
            before = self._latest.get(progress.record.target)
            self._latest[progress.record.target] = progress
        if before is None or _key(before) != _key(progress):
            self._on_change()

    def is_stopping(self) -> bool:
        """Whether the drivers are to stop. May be called from any thread."""
        return self._stopping.is_set()

    @property
    def has_room(self) -> bool:
        """Whether one more driver may run."""
        return len(self._threads) < MAX_DRIVERS and not self._stopping.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether any driver runs. May be called from any thread."""
        return bool(self._threads)

    def drives(self, target: Target) -> bool:
        """Whether a driver of this pool has the node's record."""
        return target in self._threads

    @property
    def progress(self) -> list[Progress]:
        """How far each driver is."""
        with self._lock:
            return [self._latest[target] for target in self._threads if target in self._latest]

    def drive(self, driver: LeasedDriver, action: Action, *, free: int) -> None:
        """Drive the record of that action in a thread, then close the driver. `free` is the version it may take."""
        target = driver.target
        thread = threading.Thread(
            target=self._run, args=(driver, action, free), name=f"restart-{target.node}"[:60], daemon=True
        )
        with self._lock:
            self._threads[target] = thread
        thread.start()

    def results(self) -> list[DriveResult]:
        """The drivers that have ended since the last call; until then they count as running."""
        with self._lock:
            results, self._results = self._results, []
            for result in results:
                self._threads.pop(result.target, None)
                self._latest.pop(result.target, None)
        return results

    def stop(self) -> None:
        """Have all drivers leave their records as they stand; returns at once."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait for all drivers to end, at most so long in total; whether they have."""
        until = self._clock.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until - self._clock.monotonic()))
        return not any(thread.is_alive() for thread in list(self._threads.values()))

    def _run(self, driver: LeasedDriver, action: Action, free: int) -> None:
        target, record = driver.target, None
        try:
            left = driver.drive(free=free)
            record = left if driver.has_held else None  # else the one that had it reports it
        except ConflictError as error:
            _log.info("%s.", error)
        except LedgerError as error:
            _log.warning("The restart of node %s is left to the next driver: %s", target.node, error)
        except Exception:  # noqa: BLE001 # the next driver finishes it; it is logged in full
            _log.exception("The restart of node %s was broken off by an error: the next driver has it.", target.node)
        finally:
            driver.close()
            with self._lock:
                self._results.append(DriveResult(target, action, record))
            self._on_change()


def _key(progress: Progress) -> tuple[object, ...]:
    return progress.phase, progress.record.note, bool(progress.unrecorded)
