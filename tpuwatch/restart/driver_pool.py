"""The threads that drive restarts, one for each node, and the drivers: of the Cloud TPU API, and of this machine."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConflictError, LedgerError
from tpuwatch.model import Action
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.opening import phase_limits
from tpuwatch.restart.local.driver import LocalDriver
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.policy.situation import OF_THE_MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Holder, JudgedNode, RestartRecord, Snapshot, Target
    from tpuwatch.restart.driver import LeasedDriver, Progress
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.sight import Sight

MAX_DRIVERS: Final = 64  # a node that waits for capacity has its thread for hours, and must not keep others from theirs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriveResult:
    """How one driver ended."""

    target: Target
    action: Action
    record: RestartRecord | None  # as the driver left it; None if it failed, or never held it


class DriverPool:
    """Used from one thread, but for `on_progress`, which the drivers call."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        *,
        sight: Sight,
        metrics: Metrics,
        clock: Clock,
        here: ThisMachine,
        stopping: threading.Event,
        on_change: Callable[[], None],
    ) -> None:
        """The drivers judge a node again by `sight`, and end when `stopping` is set, which `stop` does. `on_change` is
        called from any thread when a driver enters another phase, writes a note, ends, or goes on unrecorded or
        recorded.
        """
        self._config = config
        self._ledger = ledger
        self._sight = sight
        self._metrics = metrics
        self._clock = clock
        self._here = here
        self._stopping = stopping
        self._on_change = on_change
        self._lock = threading.Lock()
        self._threads: dict[Target, threading.Thread] = {}
        self._latest: dict[Target, Progress] = {}
        self._results: list[DriveResult] = []

    def make(self, target: Target, action: Action, judged: JudgedNode | None, snapshot: Snapshot) -> LeasedDriver:
        """Who drives such a record. `judged`: the node as it was judged, if the verdict is what it is about."""
        restart, lease = self._config.restart, self._config.ledger.lease_seconds
        if action in OF_THE_MACHINE:
            return LocalDriver(
                self._ledger,
                target,
                system=Linux(self._clock, self._config.host.root),
                clock=self._clock,
                wait=self._stopping.wait,
                at_fault=_at_fault(judged, action, snapshot) if judged is not None else (),
                settings=restart,
                on_progress=self.on_progress,
                lease_seconds=lease,
                here=self._here,
            )
        from tpuwatch.restart.cloud_api import CloudNodeApi  # Google's packages

        return Driver(
            self._ledger,
            target,
            api=CloudNodeApi(self._config.cloud, clock=self._clock, counted=self._metrics.node.count_api_request),
            clock=self._clock,
            wait=self._stopping.wait,
            limits=phase_limits(restart),
            judge_again=self._sight.confirm,
            on_progress=self.on_progress,
            lease_seconds=lease,
            here=self._here,
        )

    def on_progress(self, progress: Progress) -> None:
        """Keep how far a driver is."""
        with self._lock:
            before = self._latest.get(progress.record.target)
            self._latest[progress.record.target] = progress
        if before is None or _key(before) != _key(progress):
            self._on_change()

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


def _at_fault(judged: JudgedNode, action: Action, snapshot: Snapshot) -> tuple[Holder, ...]:
    """The holders that the verdict speaks of; a checkpoint is asked of all."""
    holders = snapshot.host.value.holders if snapshot.host.value is not None and snapshot.host.problem is None else ()
    if action is Action.CHECKPOINT:
        return tuple(holders)
    return tuple(one for one in holders if one.pid in judged.judgement.pids)
