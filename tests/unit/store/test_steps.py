"""Steps of training loops and how the node was: as they were given, bounded, and taken along."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreError
from tpuwatch.model.goodput import NodeSpan, NodeSpanKind, StepPause, StepRun, StepSpan
from tpuwatch.model.progress import ProgressSource
from tpuwatch.store import EventStore, schema
from tpuwatch.store import store as store_module

RUN = StepRun(
    source=ProgressSource.HEARTBEAT,
    name="train",
    pid=42,
    user="alice",
    watched_since=5.0,
    began=10.0,
    first_step=1,
    stride=2,
    step_seconds=1.5,
    looks=3,
    spans=(StepSpan(20.0, 5, 4, 6.0, 0.5), StepSpan(30.0, 9, 4, 6.0, 0.0)),
    pauses=(StepPause(18.0, 4, 3.5, True),),
    continues=True,
    done=True,
    stalled=True,
)
SPANS = [
    NodeSpan(NodeSpanKind.WATCHED, 0.0, 100.0, "boot"),
    NodeSpan(NodeSpanKind.STUCK, 50.0, 60.0, "boot"),
    NodeSpan(NodeSpanKind.MAINTENANCE, 90.0, 95.0, "boot"),
]


def test_they_are_as_they_were_given(store: EventStore) -> None:
    unknown = replace(RUN, began=11.0, pid=None, step_seconds=None, spans=(), pauses=(), name="a\udcff")
    store.save_steps([RUN, unknown], SPANS)
    assert store.step_runs() == [RUN, unknown]
    assert store.node_spans() == SPANS
    assert store.step_runs(25.0) == [RUN]
    assert store.step_runs(limit=1) == [unknown]
    assert store.node_spans(96.0) == SPANS[:1]


def test_a_later_one_that_began_at_the_same_time_replaces_it(store: EventStore) -> None:
    later = replace(RUN, looks=4, spans=(*RUN.spans, StepSpan(40.0, 12, 3, 4.5, 0.0)))
    longer = SPANS[0]._replace(until=200.0)
    store.save_steps([RUN], SPANS)
    store.save_steps([later], [longer])
    assert store.step_runs() == [later]
    assert store.node_spans() == [longer, *SPANS[1:]]


def test_one_user_cannot_push_out_the_steps_of_others(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEPT_USER_STEP_RUNS", 3)
    monkeypatch.setattr(store_module, "KEPT_STEP_RUNS", 5)
    monkeypatch.setattr(store_module, "KEPT_NODE_SPANS", 2)
    store.save_steps([RUN, *(replace(RUN, user="mallory", began=100.0 + number) for number in range(9))], SPANS)
    store.prune(1e12, 1 << 30)
    assert [(run.user, run.began) for run in store.step_runs()] == [
        ("alice", 10.0),
        ("mallory", 106.0),
        ("mallory", 107.0),
        ("mallory", 108.0),
    ]
    assert store.node_spans() == SPANS[1:]


def test_what_this_version_does_not_know_is_left_out(store: EventStore, tmp_path: Path) -> None:
    store.save_steps([RUN], SPANS)
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as other, other:
        other.execute("INSERT INTO node_spans VALUES ('frozen', 1, 2, '')")
        other.execute("INSERT INTO step_runs VALUES (1, 'sundial', '', 0, '', 2, '{}')")
        other.execute("INSERT INTO step_runs VALUES (2, 'output', '', 0, '', 2, '{\"spans\": 7}')")
    assert (store.step_runs(), store.node_spans()) == ([RUN], SPANS)


def test_they_are_kept_when_the_files_are_deleted(store: EventStore, tmp_path: Path) -> None:
    store.commit([], [])
    store.save_steps([RUN], SPANS)
    for file in tmp_path.glob("store.db*"):
        file.unlink()
    store.renew()
    assert store.durable
    assert (store.step_runs(), store.node_spans()) == ([RUN], SPANS)


def test_the_next_run_has_them(next_run: Callable[[], EventStore]) -> None:
    next_run().save_steps([RUN], SPANS)
    again = next_run()
    assert (again.step_runs(), again.node_spans()) == ([RUN], SPANS)


def test_a_store_of_before_gets_the_tables(tmp_path: Path) -> None:
    with closing(schema.connect(tmp_path / schema.FILE_NAME)) as former:
        schema.migrate(former, schema.MIGRATIONS[:8])
    with closing(EventStore.open(tmp_path, ManualClock())) as opened:
        opened.save_steps([RUN], [])
        assert opened.step_runs() == [RUN]


def test_one_that_cannot_be_written_changes_nothing(store: EventStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as other, other:
        other.execute("DROP TABLE node_spans")
    with pytest.raises(StoreError):
        store.save_steps([RUN], SPANS)
    assert store.step_runs() == []
