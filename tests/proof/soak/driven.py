"""The daemon's node side without its threads: who is due is asked by one thread, which moves the clock from one to the
next. So ten minutes pass in moments, and nothing depends on how fast this machine is.

The clock stands still during a call, so deadlines are by real time. Calls of a service that never answers are given
up soon, for they cost real time; all others may take so long that a busy machine makes no difference.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Final

import pytest

import tpuwatch.google
from tpuwatch.core.loop import LoopGroup
from tpuwatch.daemon.node_services import NodeServices
from tpuwatch.model.answers import Answer
from tpuwatch.model.signals import Logs
from tpuwatch.signals import monitoring, notices, runtime

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from tests.proof.soak.stage import Machine
    from tpuwatch.config import Config
    from tpuwatch.core.clock import ManualClock
    from tpuwatch.metrics.registry import Metrics
    from tpuwatch.store import EventStore

PATIENT_SECONDS: Final = 10.0  # the deadline of a call, by real time
IMPATIENT_SECONDS: Final = 0.1  # the same of one that will not be answered
NOTICES_SECONDS: Final = 20.0  # stand for the time that a request for notices waits at the server
LOGS_SECONDS: Final = 10.0  # how often the log service reports that it reads, and has no events
MAX_AT_ONCE: Final = 50  # turns of one loop without the clock moving
_ERROR_SECONDS: Final = 10.0  # until a turn that raised is repeated, as in tpuwatch.loops

_log = logging.getLogger(__name__)


class SoakError(Exception):
    """It cannot go on."""


class Driven(LoopGroup):
    """The loops of NodeServices as `run` drives them; `start` is never called."""

    def __init__(
        self,
        config: Config,
        *,
        machine: Machine,
        clock: ManualClock,
        store: EventStore,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        """`machine` is the one that it believes to be on."""
        super().__init__(clock=clock, on_turn=lambda *_: None)
        self.raised: list[str] = []  # turns that failed in an unforeseen way
        self._limited: dict[str, list[Any]] = {}  # what has deadlines, by the service that is called
        self._machine = machine
        self._manual = clock
        self._turns: dict[str, Callable[[], float]] = {}
        self._due: dict[str, float] = {}  # by the clock's monotonic time
        cloud = _Cloud(config.cloud)
        self._limit("cloud", cloud)
        with pytest.MonkeyPatch.context() as patch:
            self._replace_sources(patch)
            self.services = NodeServices(
                config.model_copy(update={"cloud": cloud}),
                store=store,
                metrics=metrics,
                clock=clock,
                boot_id="soak",
                on_event=lambda _: None,
                on_turn=lambda *_: None,
                rng=rng,
                loops=self,
            )
        self._take("logs", self._read_logs)

    def expect(self, silent: Collection[str]) -> None:
        """From now on these services do not answer: of "cloud", "metadata", "runtime" and "monitoring"."""
        for service, limited in self._limited.items():
            seconds = IMPATIENT_SECONDS if service in silent else PATIENT_SECONDS
            for one in limited:
                one.timeout_seconds = seconds

    def run(self, seconds: float, look: Callable[[], bool]) -> None:
        """Let so many seconds pass. `look` is called after each judgement, and ends it by being true."""
        end = self._manual.monotonic() + seconds
        at_once = 0
        while (due := min(self._due.values())) <= end:
            at_once = 0 if due > self._manual.monotonic() else at_once + 1
            self._manual.advance(max(0.0, due - self._manual.monotonic()))
            name = min(self._due, key=lambda one: self._due[one])
            if at_once > MAX_AT_ONCE * len(self._due):
                raise SoakError(f"the loop {name} wants its next turn at once, over and over")
            self._turn(name)
            if name == "judge" and look():
                return
        self._manual.advance(end - self._manual.monotonic())

    def _turn(self, name: str) -> None:
        self._due[name] = float("inf")  # a wake during the turn counts
        if name == "host":
            self._machine.look()
        try:
            seconds = self._turns[name]()
        except Exception as error:  # noqa: BLE001 # logged, as the loop does; the account names it
            _log.exception("A turn of %s failed.", name)
            self.raised.append(f"{name}: {error!r}")
            seconds = _ERROR_SECONDS
        if name == "notices":
            seconds = max(seconds, NOTICES_SECONDS)
        self._due[name] = min(self._due[name], self._manual.monotonic() + seconds)

    def _read_logs(self) -> float:
        now = self._manual.time()
        self.services.signals.post_logs(Answer(Logs(), now, None, tried=now))
        return LOGS_SECONDS

    def _take(self, name: str, turn: Callable[[], float]) -> None:
        self._turns[name] = turn
        self._due[name] = self._manual.monotonic()

    # -- in place of threads

    def add(self, name: str, turn: Callable[[], float], *limits: Any, **more: Any) -> None:
        super().add(name, turn, *limits, **more)  # its thread is never started
        self._take(name, turn)

    def wake(self, *names: str) -> None:
        for name in names:
            if name in self._due:
                self._due[name] = min(self._due[name], self._manual.monotonic())

    def _replace_sources(self, patch: pytest.MonkeyPatch) -> None:
        """The sources ask about this machine, with deadlines that can be changed."""
        patch.setattr(notices, "NoticesSignal", functools.partial(notices.NoticesSignal, wait_seconds=0.0))
        patch.setattr(tpuwatch.google, "MetadataClient", self._limiting("metadata", tpuwatch.google.MetadataClient))
        patch.setattr(runtime, "RuntimeSignal", self._limiting("runtime", runtime.RuntimeSignal))
        patch.setattr(monitoring, "MonitoringSignal", self._limiting("monitoring", monitoring.MonitoringSignal))

    def _limiting(self, service: str, kind: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **keys: Any) -> Any:
            made = kind(*args, **keys)
            self._limit(service, made)
            return made

        return make

    def _limit(self, service: str, limited: Any) -> None:
        limited.timeout_seconds = PATIENT_SECONDS
        self._limited.setdefault(service, []).append(limited)


class _Cloud:
    """The table [cloud] of a configuration, and a deadline that can be changed."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.timeout_seconds = PATIENT_SECONDS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)
