"""The node side of the daemon: the witnesses, each in a loop of its own, and the judge over what they say.

A `NodeWatch` is made for one configuration. When that changes it is stopped, and another one takes its place.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Protocol

from tpuwatch.daemon.announce import announce
from tpuwatch.daemon.judging import EVERY_SECONDS, Judging, limits_of
from tpuwatch.daemon.loops import Loop
from tpuwatch.daemon.troubles import NO_TROUBLE, Troubles
from tpuwatch.export.view import LoopStatus, NodeStatus, WitnessStatus
from tpuwatch.health.evidence import Answer, Problem
from tpuwatch.node.board import Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.export.cloud_monitoring import CloudMonitoringExport
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.health.evidence import Agent, CloudNode, Identity, Logs, Notices, Runtime
    from tpuwatch.journal import Journal
    from tpuwatch.model import Event
    from tpuwatch.node.agents import AgentsWitness
    from tpuwatch.node.board import Posted
    from tpuwatch.node.cloud import CloudWitness

SLACK_SECONDS = 60.0  # a turn may take so long beyond its interval and what its calls may wait for answers
FIRST_SECONDS = 10.0  # before the first verdict the first word of every witness is waited for, at most so long
JUDGE_SECONDS = 5.0  # how long the judge may take to come to an end: it asks nobody
_CALLS_PER_ZONE = 4  # a token, a list of v2alpha1, one of v2, one of queued resources
_OFF: Answer[Any] = Answer(problem=Problem.OFF, detail="It is switched off in the configuration.")

_log = logging.getLogger(__name__)


class Witness(Protocol):
    """Who can be asked. `ask` never raises for what was foreseen; `due_in` says when it wants to be asked again."""

    @property
    def due_in(self) -> float: ...

    def ask(self) -> Answer[Any]: ...

    def close(self) -> None: ...


class NodeWatch:
    """Runs the witnesses and the judge. Made and used by the daemon's thread."""

    def __init__(
        self,
        config: Config,
        *,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        put: Callable[[Event], None],
        progress: Callable[[str, float], None],
        dice: random.Random | None = None,
    ) -> None:
        """`put` takes events for the journal, `progress` a loop's name and how long its turn took:
        both from any thread. `dice` spread the polls."""
        self._config = config
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._put = put
        self._progress = progress
        self._dice = dice or random.Random()  # noqa: S311 (spreads polls, keeps no secret)
        self._stopped = False
        self._speaking = threading.Lock()  # held while an answer or a turn is told, so that none is after the stop
        self._notices: Notices | None = None  # the last ones
        self._successes: dict[str, float] = {}
        self._witnesses: list[Witness] = []
        self._unheard: set[str] = set()  # witnesses that have not been asked yet
        self._after: dict[str, list[str]] = {}  # who waits, at first, for whose first word
        self._began = clock.monotonic()
        self._began_at = clock.time()
        self._misplaced = ""  # what the configuration says of the machine that is not so
        self._export: CloudMonitoringExport | None = None
        self._loops: dict[str, tuple[Loop, float]] = {}  # with the seconds that one may be without success
        self._agents: AgentsWitness | None = None
        self._troubles = Troubles()
        self._board = Board(lambda: self._wake("judge"))
        self._judging = Judging(
            lambda: self._board.posted,
            limits=limits_of(config),
            journal=journal,
            metrics=metrics,
            clock=clock,
            boot_id=boot_id,
        )
        # Of a witness that the configuration has just switched off no number may stay behind.
        metrics.runtime(None)
        metrics.runtime_waiting(None)
        metrics.notices(None)
        metrics.api_breaker(False)
        metrics.agents(None)
        self._add("judge", self._judge, EVERY_SECONDS)
        self._add_host()
        self._add_runtime()
        self._add_agents()
        self._add_cloud()
        self._add_monitoring()
        for witness, answer in self._board.posted.answers().items():
            self._show(witness.value, answer)

    # -- for the daemon

    def start(self) -> None:
        """Let the loops begin."""
        for loop, _ in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """Let the loops end, and break off calls that are under way. What they still say goes nowhere."""
        with self._speaking:
            self._stopped = True
        self._metrics.runtime_waiting(None)
        for loop, _ in self._loops.values():
            loop.stop()
        for witness in self._witnesses:
            witness.close()
        if self._export is not None:
            self._export.close()
        self._loops["judge"][0].join(JUDGE_SECONDS)

    def problems(self) -> list[str]:
        """What keeps it from doing all that it should, besides the witnesses' own silence."""
        return list(filter(None, [self._misplaced, self._export.problem if self._export is not None else ""]))

    def tell(self, logs: Answer[Logs]) -> None:
        """What the log side says of the node."""
        self._board.post(logs=logs)
        self._show("logs", logs)

    def limits(self) -> dict[str, float]:
        """How long each loop may go without success, in seconds."""
        return {name: limit for name, (_, limit) in self._loops.items()}

    def loops(self) -> list[LoopStatus]:
        """How the loops are. One that has not finished its first turn is fresh for as long as a turn may take."""
        now, stale = self._clock.time(), self.limits()
        last = {name: self._successes.get(name) for name in stale}
        return [
            LoopStatus(name, at, now - (self._began_at if at is None else at) < stale[name])
            for name, at in last.items()
        ]

    @property
    def posted(self) -> Posted:
        """What the witnesses said last."""
        return self._board.posted

    @property
    def nodes(self) -> tuple[NodeStatus, ...]:
        """All nodes as they were judged last, the own one first; empty before the first time."""
        return self._judging.nodes

    def witnesses(self) -> list[WitnessStatus]:
        """How it stands with each witness."""
        return [
            WitnessStatus(witness.value, answer.at, answer.tried, answer.problem, answer.detail)
            for witness, answer in self._board.posted.answers().items()
        ]

    # -- the loops

    def _add(self, name: str, turn: Callable[[], float], interval: float, calls: float = 0.0) -> None:
        """`calls`: for how many seconds one turn may wait for answers, if each call in it takes all of its time."""
        loop = Loop(name, turn, clock=self._clock, done=self._done)
        self._loops[name] = (loop, 3 * interval + calls + SLACK_SECONDS)

    def _add_witness(
        self,
        name: str,
        witness: Witness,
        interval: float,
        heard: Callable[[Any], None],
        *,
        after: str = "",
        calls: float = 0.0,
    ) -> None:
        """Ask a witness in a loop of its own; at first not before the one called `after` has been heard."""

        def turn() -> float:
            if (left := self._first_wait(after)) > 0:
                return left
            try:
                answer = witness.ask()
            finally:
                if self._stopped:
                    witness.close()  # what it opened after it had been closed
            with self._speaking:
                if not self._stopped:
                    heard(answer)
                    self._heard(name)
            return witness.due_in

        self._witnesses.append(witness)
        self._unheard.add(name)
        self._after.setdefault(after, []).append(name)
        self._add(name, turn, interval, calls)

    def _first_wait(self, *names: str) -> float:
        """How long the first words of these witnesses are still waited for; without names, of all."""
        waited = self._clock.monotonic() - self._began
        return FIRST_SECONDS - waited if self._unheard & set(names or self._unheard) else 0.0

    def _heard(self, name: str) -> None:
        if name in self._unheard:
            self._unheard.discard(name)
            self._wake("judge", *self._after.get(name, ()))  # nobody else: who is woken asks, due or not

    def _wake(self, *names: str) -> None:
        for name in names:
            if name in self._loops:
                self._loops[name][0].wake()

    def _judge(self) -> float:
        left = self._first_wait()
        return left if left > 0 else self._judging.turn()

    def _add_host(self) -> None:
        from tpuwatch.node.host import LOOK_SECONDS, HostWitness

        self._add_witness("host", HostWitness(clock=self._clock), LOOK_SECONDS, self._hear("host", self._metrics.host))

    def _add_runtime(self) -> None:
        runtime = self._config.runtime
        if not runtime.enabled:
            self._board.post(runtime=_OFF)
            return
        from tpuwatch.node.runtime import RuntimeWitness

        witness = RuntimeWitness(
            self._runtime_ports,
            clock=self._clock,
            dice=self._dice,
            poll_seconds=runtime.poll_seconds,
            counted=self._metrics.api_request,
        )
        self._metrics.runtime_waiting(witness.waiting)
        self._add_witness(
            "runtime", witness, runtime.poll_seconds, self._hear("runtime", self._show_runtime), after="identity"
        )

    def _runtime_ports(self) -> tuple[int, ...]:
        from tpuwatch.node.runtime import DEFAULT_PORTS

        told = self._identity().metrics_ports.value  # the configuration's own are in it
        return tuple(map(int, told.split(","))) if told else DEFAULT_PORTS

    def _add_cloud(self) -> None:
        from tpuwatch.node.identity import KNOWN_SECONDS, IdentityWitness
        from tpuwatch.node.metadata import Metadata, default_host

        cloud = self._config.cloud
        common: dict[str, Any] = {"clock": self._clock, "dice": self._dice}
        metadata = Metadata(default_host(), clock=self._clock) if cloud.enabled else None
        identity = IdentityWitness(cloud, metadata, self._config.runtime.ports, **common)
        self._board.post(identity=identity.identity)  # what the configuration says of it holds at once
        self._add_witness("identity", identity, KNOWN_SECONDS, self._hear_identity)
        if metadata is None:
            self._board.post(api=_OFF, notices=_OFF)
            return
        from tpuwatch.node.cloud import CloudWitness
        from tpuwatch.node.cloudmemory import CloudMemory
        from tpuwatch.node.notices import WAIT_SECONDS, NoticesWitness

        memory = CloudMemory(self._journal, self._metrics.journal_error)
        api = CloudWitness(cloud, self._identity, counted=self._metrics.api_request, memory=memory, **common)
        zones = 1 + len({entry.rpartition("/")[0] for entry in cloud.nodes})
        self._add_witness(
            "cloud",
            api,
            cloud.poll_seconds,
            lambda answer: self._hear_cloud(api, answer),
            after="identity",
            calls=zones * _CALLS_PER_ZONE * cloud.timeout_seconds,
        )
        # A client of its own: one that waits is ended by closing it.
        notices = NoticesWitness(Metadata(default_host(), clock=self._clock), **common)
        self._add_witness("notices", notices, WAIT_SECONDS, self._hear_notices)

    def _add_agents(self) -> None:
        agents = self._config.agents
        if not (agents.enabled and self._config.cloud.enabled):
            self._board.post(asked=_OFF)
            return
        from tpuwatch.node.agents import AgentsWitness

        self._agents = AgentsWitness(agents, clock=self._clock, dice=self._dice)
        self._board.post(asked=Answer())
        calls = 2 * agents.timeout_seconds
        self._add_witness("agent", self._agents, agents.poll_seconds, self._hear_agents, after="cloud", calls=calls)

    def _add_monitoring(self) -> None:
        monitoring, cloud = self._config.monitoring, self._config.cloud
        common: dict[str, Any] = {
            "clock": self._clock,
            "dice": self._dice,
            "counted": self._metrics.api_request,
            "insecure": cloud.insecure,
            "timeout_seconds": cloud.timeout_seconds,
        }
        if monitoring.read:
            from tpuwatch.node.monitoring import POLL_SECONDS, MonitoringWitness

            witness = MonitoringWitness(self._identity, endpoint=monitoring.endpoint, **common)
            heard = self._hear("monitoring", lambda _: None)
            calls = 3 * cloud.timeout_seconds  # the token, and a list of each metric
            self._add_witness("monitoring", witness, POLL_SECONDS, heard, after="identity", calls=calls)
        else:
            self._board.post(monitoring=_OFF)
        if monitoring.export:
            from tpuwatch.export.cloud_monitoring import CloudMonitoringExport, samples

            self._export = CloudMonitoringExport(
                monitoring, lambda: samples(self._board.posted, self.nodes), self._identity, **common
            )
            self._add("export", self._export.turn, monitoring.export_seconds, 2 * cloud.timeout_seconds)

    def _identity(self) -> Identity:
        return self._board.posted.identity

    def _hear_identity(self, answer: Answer[Identity]) -> None:
        if answer.problem is None and answer.detail != self._misplaced:
            self._misplaced = answer.detail
            _log.warning("%s", self._misplaced or "This machine is where the configuration says.")
        if answer.value is not None and answer.value != self._board.posted.identity:
            self._board.post(identity=answer.value)
            if "identity" not in self._unheard:  # else they wait for it still
                self._wake("cloud", "runtime")  # there may be another node to ask for, or other ports

    def _hear_cloud(self, api: CloudWitness, answer: Answer[tuple[CloudNode, ...]]) -> None:
        counted = Answer(len(answer.value or ()), answer.at, answer.problem, answer.detail, answer.tried)
        if self._agents is not None and self._agents.follow(api.answers, self._board.posted.own):
            self._wake("agent")
        self._board.post(api=counted, cloud=api.answers)
        self._show("cloud", answer)
        self._metrics.api_breaker(bool(api.story))

    def _hear_agents(self, answer: Answer[tuple[Agent, ...]]) -> None:
        answers = self._agents.answers if self._agents is not None else {}
        counted = Answer(len(answer.value or ()), answer.at, answer.problem, answer.detail, answer.tried)
        self._board.post(asked=counted, agents=answers)
        self._show("agent", answer)
        self._metrics.agents(answers)

    def _hear(self, name: str, show: Callable[[Any], None]) -> Callable[[Answer[Any]], None]:
        """What to do with an answer: post it under its name, and show what holds."""

        def heard(answer: Answer[Any]) -> None:
            self._board.post(**{name: answer})
            self._show(name, answer)
            show(None if answer.problem else answer.value)

        return heard

    def _show_runtime(self, runtime: Runtime | None) -> None:
        self._metrics.runtime(runtime)
        for port in runtime.ports if runtime is not None else ():
            told: Answer[None] = Answer(problem=port.problem, detail=port.detail)
            self._troubles.heard(f"runtime on port {port.port}", told)

    def _hear_notices(self, answer: Answer[Notices]) -> None:
        self._board.post(notices=answer)
        self._show("metadata", answer)
        self._metrics.notices(answer.value)
        if answer.value is not None and answer.problem is None:
            for event in announce(answer.value, self._notices, now=self._clock.time(), boot_id=self._boot_id):
                self._put(event)
            self._notices = answer.value

    def _show(self, name: str, answer: Answer[Any]) -> None:
        if answer.tried is not None and name != "logs":  # what of the logs cannot be read is told by the log side
            self._troubles.heard(name, answer)
            if answer.problem not in NO_TROUBLE:
                self._metrics.witness_failed(name)
        off = answer.problem is Problem.OFF
        self._metrics.witness(name, at=answer.at, ok=None if off else answer.problem in NO_TROUBLE)

    def _done(self, name: str, seconds: float) -> None:
        with self._speaking:
            if self._stopped or name in self._unheard:  # one that only waited for another has not succeeded yet
                return
            self._successes[name] = self._clock.time()
            self._progress(name, seconds)
