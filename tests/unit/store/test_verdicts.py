from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW, stored_verdicts
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreError
from tpuwatch.model.answers import Signal
from tpuwatch.model.verdict import Action, Confidence, Judgement, Reason, Verdict
from tpuwatch.store import EventStore, schema

if TYPE_CHECKING:
    from pathlib import Path


def judgement(node: str = "train-1", verdict: Verdict = Verdict.RUNTIME_STUCK, at: float = NOW) -> Judgement:
    return Judgement(
        node=node,
        verdict=verdict,
        at=at,
        confidence=Confidence.MEDIUM,
        action=Action.RESTART_RUNTIME,
        summary="The runtime does not answer.",
        reasons=(Reason(Signal.RUNTIME, "Port 8431 takes connections and never answers.", at - 60),),
        contradictions=("The API says READY, the runtime is dead.",),
        since=at - 90,
    )


def stored(store: EventStore) -> list[tuple[str, float]]:
    """Node and time of all stored verdicts, the newest first."""
    return [(one.node, one.at - NOW) for one in stored_verdicts(store)]


def test_the_last_verdict_on_each_node_comes_back_as_it_was_stored(store: EventStore) -> None:
    last = [judgement("a", at=NOW + 1), judgement("b", Verdict.HEALTHY, at=NOW + 2)]
    store.add_verdicts([judgement("b"), last[0]], "boot-1")
    store.add_verdicts([last[1]], "boot-1")
    assert store.last_verdicts("boot-1") == {"a": last[0], "b": last[1]}


def test_a_verdict_of_an_earlier_boot_is_not_a_last_verdict(store: EventStore) -> None:
    store.add_verdicts([judgement("a")], "boot-1")
    store.add_verdicts([judgement("b")], "boot-2")
    assert set(store.last_verdicts("boot-2")) == {"b"}


def test_words_of_another_version_are_left_out(store: EventStore) -> None:
    store.add_verdicts([judgement("a"), judgement("b")], "boot-1")
    with closing(sqlite3.connect(store._path)) as connection, connection:
        connection.execute("UPDATE verdicts SET verdict = 'of the future' WHERE node = 'a'")
    assert set(store.last_verdicts("boot-1")) == {"b"}


def test_the_oldest_go_when_there_are_too_many(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement(at=NOW + number) for number in range(10)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert stored(store) == [("train-1", 9), ("train-1", 8), ("train-1", 7)]


def test_the_last_verdict_on_a_node_is_kept_however_old(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement("quiet", at=NOW - 2), judgement("quiet", at=NOW - 1)], "boot-1")
    store.add_verdicts([judgement("busy", at=NOW + number) for number in range(10)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert stored(store) == [("busy", 9), ("busy", 8), ("busy", 7), ("quiet", -1)]
    assert set(store.last_verdicts("boot-1")) == {"quiet", "busy"}


def test_of_one_node_no_more_than_so_many_stay(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_NODE_VERDICTS", 4)
    for number in range(10):
        store.add_verdicts([judgement("flaps", at=NOW + number), judgement(f"n{number}", at=NOW + number)], "boot-1")
    store.add_verdicts([judgement("just enough", at=NOW + number) for number in range(4)], "boot-1")
    store.prune(1e9, 1 << 40)
    left = stored(store)
    assert [at for node, at in left if node == "flaps"] == [9, 8, 7, 6]
    assert sum(node == "just enough" for node, _ in left) == 4
    assert len(left) == 4 + 4 + 10


def test_nodes_that_come_and_go_for_ever_do_not_fill_it(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement(f"n{number}", at=NOW + number) for number in range(100)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert stored(store) == [("n99", 99), ("n98", 98), ("n97", 97)]


def test_what_cannot_be_stored_raises(tmp_path: Path) -> None:
    with closing(EventStore.open(tmp_path, ManualClock())) as store:
        with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection, connection:
            connection.execute("DROP TABLE verdicts")
        with pytest.raises(StoreError, match="cannot write the store"):
            store.add_verdicts([judgement()], "")
