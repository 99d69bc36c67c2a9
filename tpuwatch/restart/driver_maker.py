"""Makes drivers: one of a node calls the Cloud TPU API, one of this machine its processes and its runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.model import Action
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.opening import phase_limits
from tpuwatch.restart.local.driver import LocalDriver
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.policy.situation import OF_THE_MACHINE

if TYPE_CHECKING:
    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Holder, JudgedNode, Snapshot, Target
    from tpuwatch.restart.driver import LeasedDriver
    from tpuwatch.restart.driver_pool import DriverPool
    from tpuwatch.restart.ledger.base import Ledger
    from tpuwatch.restart.ledger.owner import ThisMachine
    from tpuwatch.restart.local.system import System
    from tpuwatch.restart.sight import Sight


class DriverMaker:
    """Used from the loop's thread."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        *,
        pool: DriverPool,
        sight: Sight,
        metrics: Metrics,
        clock: Clock,
        here: ThisMachine,
        system: System | None,
    ) -> None:
        """`pool` is where the drivers will run, `sight` what they judge the node by again."""
        self._config = config
        self._ledger = ledger
        self._pool = pool
        self._sight = sight
        self._metrics = metrics
        self._clock = clock
        self._here = here
        self._system = system

    def make(self, target: Target, action: Action, judged: JudgedNode | None, snapshot: Snapshot) -> LeasedDriver:
        """Who drives such a record. `judged`: the node as it was judged, if the verdict is what it is about."""
        restart, lease = self._config.restart, self._config.ledger.lease_seconds
        if action in OF_THE_MACHINE:
            return LocalDriver(
                self._ledger,
                target,
                system=self._system or Linux(self._clock, self._config.host.root),
                clock=self._clock,
                wait=self._pool.wait,
                at_fault=_at_fault(judged, action, snapshot) if judged is not None else (),
                settings=restart,
                on_progress=self._pool.on_progress,
                lease_seconds=lease,
                here=self._here,
            )
        from tpuwatch.restart.cloud_api import CloudNodeApi  # Google's packages

        return Driver(
            self._ledger,
            target,
            api=CloudNodeApi(self._config.cloud, clock=self._clock, counted=self._metrics.node.count_api_request),
            clock=self._clock,
            wait=self._pool.wait,
            limits=phase_limits(restart),
            judge_again=self._sight.confirm,
            on_progress=self._pool.on_progress,
            lease_seconds=lease,
            here=self._here,
        )


def _at_fault(judged: JudgedNode, action: Action, snapshot: Snapshot) -> tuple[Holder, ...]:
    """The holders that the verdict speaks of; a checkpoint is asked of all."""
    holders = snapshot.host.value.holders if snapshot.host.value is not None and snapshot.host.problem is None else ()
    if action is Action.CHECKPOINT:
        return tuple(holders)
    return tuple(one for one in holders if one.pid in judged.judgement.pids)
