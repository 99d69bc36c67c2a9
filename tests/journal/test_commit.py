from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.journal.make import NOW, cursor, event
from tpuwatch.errors import JournalError
from tpuwatch.journal import Journal, schema
from tpuwatch.model import Cause, Launch, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.clock import ManualClock


def test_events_come_back_as_they_went_in(journal: Journal) -> None:
    told = [
        event("a", details={}),
        event(
            "b", time=None, pid=None, severity="", history=True, details={"allocations": [{"op": "x", "size_bytes": 1}]}
        ),
    ]
    new = journal.commit(told, [])
    assert [one.id for one in new] == [1, 2]
    assert journal.events() == new
    assert [replace(one, id=None) for one in journal.events()] == [replace(one, id=None) for one in told]


def test_copies_count_once_in_one_commit_and_over_commits_and_runs(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path, clock)
    assert [one.key for one in journal.commit([event("a"), event("b"), event("a", file="/x.ERROR")], [])] == [
        b"a",
        b"b",
    ]
    assert [one.key for one in journal.commit([event("b"), event("c"), event("a")], [])] == [b"c"]
    journal.close()
    journal = Journal.open(tmp_path, clock)
    assert journal.commit([event("a"), event("b")], []) == []
    assert [one.key for one in journal.events()] == [b"a", b"b", b"c"]
    assert journal.events()[0].file == event("a").file
    journal.close()


def test_a_copy_is_given_no_id(journal: Journal) -> None:
    journal.commit([event("a")], [])
    copy = event("a")
    journal.commit([copy], [])
    assert copy.id is None


def test_events_that_no_log_can_give_again_are_stored_beside_what_is_read(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path, clock)
    first = event("a")
    assert journal.put_events([first]) == [first]
    assert journal.put_events([event("a")]) == []
    assert journal.first_run  # no log has been read
    journal.commit([event("a"), event("b")], [])
    assert journal.put_events([event("c"), event("b")])[0].key == b"c"
    assert [(one.key, one.id) for one in journal.events(after_id=0)] == [(b"a", 1), (b"b", 4), (b"c", 5)]
    journal.close()


def test_threads_that_store_at_once_give_no_id_twice(journal: Journal) -> None:
    together = threading.Barrier(3)

    def put(name: str) -> None:
        together.wait()
        for number in range(50):
            journal.put_events([event(f"{name}{number}")])

    def commit() -> None:
        together.wait()
        for number in range(50):
            journal.commit([event(f"r{number}"), event(f"s{number}")], [])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(put, "p"), pool.submit(put, "q"), pool.submit(commit)]:
            done.result()
    stored = journal.events(after_id=0, limit=1000)
    assert sorted(one.key for one in stored) == sorted(
        f"{name}{number}".encode() for name in "pqrs" for number in range(50)
    )


def test_ids_rise_from_run_to_run_even_when_all_events_are_pruned(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path, clock)
    journal.commit([event("a"), event("b")], [])
    clock.advance(1000)
    assert journal.prune(max_age_seconds=10, max_bytes=1 << 30) == 2
    journal.close()
    journal = Journal.open(tmp_path, clock)
    assert [one.id for one in journal.commit([event("c")], [])] == [3]
    journal.close()


@pytest.mark.parametrize("text", ["a\0b", "\ud800 lone", "caf\udce9", "naïve ☃ 🦕", "\ufffd"])
def test_any_string_can_be_kept(journal: Journal, text: str) -> None:
    told = event("a", text=text, file=f"/logs/{text}", details={"op": text})
    journal.commit([told], [cursor(path=f"/logs/{text}", state={"tail": text})])
    assert journal.events() == [told]
    assert journal.cursors() == [cursor(path=f"/logs/{text}", state={"tail": text})]


def test_a_pid_that_is_no_pid_spoils_nothing(journal: Journal) -> None:
    journal.commit([event("a", pid=10**30), event("b")], [])
    assert [one.pid for one in journal.events()] == [None, 42]


