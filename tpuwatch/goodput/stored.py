"""Trainings and their goodput from what a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.goodput.goodput import accounted, goodput_of
from tpuwatch.goodput.trainings import node_periods, trainings_of
from tpuwatch.model import NodeSpanKind

if TYPE_CHECKING:
    from tpuwatch.goodput.account import NodePeriods
    from tpuwatch.goodput.goodput import Accounted
    from tpuwatch.model import Goodput
    from tpuwatch.store import EventStore, StoreReader

MAX_LAUNCHES: Final = 2000
MAX_RUNS: Final = 500
_BEFORE_SECONDS: Final = 2 * 86_400.0  # what ended so long before a period may belong to a training in it


class StoredTrainings(NamedTuple):
    """Trainings with their time, how the node was, and until when both were seen."""

    trainings: list[Accounted]
    node: NodePeriods
    seen: float


def stored_goodput(store: EventStore | StoreReader, *, since: float, now: float, workload: str = "") -> Goodput:
    """Where the time of trainings went from `since` until now; of one workload, if it is named. Raises StoreError."""
    found = stored_trainings(store, since=since, now=now)
    return goodput_of(found.trainings, since=since, now=found.seen, workload=workload)


def stored_trainings(store: EventStore | StoreReader, *, since: float, now: float) -> StoredTrainings:
    """The trainings of a period that lasts until now.

    Nothing is known of the time after tpuwatch last stored what it saw. Raises StoreError.
    """
    earliest = since - _BEFORE_SECONDS
    runs, spans = store.step_runs(earliest, MAX_RUNS), store.node_spans(earliest)
    seen = min(now, max((one.until for one in spans if one.kind is NodeSpanKind.WATCHED), default=now))
    earliest = min((run.began for run in runs), default=earliest)
    launches = [one for one in store.launches(MAX_LAUNCHES) if one.ended is None or one.ended >= earliest]
    node = node_periods(spans)
    return StoredTrainings(accounted(trainings_of(launches, runs, spans, seen), node, seen), node, seen)
