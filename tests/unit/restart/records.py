"""Records for tests."""

from __future__ import annotations

from typing import Any

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
from tpuwatch.restart.ledger.base import Ledger, Stored

NOW = 1_790_000_000.0
TARGET = Target("lab", "us-east5-a", "train-1")


def record(node: str = "train-1", **fields: Any) -> RestartRecord:
    """A restart that an operator has asked for."""
    given: dict[str, Any] = {
        "target": Target("lab", "us-east5-a", node),
        "action": Action.RESTART_NODE,
        "phase": Phase.REQUESTED,
        "cause": "operator",
        "reason": "The node hangs.",
        "evidence": ("READY, but nothing answers.",),
        "actor": "someone@vm-1",
        "requested": NOW,
        "entered": NOW,
    }
    return RestartRecord(**{**given, **fields})


def written(ledger: Ledger, target: Target = TARGET) -> Stored:
    """What the ledger has of a node, of which it has something."""
    stored = ledger.read(target)
    assert stored is not None
    return stored


def full_record(node: str = "train-1") -> RestartRecord:
    """A record with something in every field."""
    attempt = Attempt(
        Action.RESTART_NODE, "node_stuck", NOW - 9000, NOW - 8000.5, Phase.DONE, 1, "vm-1", "It hung.", "It is well."
    )
    return record(
        node,
        phase=Phase.STOPPED,
        reason="Späte „Worte“, \x00 and \ud800 too.",
        lease=Lease("vm-1/b.4/77/123/abcd", 45.0),
        operation="projects/lab/locations/us-east5-a/operations/operation-1",
        operations=("operation-0", "operation-1"),
        foreign=("operation-9",),
        queued_resource="queue-1",
        tries=3,
        failure="The start was refused (RESOURCE_EXHAUSTED).",
        not_before=NOW + 40.25,
        stops=1,
        began=NOW + 1,
        down=NOW + 70,
        shown="STOPPED",
        shown_since=NOW + 75,
        unseen_since=NOW + 79,
        well_since=NOW + 80,
        boot_id="b00b",
        signals=("cloud", "runtime"),
        sources=("cloud", "runtime"),
        grounds=Grounds("node_stuck", Action.MANUAL, NOW - 2, "tpuwatch@vm-1", NOW - 9, ("kernel", "runtime")),
        machine=OnMachine("SIGTERM", (ProcessId(40, 1000), ProcessId(41, 2000)), "a1b2"),
        note="There is no more capacity.",
        history=(attempt, attempt),
    )


def full_fleet() -> Fleet:
    """A fleet with something in every field."""
    return Fleet(
        Breaker(NOW, "Three restarts failed.", NOW - 5, "someone"), (Claim(TARGET, NOW), Claim(TARGET, NOW - 9))
    )
