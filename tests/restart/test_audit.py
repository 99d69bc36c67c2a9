"""Tests of the audit: a line for each decision, whatever the disk does."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.restart.records import NOW, TARGET
from tpuwatch.health.verdict import Rung
from tpuwatch.restart.audit import Audit, Entry
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.policy.decision import Blocked, Decision, Use


def entry(**fields: Any) -> Entry:
    given = {"at": NOW, "node": TARGET.path, "actor": "joe@vm", "decision": "restart_node", "result": "begun"}
    return Entry(**{**given, **fields})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(tmp_path / "state" / "audit.jsonl")


def test_a_line_has_all_that_was_known(audit: Audit) -> None:
    audit.note(entry(verdict="node_stuck", evidence=("cloud: It is bad.",), budget=Use(1, 3, 2, 10), sentence="Why."))
    assert lines(audit.path) == [
        {
            "time": "2026-09-21T14:13:20.000Z",
            "time_epoch": NOW,
            "node": TARGET.path,
            "actor": "joe@vm",
            "decision": "restart_node",
            "result": "begun",
            "blocked": None,
            "verdict": "node_stuck",
            "evidence": ["cloud: It is bad."],
            "budget": {"node": 1, "node_max": 3, "fleet": 2, "fleet_max": 10},
            "sentence": "Why.",
        }
    ]
    assert stat.S_IMODE(audit.path.stat().st_mode) == 0o600


def test_what_comes_from_outside_is_cleaned_and_cut(audit: Audit) -> None:
    audit.note(entry(evidence=("\x1b[31m\n\ud800" + "x" * 10_000,) * 100, sentence="a\nb\x00" + "y" * 10_000))
    (line,) = lines(audit.path)
    assert len(line["evidence"]) == 20
    assert audit.path.stat().st_size < 16_384
    assert all("\x1b" not in one and "\n" not in one for one in [*line["evidence"], line["sentence"]])


def test_what_the_policy_has_decided_is_written_in_its_words(audit: Audit) -> None:
    decision = Decision(
        node="train-1",
        at=NOW,
        verdict="node_stuck",
        wanted=Rung.RESTART_NODE,
        act=None,
        blocked=Blocked.UNCONFIRMED,
        sentence="Would stop and start the node, but it has held for 10 s.",
    )
    audit.note(Entry.of(decision, TARGET, "vm-1"))
    (line,) = lines(audit.path)
    assert (line["node"], line["actor"], line["decision"]) == (TARGET.path, "vm-1", "restart_node")
    assert (line["result"], line["blocked"], line["verdict"]) == ("blocked", "unconfirmed", "node_stuck")
    assert line["sentence"] == decision.sentence


def test_it_is_set_aside_once_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_bytes=1000)
    for number in range(30):
        audit.note(entry(sentence=f"{number}"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    kept = [int(line["sentence"]) for line in [*lines(Path(f"{path}.1")), *lines(path)]]
    assert kept == list(range(kept[0], 30))
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())


def test_one_that_another_process_sets_aside_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path, max_bytes=100)
    audit.note(entry())
    with open(path, "rb") as other:
        import fcntl

        fcntl.flock(other, fcntl.LOCK_EX)
        audit.note(entry())
        assert not Path(f"{path}.1").exists()
        assert len(lines(path)) == 2
    audit.note(entry())
    assert (len(lines(path)), len(lines(Path(f"{path}.1")))) == (1, 2)


def test_a_full_disk_is_a_warning_and_the_next_line_is_whole(
    audit: Audit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit.note(entry(sentence="1"))
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        audit.note(entry(sentence="2"))
        patch.setattr(os, "write", raising(errno.ENOSPC))
        audit.note(entry(sentence="3"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "No space left on device" in caplog.text
    audit.note(entry(sentence="4"))
    assert "is written again" in caplog.text
    first, torn, last = audit.path.read_text("ascii").splitlines()
    assert [json.loads(first)["sentence"], json.loads(last)["sentence"]] == ["1", "4"]
    assert len(torn) == 20


def raising(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_link_in_its_place_is_not_followed(audit: Audit, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    audit.path.parent.mkdir()
    audit.path.symlink_to(victim)
    audit.note(entry())
    assert victim.read_text() == "mine"
    assert "cannot be written" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_in_the_daemons_directory_is_the_daemons(tmp_path: Path) -> None:
    from tests.restart.records import record
    from tpuwatch.clock import SystemClock

    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 4321, 4321)
    Audit(state / "audit.jsonl").note(entry())
    SqliteLedger(state, SystemClock()).write(record(), 0)
    assert {(file.name, file.stat().st_uid) for file in state.iterdir()} == {("audit.jsonl", 4321), ("ledger.db", 4321)}
    theirs = state / "other.jsonl"
    theirs.touch()
    Audit(theirs).note(entry())
    assert theirs.stat().st_uid == 0  # what was there already stays whose it was
