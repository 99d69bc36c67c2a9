"""Keeps what goodput is made from: the steps of training loops, and how the node was; and counts both for metrics.

It belongs to the daemon's own thread, looks once a second, and stores once a minute.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tpuwatch.core import StoreError
from tpuwatch.goodput.counting import GoodputCounter
from tpuwatch.goodput.goodput import goodput_of
from tpuwatch.goodput.recorder import StepRecorder
from tpuwatch.goodput.stored import stored_trainings
from tpuwatch.model import GOODPUT_SECONDS, STUCK, NodeSpan, NodeSpanKind, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.core import Clock
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Goodput, JudgedNode, TrainingLoop
    from tpuwatch.store import EventStore

SAVE_SECONDS: Final = 60.0
_MAX_ENDED: Final = 1000

_log = logging.getLogger(__name__)


class GoodputKeeper:
    """Made once by the daemon, for its thread. `latest` is replaced, never changed, and may be read from any."""

    def __init__(self, store: EventStore, *, metrics: Metrics, clock: Clock, boot_id: str, booted: float) -> None:
        """`booted`: when this boot of the machine began, in seconds since the epoch. Raises StoreError."""
        self.latest: Goodput | None = None  # of the last GOODPUT_SECONDS; None: there was no training
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._boot_id = boot_id
        now = clock.time()
        self._recorder = StepRecorder(now)
        before = [span for span in store.node_spans() if span.kind is NodeSpanKind.WATCHED]
        is_first = not any(span.boot_id == boot_id for span in before)
        self._watched_since = min(booted, now) if is_first and before else now
        self._open: dict[NodeSpanKind, NodeSpan] = {}
        self._ended: deque[NodeSpan] = deque(maxlen=_MAX_ENDED)  # not stored yet
        self._counter = GoodputCounter(now)
        self._save_due = clock.monotonic() + SAVE_SECONDS

    def look(self, loops: Sequence[TrainingLoop], node: JudgedNode | None) -> None:
        """Take the training loops and the verdict on the own node as they are now."""
        now = self._clock.time()
        self._recorder.look(loops)
        self._extend(NodeSpanKind.WATCHED, self._watched_since, now)
        judgement = node.judgement if node is not None and node.judgement.unseen is None else None
        verdict = judgement.verdict if judgement is not None else None
        since = judgement.since if judgement is not None and judgement.since is not None else now
        self._hold(NodeSpanKind.STUCK, since if verdict in STUCK else None, now)
        self._hold(NodeSpanKind.MAINTENANCE, now if verdict is Verdict.MAINTENANCE else None, now)
        if self._clock.monotonic() >= self._save_due:
            self.save(loops)

    def save(self, loops: Sequence[TrainingLoop] = ()) -> None:
        """Store what is new, and count it. What the store does not take is offered again. `loops`: that may go on."""
        self._save_due = self._clock.monotonic() + SAVE_SECONDS
        runs = [run for run in self._recorder.changed() if run.looks]  # of one step alone nothing follows
        try:
            self._store.save_steps(runs, [*self._ended, *self._open.values()])
            self._ended.clear()
            self._recorder.saved(loops)
            self._count()
        except StoreError as error:
            self._metrics.daemon.count_store_error()
            _log.warning("%s", error)

    def _hold(self, kind: NodeSpanKind, since: float | None, now: float) -> None:
        """`since`: since when it has been so; None: it is not so."""
        if since is not None:
            self._extend(kind, since, now)
        elif kind in self._open:
            self._ended.append(self._open.pop(kind))

    def _extend(self, kind: NodeSpanKind, since: float, now: float) -> None:
        known = self._open.get(kind)
        self._open[kind] = NodeSpan(kind, since if known is None else known.since, max(now, since), self._boot_id)

    def _count(self) -> None:
        now = self._clock.time()
        since = now - GOODPUT_SECONDS
        known = stored_trainings(self._store, since=since, now=now)
        found = goodput_of(known.trainings, since=since, now=known.seen)
        self.latest = found if found.trainings else None
        counted = self._counter.count(known.trainings, known.node, known.seen)
        self._metrics.goodput.count(counted.seconds, counted.interruptions)
