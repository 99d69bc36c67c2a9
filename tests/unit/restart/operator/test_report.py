"""What the daemon on this machine says of a node, for an operator who restarts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.restart.records import NOW, record
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.model.signals import CloudNode, Peer
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.restart.operator.report import NodeReporter
from tpuwatch.restart.workflow.types import PresentEvidence, Standing, Within
from tpuwatch.web import serializers

ASKED = record(requested=NOW - 60)
RUNS = record(phase=Phase.VERIFYING, entered=NOW - 60, boot_id="before")


def document(verdict: Verdict = Verdict.IDLE, *, at: float = NOW - 1, peer: Peer | None = None) -> Mapping[str, Any]:
    judgement = Judgement("train-1", verdict, at, Confidence.HIGH, Action.NONE, "No job runs.")
    shown = CloudNode("lab", "us-east5-a", "train-1", "READY", "HEALTHY")
    return serializers.node(
        JudgedNode("train-1", "lab", "us-east5-a", own=False, judgement=judgement, cloud=shown, peer=peer)
    )


def judged(of: RestartRecord, *documents: Mapping[str, Any]) -> PresentEvidence:
    def ask() -> list[Mapping[str, Any]]:
        if not documents:
            raise TpuwatchError("No daemon answers.")
        return list(documents)

    reporter = NodeReporter(Config(), ManualClock(NOW), "127.0.0.1:9478", ask, dict, serializers.node)
    return reporter.judge_again(of)


def test_a_node_that_is_well_is_told() -> None:
    assert judged(ASKED, document()) == PresentEvidence(Standing.RECOVERED, "it is idle. No job runs.")


@pytest.mark.parametrize(
    "documents",
    [(), (document(Verdict.NODE_STUCK),), (document(at=NOW - 59.5 - 60),), ({"node": "train-1"},), ({},)],
    ids=["no daemon", "stuck", "judged before", "another version", "nothing"],
)
def test_what_is_not_known_is_not_told(documents: tuple[Mapping[str, Any], ...]) -> None:
    assert judged(ASKED, *documents).standing is Standing.UNKNOWN


def test_once_the_node_goes_down_nobody_is_asked() -> None:
    for phase in (Phase.STOPPING, Phase.STOPPED, Phase.STARTING):
        assert judged(replace(ASKED, phase=phase), document()) == PresentEvidence()


@pytest.mark.parametrize(
    ("of", "documents", "within"),
    [
        (RUNS, (document(peer=Peer(NOW - 5, None, boot_id="after")),), Within.ANSWERS),
        (RUNS, (document(peer=Peer(NOW - 5, None, boot_id="before")),), Within.SILENT),
        (RUNS, (document(),), Within.SILENT),
        (replace(RUNS, boot_id=""), (document(),), Within.UNASKED),
        (RUNS, (), Within.UNASKED),
        (RUNS, ({"node": 7},), Within.UNASKED),
    ],
    ids=["another boot", "the same boot", "it was asked before", "nobody asks it", "no daemon", "nonsense"],
)
def test_after_the_start_the_nodes_own_tpuwatch_is_heard(
    of: RestartRecord, documents: tuple[Mapping[str, Any], ...], within: Within
) -> None:
    assert judged(of, *documents).within is within
