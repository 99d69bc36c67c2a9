"""The daemon's node side without its threads: who is due is asked by one thread, which moves the clock from one to the
next. So ten minutes pass in moments, and nothing depends on how fast this machine is.

The clock stands still during a call, so deadlines are by real time. Calls of a service that never answers are given
up soon, for they cost real time; all others may take so long that a busy machine makes no difference.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.daemon.nodewatch import NodeWatch
from tpuwatch.health.evidence import Answer, Logs
from tpuwatch.node.host import HostWitness
from tpuwatch.node.identity import IdentityWitness
from tpuwatch.node.metadata import Metadata, default_host
from tpuwatch.node.notices import NoticesWitness

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from soak.stage import Machine
    from tpuwatch.clock import ManualClock
    from tpuwatch.config import Config
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.journal import Journal

PATIENT_SECONDS: Final = 10.0  # the deadline of a call, by real time
IMPATIENT_SECONDS: Final = 0.1  # the same of one that will not be answered
NOTICES_SECONDS: Final = 20.0  # stand for the time that a request for notices waits at the server
LOGS_SECONDS: Final = 10.0  # how often the log side says that it reads, and has nothing to tell
MOST_AT_ONCE: Final = 50  # turns of one loop without the clock moving
_ERROR_SECONDS: Final = 10.0  # until a turn that raised is repeated, as in tpuwatch.loops

_log = logging.getLogger(__name__)


class SoakError(Exception):
    """It cannot go on."""


class Driven(NodeWatch):
    """Made like a NodeWatch; `run` takes the place of `start`."""

    def __init__(
        self,
        config: Config,
        *,
        machine: Machine,
        clock: ManualClock,
        journal: Journal,
        metrics: Metrics,
        dice: random.Random,
    ) -> None:
        """`machine` is the one that it believes to be on."""
        self._limited: dict[str, list[Any]] = {}  # who has deadlines, by the service that is called
        self.raised: list[str] = []  # turns that failed in an unforeseen way
        self._machine = machine
        self._manual = clock
        self._turns: dict[str, Callable[[], float]] = {}
        self._due: dict[str, float] = {}  # by the clock's monotonic time
        cloud = _Cloud(config.cloud)
        self._limit("cloud", cloud)
        super().__init__(
            config.model_copy(update={"cloud": cloud}),
            journal=journal,
            metrics=metrics,
            clock=clock,
            boot_id="soak",
            put=lambda _: None,
            progress=lambda *_: None,
            dice=dice,
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
            if at_once > MOST_AT_ONCE * len(self._due):
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
        except Exception as error:  # noqa: BLE001 # told, as the loop does; the account names it
            _log.exception("A turn of %s failed.", name)
            self.raised.append(f"{name}: {error!r}")
            seconds = _ERROR_SECONDS
        if name == "notices":
            seconds = max(seconds, NOTICES_SECONDS)
        self._due[name] = min(self._due[name], self._manual.monotonic() + seconds)

    def _read_logs(self) -> float:
        now = self._manual.time()
        self.tell(Answer(Logs(), now, None, tried=now))
        return LOGS_SECONDS

    def _take(self, name: str, turn: Callable[[], float]) -> None:
        self._turns[name] = turn
        self._due[name] = self._manual.monotonic()

    # -- what NodeWatch does with threads

    def _add(self, name: str, turn: Callable[[], float], *limits: float) -> None:
        super()._add(name, turn, *limits)  # its thread is never started
        self._take(name, turn)

    def _wake(self, *names: str) -> None:
        for name in names:
            if name in self._due:
                self._due[name] = min(self._due[name], self._manual.monotonic())

    def _add_witness(self, name: str, witness: Any, *more: Any, **keys: Any) -> None:
        super()._add_witness(name, self._instead(name) or witness, *more, **keys)
        if name in ("runtime", "monitoring"):
            self._limit(name, self._witnesses[-1])

    def _instead(self, name: str) -> Any:
        """The same witness for this machine, with deadlines that can be changed."""
        common: dict[str, Any] = {"clock": self._manual, "dice": self._dice}
        if name == "host":
            return HostWitness(clock=self._manual, root=self._machine.root)
        if name == "identity":
            return IdentityWitness(self._config.cloud, self._metadata(), self._config.runtime.ports, **common)
        if name == "notices":
            return NoticesWitness(self._metadata(), wait_seconds=0.0, **common)
        return None

    def _metadata(self) -> Metadata:
        metadata = Metadata(default_host(), clock=self._manual)
        self._limit("metadata", metadata)
        return metadata

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
