"""The signals service: it asks each source, and posts the answers to the snapshot.

Turns: the sources of signals, each in a loop of its own.
Every: interval of its source, longer after faults, and never sooner than the source asked for.
Owns: for one configuration: the sources with their connections, and the snapshot.
Never: judges a node, or lets one source that hangs delay another.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from typing import TYPE_CHECKING, Any, Protocol

from tpuwatch.model import Answer, Problem, SignalStatus
from tpuwatch.signals.failure_log import NO_FAILURE, FailureLog
from tpuwatch.signals.notices import combined, new_events
from tpuwatch.signals.probe import probe_event
from tpuwatch.signals.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopGroup
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import CloudNode, Event, Host, Identity, Logs, Notices, Peer, Runtime, Snapshot, TrainingLoop
    from tpuwatch.signals.cloud import CloudSignal
    from tpuwatch.signals.notices import NoticesSignal
    from tpuwatch.signals.peers import PeersSignal
    from tpuwatch.store import EventStore

FIRST_SECONDS = 10.0  # the first verdict waits at most so long for the first answer of every source
_CALLS_PER_ZONE = 4  # a token, a list of v2alpha1, one of v2, one of queued resources
_OFF: Answer[Any] = Answer(problem=Problem.OFF, detail="It is switched off in the configuration.")

_log = logging.getLogger(__name__)


class SignalSource(Protocol):
    """What gives a signal. `ask` does not raise for expected failures; `due_in` is when to ask again, in seconds."""

    @property
    def due_in(self) -> float: ...

    def ask(self) -> Answer[Any]: ...

    def close(self) -> None: ...


class SignalsService:
    """Asks the sources. Made and used by the daemon's thread; `snapshot` may be read from any."""

    def __init__(
        self,
        config: Config,
        *,
        loops: LoopGroup,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        boot_id: str,
        on_event: Callable[[Event], None],
        on_change: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        """Adds its loops to `loops`. Calls `on_event` for each event to store and `on_change` when the snapshot has
        changed, both from any thread. `rng` spreads the polls."""
        self._config = config
        self._environ = config.host.environ(os.environ)
        self._loops = loops
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        self._on_event = on_event
        self._on_change = on_change
        self._rng = rng or random.Random()  # noqa: S311 (spreads polls, keeps no secret)
        self._snapshots = SnapshotStore(on_change)
        self._sources: list[SignalSource] = []
        self._unanswered: set[str] = set()  # loops whose source has not answered yet
        self._waiting_for: dict[str, list[str]] = {}  # loops that wait, at first, for the first answer of another
        self._began = clock.monotonic()
        self._notices: Notices | None = None  # the last ones
        self._announcing = threading.Lock()
        self._probe = ""  # the id of the last one
        self._misplaced = ""  # what the configuration gets wrong about where this machine is
        self._peers: PeersSignal | None = None
        self._failures = FailureLog()
        # A signal that the configuration has just switched off must leave no number behind.
        metrics.node.set_runtime(None)
        metrics.node.set_runtime_response_pending(None)
        metrics.node.set_notices(None)
        metrics.node.set_api_breaker(False)
        metrics.peers.set_answers(None)
        self._add_host()
        self._add_runtime()
        self._add_peers()
        self._add_cloud()
        self._add_kubernetes()
        self._add_monitoring()
        self._add_server()
        for signal, answer in self.snapshot.answers().items():
            self._record(signal.value, answer)

    @property
    def snapshot(self) -> Snapshot:
        """The latest answers."""
        return self._snapshots.snapshot

    @property
    def problem(self) -> str:
        """What is wrong in the configuration of this machine's place: a sentence, or ""."""
        return self._misplaced

    def identity(self) -> Identity:
        """The identity of this machine, as far as it is known."""
        return self.snapshot.identity

    def ask_peer(self, label: str) -> Peer | None:
        """What the tpuwatch on that node says now; None where it cannot be asked. For any thread."""
        return self._peers.ask_now(label) if self._peers is not None else None

    def first_wait(self, *names: str) -> float:
        """Seconds left to wait for the first answers of these loops' sources; without names, of all."""
        waited = self._clock.monotonic() - self._began
        return FIRST_SECONDS - waited if self._unanswered & set(names or self._unanswered) else 0.0

    def post_logs(self, logs: Answer[Logs]) -> None:
        """Post what the logs report of the node."""
        self._snapshots.post(logs=logs)
        self._record("logs", logs)

    def post_loops(self, loops: tuple[TrainingLoop, ...]) -> None:
        """Post how far the jobs' loops have come."""
        self._snapshots.post(loops=loops)

    def status(self) -> list[SignalStatus]:
        """The state of each signal."""
        return [
            SignalStatus(signal.value, answer.at, answer.tried, answer.problem, answer.detail)
            for signal, answer in self.snapshot.answers().items()
        ]

    def close(self) -> None:
        """Cancel calls in progress. Call it after the loops are stopped: no answer is posted any more."""
        self._metrics.node.set_runtime_response_pending(None)
        for source in self._sources:
            source.close()

    # -- one loop for each source

    def _add_source(
        self,
        name: str,
        source: SignalSource,
        interval: float,
        on_answer: Callable[[Any], None],
        *,
        after: str = "",
        calls: float = 0.0,
    ) -> None:
        """Ask a source in a loop of its own; the first time only once the loop `after` has its first answer."""

        def turn() -> float:
            if (left := self.first_wait(after)) > 0:
                return left
            try:
                answer = source.ask()
            finally:
                if self._loops.stopped:
                    source.close()  # what it opened after it was closed
            with self._loops.while_running() as running:
                if running:
                    on_answer(answer)
                    self._first_answer(name)
            return source.due_in

        self._sources.append(source)
        self._unanswered.add(name)
        self._waiting_for.setdefault(after, []).append(name)
        self._loops.add(name, turn, interval, calls, has_begun=lambda: name not in self._unanswered)

    def _first_answer(self, name: str) -> None:
        if name in self._unanswered:
            self._unanswered.discard(name)
            self._on_change()
            self._loops.wake(*self._waiting_for.get(name, ()))  # no others: a loop that is woken asks, due or not

    def _add_host(self) -> None:
        from tpuwatch.signals.host import LOOK_SECONDS, HostSignal

        source = HostSignal(
            clock=self._clock, root=self._config.host.root, ports=self._metrics_ports, state=self._config.state.dir
        )
        self._add_source("host", source, LOOK_SECONDS, self._post_as("host", self._record_host))

    def _metrics_ports(self) -> tuple[int, ...]:
        if not self._config.runtime.enabled:
            return ()
        from tpuwatch.signals.runtime import metrics_ports

        return metrics_ports(self.identity())

    def _add_runtime(self) -> None:
        runtime = self._config.runtime
        if not runtime.enabled:
            self._snapshots.post(runtime=_OFF)
            return
        from tpuwatch.signals.runtime import RuntimeSignal, metrics_ports

        source = RuntimeSignal(
            lambda: metrics_ports(self.identity()),
            clock=self._clock,
            rng=self._rng,
            poll_seconds=runtime.poll_seconds,
            on_call=self._metrics.node.count_api_request,
        )
        self._metrics.node.set_runtime_response_pending(source.pending)
        self._add_source(
            "runtime", source, runtime.poll_seconds, self._post_as("runtime", self._record_runtime), after="identity"
        )

    def _add_cloud(self) -> None:
        from tpuwatch.google import MetadataClient, metadata_host
        from tpuwatch.signals.identity import KNOWN_SECONDS, IdentitySignal, kubernetes_node

        cloud = self._config.cloud
        common: dict[str, Any] = {"clock": self._clock, "rng": self._rng}
        server = metadata_host(cloud.metadata_server)
        metadata = MetadataClient(server, clock=self._clock) if cloud.enabled else None
        identity = IdentitySignal(
            cloud, metadata, self._config.runtime.ports, kubernetes=kubernetes_node(self._environ), **common
        )
        self._snapshots.post(identity=identity.identity)  # what the configuration gives is known at once
        self._add_source("identity", identity, KNOWN_SECONDS, self._on_identity)
        if metadata is None:
            self._snapshots.post(api=_OFF, notices=_OFF)
            return
        from tpuwatch.signals.cloud import CloudSignal
        from tpuwatch.signals.cloud_memory import CloudMemory
        from tpuwatch.signals.notices import WAIT_SECONDS, NoticesSignal

        memory = CloudMemory(self._store, self._metrics.daemon.count_store_error)
        source = CloudSignal(
            cloud, self.identity, on_call=self._metrics.node.count_api_request, memory=memory, **common
        )
        zones = 1 + len({entry.rpartition("/")[0] for entry in cloud.nodes})
        self._add_source(
            "cloud",
            source,
            cloud.poll_seconds,
            lambda answer: self._on_cloud(source, answer),
            after="identity",
            calls=zones * _CALLS_PER_ZONE * cloud.timeout_seconds,
        )
        # A client of its own: closing it ends a request that waits.
        notices = NoticesSignal(MetadataClient(server, clock=self._clock), **common)
        self._add_source("notices", notices, WAIT_SECONDS, lambda answer: self._on_notices(notices, answer))

    def _add_kubernetes(self) -> None:
        kubernetes = self._config.kubernetes
        from tpuwatch.signals.kubernetes import KubernetesSignal, in_cluster

        if not (kubernetes.enabled and in_cluster(kubernetes, self._environ)):
            self._snapshots.post(kubernetes=_OFF)
            return
        source = KubernetesSignal(kubernetes, self._environ, clock=self._clock, rng=self._rng)
        self._snapshots.post(kubernetes=Answer())
        calls = kubernetes.timeout_seconds
        # After the metadata server: a maintenance that both announce is one notice.
        self._add_source(
            "kubernetes", source, kubernetes.poll_seconds, self._on_kubernetes, after="notices", calls=calls
        )

    def _add_peers(self) -> None:
        peers = self._config.peers
        if not (peers.enabled and self._config.cloud.enabled):
            self._snapshots.post(asked=_OFF)
            return
        from tpuwatch.signals.peers import PeersSignal

        self._peers = PeersSignal(peers, clock=self._clock, rng=self._rng)
        self._snapshots.post(asked=Answer())
        calls = 2 * peers.timeout_seconds
        self._add_source("peer", self._peers, peers.poll_seconds, self._on_peers, after="cloud", calls=calls)

    def _add_monitoring(self) -> None:
        if not self._config.monitoring.read:
            self._snapshots.post(monitoring=_OFF)
            return
        from tpuwatch.signals.monitoring import POLL_SECONDS, MonitoringSignal

        source = MonitoringSignal(
            self._config,
            self.identity,
            clock=self._clock,
            rng=self._rng,
            on_call=self._metrics.node.count_api_request,
        )
        on_answer = self._post_as("monitoring", lambda _: None)
        calls = 3 * self._config.cloud.timeout_seconds  # the token, and a list of each metric
        self._add_source("monitoring", source, POLL_SECONDS, on_answer, after="identity", calls=calls)

    def _add_server(self) -> None:
        url = self._config.workload.metrics_url
        if not url:
            self._snapshots.post(server=_OFF)
            return
        from tpuwatch.signals.server import POLL_SECONDS, TIMEOUT_SECONDS, ServerSignal

        source = ServerSignal(url, clock=self._clock)
        on_answer = self._post_as("server", lambda _: None)
        self._add_source("server", source, POLL_SECONDS, on_answer, calls=TIMEOUT_SECONDS)

    # -- what becomes of an answer

    def _on_identity(self, answer: Answer[Identity]) -> None:
        if answer.problem is None and answer.detail != self._misplaced:
            self._misplaced = answer.detail
            _log.warning("%s", self._misplaced or "This machine is where the configuration expects it.")
        if answer.value is not None and answer.value != self.identity():
            self._snapshots.post(identity=answer.value)
            if "identity" not in self._unanswered:  # else they still wait for it
                self._loops.wake("cloud", "runtime")  # there may be another node to ask for, or other ports

    def _on_cloud(self, source: CloudSignal, answer: Answer[tuple[CloudNode, ...]]) -> None:
        if self._peers is not None and self._peers.follow(source.answers, self.snapshot.own):
            self._loops.wake("peer")
        self._snapshots.post(api=_counted(answer), cloud=source.answers, queued=source.queued, beside=source.beside)
        self._snapshots.post_server_epoch(source.server_epoch)
        self._record("cloud", answer)
        self._metrics.node.set_api_breaker(bool(source.breaker_notice))

    def _on_peers(self, answer: Answer[tuple[Peer, ...]]) -> None:
        answers = self._peers.answers if self._peers is not None else {}
        self._snapshots.post(asked=_counted(answer), peers=answers)
        self._record("peer", answer)
        self._metrics.peers.set_answers(answers)

    def _on_notices(self, source: NoticesSignal, answer: Answer[Notices]) -> None:
        self._snapshots.post(notices=answer)
        self._snapshots.post_server_epoch(source.server_epoch)
        self._record("metadata", answer)
        self._announce()

    def _on_kubernetes(self, answer: Answer[Notices]) -> None:
        self._snapshots.post(kubernetes=answer)
        self._record("kubernetes", answer)
        self._announce()

    def _announce(self) -> None:
        """Put what metadata server and Kubernetes announce into the metrics, and what of it is new into the store."""
        with self._announcing:  # each of them answers in a thread of its own
            kubernetes = self.snapshot.kubernetes.value
            notices = combined(self.snapshot.notices.value, kubernetes)
            self._metrics.node.set_notices(notices)
            if notices is None:
                return
            now, boot_id = self._clock.time(), self._boot_id
            for event in new_events(notices, self._notices, now=now, boot_id=boot_id, kubernetes=kubernetes):
                self._on_event(event)
            self._notices = notices

    def _post_as(self, name: str, record: Callable[[Any], None]) -> Callable[[Answer[Any]], None]:
        """Returns a callback that posts an answer under its name and passes its value on, None after a problem."""

        def on_answer(answer: Answer[Any]) -> None:
            self._snapshots.post(**{name: answer})
            self._record(name, answer)
            record(None if answer.problem else answer.value)

        return on_answer

    def _record_host(self, host: Host | None) -> None:
        self._metrics.node.set_host(host)
        probe = host.probe if host is not None else None
        if probe is not None and probe.id != self._probe:
            self._probe = probe.id
            self._on_event(probe_event(probe))

    def _record_runtime(self, runtime: Runtime | None) -> None:
        self._metrics.node.set_runtime(runtime)
        for port in runtime.ports if runtime is not None else ():
            answer: Answer[None] = Answer(problem=port.problem, detail=port.detail)
            self._failures.record(f"runtime on port {port.port}", answer)

    def _record(self, name: str, answer: Answer[Any]) -> None:
        """Record an answer, or the failure to get one, in metrics and log."""
        if answer.tried is not None and name != "logs":  # the log service reports which logs cannot be read
            self._failures.record(name, answer)
            if answer.problem not in NO_FAILURE:
                self._metrics.node.count_signal_failure(name)
        off = answer.problem is Problem.OFF
        self._metrics.node.set_signal(name, at=answer.at, ok=None if off else answer.problem in NO_FAILURE)


def _counted(answer: Answer[tuple[Any, ...]]) -> Answer[int]:
    """The answer with the number of its values in their place."""
    return Answer(len(answer.value or ()), answer.at, answer.problem, answer.detail, answer.tried)
