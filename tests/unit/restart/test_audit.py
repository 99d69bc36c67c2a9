"""Tests of the audit: a line for each decision, whatever the disk does."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.restart.records import NOW, TARGET, record
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.restart import Blocked, RestartDecision, Use
from tpuwatch.model.verdict import Action
from tpuwatch.restart.audit import Audit
from tpuwatch.restart.ledger.sqlite import SqliteLedger


def note(audit: Audit, evidence: Sequence[str] = (), sentence: str = "Why.", budget: Use | None = None) -> None:
    audit.note(TARGET, "restart_node", "begun", sentence, "node_stuck", evidence, budget=budget)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    return Audit(tmp_path / "state" / "audit.jsonl", "joe@vm", ManualClock(NOW))


def test_a_line_has_all_that_was_known(audit: Audit) -> None:
    note(audit, ("cloud: It is bad.",), budget=Use(1, 3, 2, 10))
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
    note(audit, ("\x1b[31m\n\ud800" + "x" * 10_000,) * 100, "a\nb\x00" + "y" * 10_000)
    (line,) = lines(audit.path)
    assert len(line["evidence"]) == 20
    assert audit.path.stat().st_size < 16_384
    assert all("\x1b" not in one and "\n" not in one for one in [*line["evidence"], line["sentence"]])


def test_what_the_policy_has_decided_is_written_in_its_words(audit: Audit) -> None:
    decision = RestartDecision(
        node="train-1",
        at=NOW,
        verdict="node_stuck",
        wanted=Action.RESTART_NODE,
        act=None,
        blocked=Blocked.UNCONFIRMED,
        sentence="Would stop and start the node, but it has held for 10 s.",
    )
    audit.note_decision(TARGET, decision)
    (line,) = lines(audit.path)
    assert (line["node"], line["actor"], line["decision"]) == (TARGET.path, "joe@vm", "restart_node")
    assert (line["result"], line["blocked"], line["verdict"]) == ("blocked", "unconfirmed", "node_stuck")
    assert line["sentence"] == decision.sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_in_the_daemons_directory_is_the_daemons(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 4321, 4321)
    note(Audit(state / "audit.jsonl", "joe@vm", ManualClock(NOW)))
    SqliteLedger(state, ManualClock(NOW)).write(record(), 0)
    assert {(file.name, file.stat().st_uid) for file in state.iterdir()} == {("audit.jsonl", 4321), ("ledger.db", 4321)}
