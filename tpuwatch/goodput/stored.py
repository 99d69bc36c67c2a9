"""Trainings and their goodput from what a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.goodput.goodput import goodput_of
from tpuwatch.goodput.trainings import node_periods, trainings_of
from tpuwatch.model import NodeSpanKind

if TYPE_CHECKING:
    from tpuwatch.goodput.account import NodePeriods
    from tpuwatch.goodput.trainings import Training
    from tpuwatch.model import Goodput
    from tpuwatch.store import EventStore, StoreReader

MAX_LAUNCHES: Final = 2000
MAX_RUNS: Final = 500
_BEFORE_SECONDS: Final = 2 * 86_400.0  # what ended so long before a period may belong to a training in it


def stored_goodput(store: EventStore | StoreReader, *, since: float, now: float, workload: str = "") -> Goodput:
    """Where the time of trainings went from `since` until now; of one workload, if it is named. Raises StoreError."""
    trainings, node, seen = stored_trainings(store, since=since, now=now)
    return goodput_of(trainings, node, since=since, now=seen, workload=workload)


def stored_trainings(
    store: EventStore | StoreReader, *, since: float, now: float
) -> tuple[list[Training], NodePeriods, float]:
    """The trainings of a period that lasts until now, how the node was, and until when that was seen.

    Nothing is known of the time after tpuwatch last stored what it saw. Raises StoreError.
    """
    earliest = since - _BEFORE_SECONDS
    runs, spans = store.step_runs(earliest, MAX_RUNS), store.node_spans(earliest)
    seen = min(now, max((one.until for one in spans if one.kind is NodeSpanKind.WATCHED), default=now))
    earliest = min((run.began for run in runs), default=earliest)
    launches = [one for one in store.launches(MAX_LAUNCHES) if one.ended is None or one.ended >= earliest]
    return trainings_of(launches, runs, spans, seen), node_periods(spans), seen
