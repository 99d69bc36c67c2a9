"""The sources of signals, each asked in a loop of its own: what their modules have in common.

A module of a signal has a class that asks, and `start(sources)`, which adds it.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, Protocol

from tpuwatch.model import Answer, Problem, Signal
from tpuwatch.signals.failure_log import NO_FAILURE, FailureLog
from tpuwatch.signals.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.config import Config
    from tpuwatch.core import Clock, LoopGroup
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import CloudNode, Event, Identity, Peer, Snapshot
    from tpuwatch.store import EventStore

FIRST_SECONDS = 10.0  # the first verdict waits at most so long for the first answer of every source
_OFF: Answer[Any] = Answer(problem=Problem.OFF, detail="It is switched off in the configuration.")


class SignalSource(Protocol):
    """What gives a signal. `ask` does not raise for expected failures; `due_in` is when to ask again, in seconds."""

    @property
    def due_in(self) -> float: ...

    def ask(self) -> Answer[Any]: ...

    def close(self) -> None: ...


class Peers(Protocol):
    """What asks the tpuwatch of other nodes, for the other signals and for other threads."""

    def follow(self, nodes: Mapping[str, Answer[CloudNode]], here: Snapshot) -> bool: ...

    def ask_now(self, label: str) -> Peer | None: ...


class SignalSources:
    """Asks the sources of one configuration. Made by the daemon's thread; `snapshot` may be read from any."""

    def __init__(
        self,
        config: Config,
        *,
        loops: LoopGroup,
        store: EventStore,
        metrics: Metrics,
        clock: Clock,
        on_event: Callable[[Event], None],
        on_change: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        """Adds its loops to `loops`. Calls `on_event` for each event to store and `on_change` when the snapshot has
        changed, both from any thread. `rng` spreads the polls."""
        self.config = config
        self.environ = config.host.environ(os.environ)
        self.store = store
        self.metrics = metrics
        self.clock = clock
        self.rng = rng or random.Random()  # noqa: S311 (spreads polls, keeps no secret)
        self.on_event = on_event
        self.misplaced = ""  # what the configuration gets wrong about where this machine is: a sentence
        self.peers: Peers | None = None
        self._loops = loops
        self._on_change = on_change
        self._snapshots = SnapshotStore(on_change)
        self._sources: list[SignalSource] = []
        self._unanswered: set[str] = set()  # loops whose source has not answered yet
        self._waiting_for: dict[str, list[str]] = {}  # loops that wait, at first, for the first answer of another
        self._began = clock.monotonic()
        self.failures = FailureLog()

    @property
    def snapshot(self) -> Snapshot:
        """The latest answers."""
        return self._snapshots.snapshot

    def identity(self) -> Identity:
        """The identity of this machine, as far as it is known."""
        return self.snapshot.identity

    def first_wait(self, *names: str) -> float:
        """Seconds left to wait for the first answers of these loops' sources; without names, of all."""
        waited = self.clock.monotonic() - self._began
        return FIRST_SECONDS - waited if self._unanswered & set(names or self._unanswered) else 0.0

    def add(
        self,
        name: str,
        source: SignalSource,
        interval: float,
        on_answer: Callable[[Any], None],
        *,
        after: str = "",
        calls: float = 0.0,
    ) -> None:
        """Ask a source in a loop of its own; the first time only once the loop `after` has its first answer.

        `interval` and `calls`, the longest that one turn's calls take, are seconds.
        """

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
        self._loops.add(name, turn, interval, calls, has_begun=lambda: self.has_answered(name))

    def has_answered(self, name: str) -> bool:
        """Whether the source of a loop has answered."""
        return name not in self._unanswered

    def post(self, signal: Signal, answer: Answer[Any], **more: Any) -> None:
        """Post a signal's latest answer, with `more` by the names of Snapshot's fields, and record it in metrics and
        log."""
        self._snapshots.post(**{signal.whole: answer}, **more)
        if answer.tried is not None and signal is not Signal.LOGS:  # the log service reports which logs cannot be read
            self.failures.record(signal.value, answer)
            if answer.problem not in NO_FAILURE:
                self.metrics.node.count_signal_failure(signal.value)
        off = answer.problem is Problem.OFF
        self.metrics.node.set_signal(signal.value, at=answer.at, ok=None if off else answer.problem in NO_FAILURE)

    def post_off(self, signal: Signal) -> None:
        """Post that the configuration does not want a signal."""
        self.post(signal, _OFF)

    def post_fields(self, **fields: Any) -> None:
        """Post what no signal is, by the names of Snapshot's fields."""
        self._snapshots.post(**fields)

    def post_server_epoch(self, epoch: float | None) -> None:
        """Post what time it is by Google's servers."""
        self._snapshots.post_server_epoch(epoch)

    def wake(self, *names: str) -> None:
        """Have these loops ask now."""
        self._loops.wake(*names)

    def close(self) -> None:
        """Cancel calls in progress. Call it after the loops are stopped: no answer is posted any more."""
        for source in self._sources:
            source.close()

    def _first_answer(self, name: str) -> None:
        if not self.has_answered(name):
            self._unanswered.discard(name)
            self._on_change()
            self.wake(*self._waiting_for.get(name, ()))  # no others: a loop that is woken asks, due or not
