"""What the daemon on this machine says of a node, for an operator who restarts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.restart.records import NOW, record
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.model.documents.nodes import NodeDocument
from tpuwatch.model.documents.status import StatusDocument
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.model.signals import CloudNode, Peer
from tpuwatch.model.verdict import Action, Confidence, Judgement, Verdict
from tpuwatch.restart.operator.report import NodeReporter
from tpuwatch.restart.workflow.types import PresentEvidence, Standing, Within

ASKED = record(requested=NOW - 60)
RUNS = record(phase=Phase.VERIFYING, entered=NOW - 60, boot_id="before")


def document(verdict: Verdict = Verdict.IDLE, *, at: float = NOW - 1, peer: Peer | None = None) -> NodeDocument:
    judgement = Judgement("train-1", verdict, at, Confidence.HIGH, Action.NONE, "No job runs.")
    shown = CloudNode("lab", "us-east5-a", "train-1", "READY", "HEALTHY")
    return NodeDocument.of(
        JudgedNode("train-1", "lab", "us-east5-a", own=False, judgement=judgement, cloud=shown, peer=peer)
    )


def ask_nothing() -> StatusDocument:
    raise TpuwatchError("No daemon answers.")


def judged(of: RestartRecord, *documents: NodeDocument) -> PresentEvidence:
    def ask() -> list[NodeDocument]:
        if not documents:
            raise TpuwatchError("No daemon answers.")
        return list(documents)

    reporter = NodeReporter(Config(), ManualClock(NOW), "127.0.0.1:9478", ask, ask_nothing)
    return reporter.judge_again(of)


def test_a_node_that_is_well_is_told() -> None:
    assert judged(ASKED, document()) == PresentEvidence(Standing.RECOVERED, "it is idle. No job runs.")


@pytest.mark.parametrize(
    "documents",
    [(), (document(Verdict.NODE_STUCK),), (document(at=NOW - 59.5 - 60),)],
    ids=["no daemon", "stuck", "judged before"],
)
def test_what_is_not_known_is_not_told(documents: tuple[NodeDocument, ...]) -> None:
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
    ],
    ids=["another boot", "the same boot", "it was asked before", "nobody asks it", "no daemon"],
)
def test_after_the_start_the_nodes_own_tpuwatch_is_heard(
    of: RestartRecord, documents: tuple[NodeDocument, ...], within: Within
) -> None:
    assert judged(of, *documents).within is within
