from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.journal.make import NOW
from tpuwatch.clock import ManualClock
from tpuwatch.errors import JournalError
from tpuwatch.health.evidence import Witness
from tpuwatch.health.verdict import Judgement, Reason, Rung, Sureness, Verdict
from tpuwatch.journal import Journal, schema, store

if TYPE_CHECKING:
    from pathlib import Path


def judgement(node: str = "train-1", verdict: Verdict = Verdict.RUNTIME_STUCK, at: float = NOW) -> Judgement:
    return Judgement(
        node=node,
        verdict=verdict,
        at=at,
        sureness=Sureness.LIKELY,
        rung=Rung.RESTART_RUNTIME,
        summary="The runtime does not answer.",
        reasons=(Reason(Witness.RUNTIME, "Port 8431 takes connections and never answers.", at - 60),),
        contradictions=("The API says READY, the runtime is dead.",),
        since=at - 90,
    )


def test_a_verdict_comes_back_as_it_was_stored(journal: Journal) -> None:
    stored = judgement()
    journal.put_verdicts([stored], "boot-1")
    assert journal.verdicts() == [stored]
    assert journal.last_verdicts("boot-1") == {"train-1": stored}


def test_the_newest_come_first_and_can_be_asked_for_by_node(journal: Journal) -> None:
    journal.put_verdicts([judgement("a", at=NOW), judgement("b", at=NOW + 1)], "boot-1")
    journal.put_verdicts([judgement("a", Verdict.HEALTHY, at=NOW + 2)], "boot-1")
    assert [(one.node, one.verdict) for one in journal.verdicts()] == [
        ("a", Verdict.HEALTHY),
        ("b", Verdict.RUNTIME_STUCK),
        ("a", Verdict.RUNTIME_STUCK),
    ]
    assert [one.at for one in journal.verdicts("a", limit=1)] == [NOW + 2]


def test_what_was_judged_in_an_earlier_boot_is_not_the_last_word(journal: Journal) -> None:
    journal.put_verdicts([judgement("a")], "boot-1")
    journal.put_verdicts([judgement("b")], "boot-2")
    assert set(journal.last_verdicts("boot-2")) == {"b"}


def test_words_of_another_version_are_left_out(journal: Journal) -> None:
    journal.put_verdicts([judgement("a"), judgement("b")], "boot-1")
    with closing(sqlite3.connect(journal._path)) as connection, connection:
        connection.execute("UPDATE verdicts SET verdict = 'of the future' WHERE node = 'a'")
    assert [one.node for one in journal.verdicts()] == ["b"]


def test_the_oldest_go_when_there_are_too_many(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_VERDICTS", 3)
    journal.put_verdicts([judgement(at=NOW + number) for number in range(10)], "boot-1")
    journal.prune(1e9, 1 << 40)
    assert [one.at for one in journal.verdicts()] == [NOW + 9, NOW + 8, NOW + 7]


def test_the_last_word_on_a_node_stays_however_old(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_VERDICTS", 3)
    journal.put_verdicts([judgement("quiet", at=NOW - 2), judgement("quiet", at=NOW - 1)], "boot-1")
    journal.put_verdicts([judgement("busy", at=NOW + number) for number in range(10)], "boot-1")
    journal.prune(1e9, 1 << 40)
    assert [one.at for one in journal.verdicts()] == [NOW + 9, NOW + 8, NOW + 7, NOW - 1]
    assert set(journal.last_verdicts("boot-1")) == {"quiet", "busy"}


def test_of_one_node_no_more_than_so_many_stay(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_NODE_VERDICTS", 4)
    for number in range(10):
        journal.put_verdicts([judgement("flaps", at=NOW + number), judgement(f"n{number}", at=NOW + number)], "boot-1")
    journal.put_verdicts([judgement("just enough", at=NOW + number) for number in range(4)], "boot-1")
    journal.prune(1e9, 1 << 40)
    assert [one.at for one in journal.verdicts("flaps")] == [NOW + 9, NOW + 8, NOW + 7, NOW + 6]
    assert len(journal.verdicts("just enough")) == 4
    assert len(journal.verdicts()) == 4 + 4 + 10


def test_nodes_that_come_and_go_for_ever_do_not_fill_it(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_VERDICTS", 3)
    journal.put_verdicts([judgement(f"n{number}", at=NOW + number) for number in range(100)], "boot-1")
    journal.prune(1e9, 1 << 40)
    assert [one.node for one in journal.verdicts()] == ["n99", "n98", "n97"]


def test_a_journal_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    with closing(schema.connect(tmp_path / schema.FILE_NAME)) as connection:
        schema.migrate(connection, schema.MIGRATIONS[:1])
    with closing(Journal.open(tmp_path, ManualClock())) as journal:
        assert journal.durable
        journal.put_verdicts([judgement()], "")
        assert len(journal.verdicts()) == 1


def test_what_cannot_be_stored_says_so(tmp_path: Path) -> None:
    with closing(Journal.open(tmp_path, ManualClock())) as journal:
        with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection, connection:
            connection.execute("DROP TABLE verdicts")
        with pytest.raises(JournalError, match="cannot write the journal"):
            journal.put_verdicts([judgement()], "")
