"""Threads that drive records: one for each restart that is under way from here, and no more than so many.

Most of a restart is waiting. When the daemon ends, each of them leaves its record as it stands, gives its lease back,
and whoever comes next carries it on.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.restart.ledger.base import ConflictError, LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.clock import Clock
    from tpuwatch.restart.executor import Keeper, Progress
    from tpuwatch.restart.record import Record, Target

MOST: Final = 64  # a node that waits for capacity has its thread for hours, and must not keep others from theirs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of one."""

    target: Target
    record: Record | None  # as it stands, if it was driven
    fault: LedgerError | None = None  # why it was not


class Crew:
    """Used from one thread, but for `wait` and `told`, which the drivers call."""

    def __init__(self, clock: Clock, *, news: Callable[[], None]) -> None:
        """`news` is called from any thread when one of them has come further, or to its end."""
        self._clock = clock
        self._news = news
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._threads: dict[Target, threading.Thread] = {}
        self._latest: dict[Target, Progress] = {}
        self._results: list[Driven] = []

    def wait(self, seconds: float) -> bool:
        """What drivers wait with: whether they are to end."""
        return self._ending.wait(seconds)

    def told(self, progress: Progress) -> None:
        """What drivers tell how far they are."""
        with self._lock:
            before = self._latest.get(progress.record.target)
            self._latest[progress.record.target] = progress
        if before is None or (before.phase, before.record.note) != (progress.phase, progress.record.note):
            self._news()

    @property
    def has_room(self) -> bool:
        """Whether one more may be driven."""
        return len(self._threads) < MOST and not self._ending.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether any is being driven from here. May be asked from any thread."""
        return bool(self._threads)

    def drives(self, target: Target) -> bool:
        """Whether the node's record is being driven from here."""
        return target in self._threads

    @property
    def progress(self) -> list[Progress]:
        """How far each of them is."""
        with self._lock:
            return [self._latest[target] for target in self._threads if target in self._latest]

    def drive(self, target: Target, driver: Keeper, close: Callable[[], None], *, free: int = 0) -> None:
        """Let a thread drive the node's record, of which `free` is the version that it may take, then call `close`."""
        thread = threading.Thread(
            target=self._run, args=(target, driver, close, free), name=f"restart-{target.node}"[:60], daemon=True
        )
        with self._lock:
            self._threads[target] = thread
        thread.start()

    def results(self) -> list[Driven]:
        """What has come to an end since this was asked last; until it is told here it counts as being driven."""
        with self._lock:
            results, self._results = self._results, []
            for driven in results:
                self._threads.pop(driven.target, None)
                self._latest.pop(driven.target, None)
        return results

    def stop(self) -> None:
        """Let all of them leave their records as they stand; returns at once."""
        self._ending.set()

    def join(self, seconds: float) -> bool:
        """Wait for their end, at most so long in all; whether it came."""
        until = self._clock.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until - self._clock.monotonic()))
        return not any(thread.is_alive() for thread in list(self._threads.values()))

    def _run(self, target: Target, driver: Keeper, close: Callable[[], None], free: int) -> None:
        record: Record | None = None
        fault: LedgerError | None = None
        try:
            record = driver.drive(free=free)
        except ConflictError as error:
            fault = error
            _log.info("%s.", error)
        except LedgerError as error:
            fault = error
            _log.warning("The restart of node %s is left to whoever can go on with it: %s", target.node, error)
        except Exception:  # noqa: BLE001 # the record stands, and the next one finishes it; it is told in full
            _log.exception("The restart of node %s was broken off by an error; its record stands.", target.node)
        finally:
            close()
            with self._lock:
                self._results.append(Driven(target, record, fault))
            self._news()
