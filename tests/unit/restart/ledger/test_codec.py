"""Ledgers that were written with former schemas are still read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import (
    Attempt,
    Breaker,
    Claim,
    Fleet,
    Grounds,
    Lease,
    OnMachine,
    Phase,
    ProcessId,
    RestartRecord,
    Target,
)
from tpuwatch.model.verdict import Action
from tpuwatch.restart.ledger.codec import SCHEMA, decode, encode

# As the code before the change of names had written them.
OLD_RECORD = (
    '{"schema":1,"target":{"project":"lab","zone":"us-east5-a","node":"train-1"},"rung":"nothing","phase"'
    ':"needs_person","cause":"node_stuck","reason":"It is stuck.","evidence":["agent: it hangs."],"actor"'
    ':"watcher","requested":100.0,"lease":{"owner":"w","seconds":60.0},"entered":200.0,"operation":"","op'
    'erations":["op-1"],"foreign":[],"queued_resource":"","tries":0,"not_before":0.0,"stops":1,"began":0.'
    '0,"down":0.0,"shown":"","shown_since":0.0,"unseen_since":0.0,"well_since":0.0,"boot_id":"","witnesse'
    's":["agent","cloud"],"note":"Start it.","history":[{"rung":"restart_node","cause":"node_stuck","bega'
    'n":100.0,"ended":200.0,"phase":"needs_person","stops":1,"actor":"watcher"},{"rung":"ask","cause":"no'
    'de_stuck","began":10.0,"ended":20.0,"phase":"done","stops":1,"actor":"operator"}]}'
)
OLD_FLEET = (
    '{"schema":1,"breaker":{"opened":5.0,"reason":"It broke.","reset_at":0.0,"reset_by":""},"claims":[{"t'
    'arget":{"project":"lab","zone":"us-east5-a","node":"train-1"},"began":7.0}]}'
)
TARGET = Target("lab", "us-east5-a", "train-1")
RECORD = RestartRecord(
    target=TARGET,
    action=Action.NONE,
    phase=Phase.NEEDS_OPERATOR,
    cause="node_stuck",
    reason="It is stuck.",
    evidence=("agent: it hangs.",),
    actor="watcher",
    requested=100.0,
    lease=Lease("w", 60.0),
    entered=200.0,
    operations=("op-1",),
    stops=1,
    signals=("peer", "cloud"),
    note="Start it.",
    history=(
        Attempt(Action.RESTART_NODE, "node_stuck", 100.0, 200.0, Phase.NEEDS_OPERATOR, 1, "watcher"),
        Attempt(Action.MANUAL, "node_stuck", 10.0, 20.0, Phase.DONE, 1, "operator"),
    ),
)
FLEET = Fleet(Breaker(5.0, "It broke."), (Claim(TARGET, 7.0),))


def test_a_record_of_schema_1_is_read_by_the_names_of_today() -> None:
    assert decode(RestartRecord, OLD_RECORD, "ledger.db") == RECORD
    assert decode(Fleet, OLD_FLEET, "ledger.db") == FLEET
    assert json.loads(encode(RECORD))["schema"] == SCHEMA
    assert decode(RestartRecord, encode(RECORD), "ledger.db") == RECORD


def test_a_record_of_schema_2_is_read_as_one_of_which_it_is_not_known_what_it_was_decided_on() -> None:
    grounds = Grounds("node_stuck", Action.MANUAL, 9.0, "w", 8.0, ("kernel",))
    whole = replace(RECORD, grounds=grounds, sources=("cloud", "kernel"))
    assert decode(RestartRecord, encode(whole), "ledger.db") == whole
    document = json.loads(encode(whole))
    del document["grounds"], document["sources"]
    former = decode(RestartRecord, json.dumps({**document, "schema": 2}), "ledger.db")
    assert (former.grounds, former.sources) == (Grounds(), ())
    with pytest.raises(LedgerError):
        decode(RestartRecord, json.dumps({**document, "grounds": {"verdict": 7}}), "ledger.db")


@pytest.mark.parametrize(
    ("action", "operation", "operations", "machine"),
    [
        (
            Action.END_HOLDER,
            "SIGTERM",
            ["holder/40/1000", "holder/41/2000", "holder/x/1"],
            OnMachine("SIGTERM", (ProcessId(40, 1000), ProcessId(41, 2000))),
        ),
        (Action.RESTART_RUNTIME, "restart a.service", ["invocation/a1"], OnMachine("restart a.service", (), "a1")),
        (Action.CHECKPOINT, "SIGUSR1", [], OnMachine("SIGUSR1")),
        (Action.RESTART_NODE, "op-1", ["op-1"], OnMachine()),
    ],
)
def test_what_a_record_of_schema_3_has_of_a_machine_among_its_operations_is_found(
    action: Action, operation: str, operations: list[str], machine: OnMachine
) -> None:
    document = json.loads(encode(replace(RECORD, action=action)))
    del document["machine"]
    former = {**document, "schema": 3, "operation": operation, "operations": operations}
    found = decode(RestartRecord, json.dumps(former), "ledger.db")
    assert found.machine == machine
    assert found.operations == (() if machine.act else ("op-1",))


@pytest.mark.parametrize(
    ("was", "is_now"),
    [
        ('"rung":"nothing"', '"rung":"explode"'),
        ('"rung":"nothing",', ""),
        ('"witnesses":["agent","cloud"]', '"witnesses":[["agent"]]'),
        ('"history":[', '"history":[7,'),
        ('"schema":1', '"schema":5'),
    ],
)
def test_an_old_record_that_makes_no_sense_is_refused(was: str, is_now: str) -> None:
    assert was in OLD_RECORD
    with pytest.raises(LedgerError):
        decode(RestartRecord, OLD_RECORD.replace(was, is_now), "ledger.db")
