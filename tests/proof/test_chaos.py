"""What breaks things on purpose, in small: it holds, and it reports where it does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof.chaos import fleet_inside
from tests.proof.chaos.calls import Calls
from tests.proof.chaos.command_audit import CommandAudit
from tests.proof.chaos.command_nest import OPERATOR, PARENT
from tests.proof.chaos.command_peers import NodePeers
from tests.proof.chaos.commands import KILLS, CommandChaos
from tests.proof.chaos.common import Tally
from tests.proof.chaos.fleet import ACT, OBSERVE, Day, Plan, table
from tests.proof.chaos.races import Races
from tests.standins.memory_ledger import MemoryLedger
from tests.standins.tpu_api import Call, TpuApi
from tests.unit.restart.records import TARGET, record
from tpuwatch.model.restart import Phase
from tpuwatch.model.verdict import Verdict
from tpuwatch.signals.peer_calls import read_reply

SMALL = Plan(nodes=60, hours=5.0, troubles=25, seed=3, outage_hour=2.0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("tpuwatch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.mark.long
def test_in_a_day_of_a_fleet_nothing_is_restarted_for_nothing() -> None:
    account = Day(SMALL, ACT).live()
    assert account.violations == [], table({"it acts": account})
    assert account.restarts > 5
    assert account.fixed == 1.0
    assert account.beside > Day(SMALL, None).live().beside


def test_what_the_nodes_own_tpuwatch_says_in_chaos_is_read_by_the_daemons() -> None:
    api = TpuApi(lambda: 1000.0)
    path = f"{PARENT}/nodes/train-1"
    api.nodes.add(path)
    peers = NodePeers(api.nodes)
    for verdict in (Verdict.HEALTHY, Verdict.RUNTIME_STUCK):
        reply = read_reply(peers.status("train-1"), "http://train-1")
        assert reply.verdict is not None
        assert (reply.node, reply.verdict.verdict) == ("train-1", verdict)
        assert reply.boot_id
        api.nodes.hang(path)
    peers.close()


def test_one_that_only_observes_touches_nothing() -> None:
    account = Day(SMALL, OBSERVE).live()
    assert (account.violations, account.restarts) == ([], 0)
    assert account.asked["observe"] > 5


def test_without_regard_to_storms_an_outage_makes_restarts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_inside, "OUTAGE_COUNT", 10_000)  # nor of peers that are silent
    account = Day(SMALL, replace(ACT, storm_nodes=10_000)).live()
    assert any("for nothing: outage" in one for one in account.violations)


def test_calls_that_fail_cost_no_second_stop(tmp_path: Path) -> None:
    tally = Calls(tmp_path, every=60, long_seconds=900.0).run()
    assert tally.faults == []
    assert tally.rows["black hole after work"]["done"] >= 1
    assert tally.rows["operation never ends"]["waits, and says so"] == 3


@pytest.mark.long
def test_of_watchers_that_race_one_restarts_a_node(tmp_path: Path) -> None:
    tally = Races(tmp_path, faults=4, seed=1, waves=1, processes=2, watchers=3).run()
    assert tally.faults == []
    assert (tally.counts["stops"], tally.counts["starts"]) == (4, 4)


@pytest.mark.long
def test_commands_that_are_killed_leave_no_node_stopped(tmp_path: Path) -> None:
    tally = CommandChaos(tmp_path, kills=3, seed=3).run()
    assert tally.faults == []
    assert tally.counts[KILLS] >= 3
    assert tally.counts["restarts"] > 0
    assert tally.counts["stops"] + tally.counts["resets"] > 0


class Looked:
    """What the audit of commands says of a node, a record and calls that a test makes up."""

    def __init__(self, root: Path) -> None:
        self.time = 1_790_000_000.0
        self.root = root
        self.tally = Tally()
        self.ledger = MemoryLedger()
        self.api = TpuApi(lambda: self.time)
        self.path = self.api.nodes.add(f"{PARENT}/nodes/train-1")
        self.audit = CommandAudit(self.api, self.ledger, root, self.tally)

    def put(self, phase: Phase, **fields: Any) -> None:
        stored = self.ledger.read(TARGET)
        put = record(**{"phase": phase, "requested": self.time, "entered": self.time, **fields})
        self.ledger.write(put, stored.version if stored else 0)

    def call(self, method: str) -> None:
        call = Call(self.time, method, self.path, "gapic", None, done_at=self.time)
        self.audit.before_a_change(call)
        {"StopNode": self.api.nodes.stop, "StartNode": self.api.nodes.start}[method](self.path, "gapic")

    def look(self, *, age: float = 0.0) -> None:
        call = Call(self.time, "GetNode", self.path, "gapic", None, code="OK", age=age)
        call.node = self.api.nodes.get(self.path, age=age)
        self.api.calls.append(call)

    def judged(self) -> list[str]:
        self.audit.judge("train-1", boots=1, events=0, before=0.0)
        self.audit.end()
        return self.tally.faults


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    return Looked(tmp_path)


def test_the_audit_of_commands_finds_nothing_where_all_is_right(looked: Looked) -> None:
    looked.put(Phase.INTENT)
    looked.call("StopNode")
    looked.time += 20
    looked.put(Phase.STOPPED)
    looked.call("StartNode")
    looked.time += 50
    looked.put(Phase.DONE)
    assert looked.judged() == []


def test_the_audit_of_commands_finds_a_stop_without_its_record_and_a_node_left_stopped(looked: Looked) -> None:
    looked.put(Phase.REQUESTED)
    looked.call("StopNode")
    looked.time += 20
    looked.put(Phase.FAILED)
    assert [fault.split(".")[0] for fault in looked.judged()] == [
        "StopNode of train-1 came while the ledger had requested",
        "train-1: it does not run",
    ]


def test_the_audit_of_commands_finds_a_second_stop_and_a_record_left_open(looked: Looked) -> None:
    looked.put(Phase.INTENT)
    began = looked.time
    looked.call("StopNode")
    looked.time += 20
    looked.api.nodes.start(looked.path, "another")
    looked.time, now = began, looked.time + 50
    looked.put(Phase.INTENT)
    looked.time = now
    looked.call("StopNode")
    faults = looked.judged()
    assert any(one.startswith(f"train-1 was stopped again for the restart requested at {began:.3f}.") for one in faults)
    assert "train-1 is left intent: " in faults


@pytest.mark.parametrize(
    ("age", "well_for", "fault"),
    [
        (0.0, 0.0, ""),
        (20.0, 15.0, ""),  # it could not be seen yet
        (0.0, 15.0, "by policy, though the look before showed READY, HEALTHY"),
        (100.0, 50.0, "by policy, though its own tpuwatch, or the operations, said so"),
    ],
)
def test_the_audit_of_commands_finds_a_stop_of_what_could_be_seen_to_be_well(
    looked: Looked, age: float, well_for: float, fault: str
) -> None:
    looked.put(Phase.INTENT, signals=("cloud", "runtime"))
    looked.api.nodes.hang(looked.path)
    looked.time += 200
    if well_for:
        looked.api.nodes.heal(looked.path)
    looked.time += well_for
    looked.look(age=age)
    looked.call("StopNode")
    assert len(looked.tally.faults) == bool(fault)
    assert all(fault in one for one in looked.tally.faults)
    assert looked.tally.counts["taken down, and well unseen"] == (well_for > 0 and not fault)


def test_the_audit_of_commands_finds_lines_that_say_too_much_or_nothing(looked: Looked) -> None:
    looked.put(Phase.DONE)
    (looked.root / OPERATOR).mkdir()
    line = '{"node": "projects/lab/locations/us-east5-a/nodes/train-1", "result": "done"}'
    (looked.root / OPERATOR / "audit.jsonl").write_text(f'{line}\n{{"node"\n')
    (looked.root / "train-1.log").write_text("Traceback (most recent call last):")
    faults = looked.judged()
    assert sum(" a line that cannot be read: " in fault for fault in faults) == 1
    assert sum("more restarts that were carried out than the ledger" in fault for fault in faults) == 1
    assert "train-1.log: Traceback (most recent call last):" in faults
