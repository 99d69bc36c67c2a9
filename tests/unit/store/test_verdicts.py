from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.unit.store.make import NOW
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import StoreError
from tpuwatch.model.signals import Signal
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


def test_a_verdict_comes_back_as_it_was_stored(store: EventStore) -> None:
    stored = judgement()
    store.add_verdicts([stored], "boot-1")
    assert store.verdicts() == [stored]
    assert store.last_verdicts("boot-1") == {"train-1": stored}


def test_the_newest_come_first_and_can_be_asked_for_by_node(store: EventStore) -> None:
    store.add_verdicts([judgement("a", at=NOW), judgement("b", at=NOW + 1)], "boot-1")
    store.add_verdicts([judgement("a", Verdict.HEALTHY, at=NOW + 2)], "boot-1")
    assert [(one.node, one.verdict) for one in store.verdicts()] == [
        ("a", Verdict.HEALTHY),
        ("b", Verdict.RUNTIME_STUCK),
        ("a", Verdict.RUNTIME_STUCK),
    ]
    assert [one.at for one in store.verdicts("a", limit=1)] == [NOW + 2]


def test_a_verdict_of_an_earlier_boot_is_not_a_last_verdict(store: EventStore) -> None:
    store.add_verdicts([judgement("a")], "boot-1")
    store.add_verdicts([judgement("b")], "boot-2")
    assert set(store.last_verdicts("boot-2")) == {"b"}


def test_words_of_another_version_are_left_out(store: EventStore) -> None:
    store.add_verdicts([judgement("a"), judgement("b")], "boot-1")
    with closing(sqlite3.connect(store._path)) as connection, connection:
        connection.execute("UPDATE verdicts SET verdict = 'of the future' WHERE node = 'a'")
    assert [one.node for one in store.verdicts()] == ["b"]


def test_the_oldest_go_when_there_are_too_many(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement(at=NOW + number) for number in range(10)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert [one.at for one in store.verdicts()] == [NOW + 9, NOW + 8, NOW + 7]


def test_the_last_verdict_on_a_node_is_kept_however_old(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement("quiet", at=NOW - 2), judgement("quiet", at=NOW - 1)], "boot-1")
    store.add_verdicts([judgement("busy", at=NOW + number) for number in range(10)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert [one.at for one in store.verdicts()] == [NOW + 9, NOW + 8, NOW + 7, NOW - 1]
    assert set(store.last_verdicts("boot-1")) == {"quiet", "busy"}


def test_of_one_node_no_more_than_so_many_stay(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_NODE_VERDICTS", 4)
    for number in range(10):
        store.add_verdicts([judgement("flaps", at=NOW + number), judgement(f"n{number}", at=NOW + number)], "boot-1")
    store.add_verdicts([judgement("just enough", at=NOW + number) for number in range(4)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert [one.at for one in store.verdicts("flaps")] == [NOW + 9, NOW + 8, NOW + 7, NOW + 6]
    assert len(store.verdicts("just enough")) == 4
    assert len(store.verdicts()) == 4 + 4 + 10


def test_nodes_that_come_and_go_for_ever_do_not_fill_it(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.store.store.KEPT_VERDICTS", 3)
    store.add_verdicts([judgement(f"n{number}", at=NOW + number) for number in range(100)], "boot-1")
    store.prune(1e9, 1 << 40)
    assert [one.node for one in store.verdicts()] == ["n99", "n98", "n97"]


def test_what_cannot_be_stored_raises(tmp_path: Path) -> None:
    with closing(EventStore.open(tmp_path, ManualClock())) as store:
        with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection, connection:
            connection.execute("DROP TABLE verdicts")
        with pytest.raises(StoreError, match="cannot write the store"):
            store.add_verdicts([judgement()], "")