def test_times_that_are_no_numbers_spoil_nothing(journal: Journal) -> None:
    assert len(journal.commit([event("a", time=float("nan")), event("b", time=float("inf"))], [])) == 2
    assert len(journal.events()) == 2


def test_offsets_and_events_fail_together(journal: Journal, tmp_path: Path) -> None:
    journal.commit([event("a")], [cursor(10)])
    with sqlite3.connect(tmp_path / schema.FILE_NAME) as stranger:
        stranger.execute("CREATE TRIGGER no BEFORE INSERT ON cursors BEGIN SELECT RAISE(FAIL, 'no'); END")
    stranger.close()
    with pytest.raises(JournalError, match=r"cannot write the journal .*journal\.db: no;"):
        journal.commit([event("b")], [cursor(20)])
    assert [one.key for one in journal.events()] == [b"a"]
    assert [one.offset for one in journal.cursors()] == [10]


def test_a_bound_value_that_sqlite_refuses_leaves_no_transaction_open(journal: Journal) -> None:
    with pytest.raises(OverflowError):
        journal.commit([event("a"), event("b", offset=1 << 70)], [])
    assert journal.events() == []
    assert len(journal.commit([event("a")], [])) == 1


def test_cursors_know_a_file_by_device_and_inode(journal: Journal) -> None:
    journal.commit([], [cursor(10, head=b"first file"), cursor(5, device=9, head=b"first file")])
    journal.commit([], [cursor(20, head=b"first file", path="/logs/renamed")])
    assert {one.device: (one.path, one.offset) for one in journal.cursors()} == {
        1: ("/logs/renamed", 20),
        9: ("/logs/a", 5),
    }


def test_an_inode_that_is_used_again_has_the_cursor_of_the_new_file_alone(journal: Journal) -> None:
    journal.commit([], [cursor(10, head=b"z, the first file")])
    journal.commit([], [cursor(3, head=b"another file")])
    journal.forget_cursors([(1, 2)], 60)
    assert [(one.head, one.offset) for one in journal.cursors()] == [(b"another file", 3)]


def test_the_cursor_heard_of_last_comes_last(journal: Journal, clock: ManualClock) -> None:
    for inode in (26, 1, 13):
        journal.commit([], [cursor(inode=inode)])
        clock.advance(1)
    assert [one.inode for one in journal.cursors()] == [26, 1, 13]


def test_a_file_whose_first_bytes_have_grown_has_one_cursor(journal: Journal) -> None:
    journal.commit([], [cursor(0, head=b"")])
    journal.commit([], [cursor(3, head=b"Log")])
    journal.commit([], [cursor(8, head=b"Log file")])
    assert journal.cursors() == [cursor(8, head=b"Log file")]


def test_device_and_inode_may_use_all_64_bits(journal: Journal) -> None:
    large = cursor(device=(1 << 64) - 1, inode=1 << 63, history_until=7)
    journal.commit([], [large])
    assert journal.cursors() == [large]


def test_a_launch_is_known_by_pid_and_start(journal: Journal) -> None:
    launch = Launch(pid=7, started=NOW, environment={"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"})
    journal.commit([], [], [launch, Launch(pid=7, started=NOW + 60)])
    launch.outcome, launch.cause, launch.init_seconds = Outcome.FAILED, Cause.PREMAPPED_EXHAUSTED, 21.5
    journal.commit([], [], [launch])
    newest, oldest = journal.launches()
    assert (newest.started, newest.outcome) == (NOW + 60, Outcome.STARTING)
    assert oldest == replace(launch, id=oldest.id)
    assert journal.launches(limit=1) == [newest]


def test_a_closed_journal_says_so(tmp_path: Path, clock: ManualClock) -> None:
    journal = Journal.open(tmp_path, clock)
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.commit([event("a")], [])
