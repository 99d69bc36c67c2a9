from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

from tests.unit.web import samples
from tpuwatch.core.codec import like
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.documents.machine import HostDocument, RuntimeDocument, SignalStatusDocument
from tpuwatch.model.documents.nodes import CloudNodeDocument, NodeDocument, PeerDocument
from tpuwatch.model.signals import Chip, CloudNode, Holder, Host, Identity, Peer, PeerVerdict, RuntimePort
from tpuwatch.model.status import SignalStatus
from tpuwatch.model.verdict import Action, Confidence, Unseen, Verdict


def test_a_node_has_the_promised_form() -> None:
    document = samples.as_json(NodeDocument.of(samples.node(verdict=Verdict.RUNTIME_STUCK)))
    assert set(document) == {
        *("node", "project", "zone", "own", "verdict", "judged", "judged_epoch", "since", "since_epoch", "confidence"),
        *("action", "summary", "sources", "reasons", "contradictions", "missing", "remedy", "cloud", "peer"),
        *("suspect_since", "suspect_since_epoch", "counts_from", "counts_from_epoch", "kind"),
        *("last_known", "unseen", "queued_resource", "failure", "slice"),
    }
    assert (document["last_known"], document["unseen"]) == (False, None)
    assert (document["node"], document["project"], document["zone"]) == ("train-1", "research-7", "us-central2-b")
    assert (document["verdict"], document["confidence"], document["action"]) == (
        "runtime_stuck",
        "medium",
        "restart_runtime",
    )
    assert (document["since"], document["since_epoch"]) == ("2026-11-20T13:32:14.250Z", samples.NOW - 720)
    assert document["reasons"][0] == {
        "signal": "runtime",
        "text": "Port 8431 takes connections and answers nothing.",
        "at": "2026-11-20T13:44:06.250Z",
        "at_epoch": samples.NOW - 8,
        "idle": False,
        "sources": ["runtime"],
    }
    assert document["sources"] == ["runtime", "text"]  # that the process rests is no fault
    assert (document["reasons"][1]["idle"], document["reasons"][1]["sources"]) == (True, ["kernel"])
    assert (document["reasons"][2]["at"], document["reasons"][2]["at_epoch"]) == (None, None)
    assert document["contradictions"] == ["The Cloud TPU API says READY and HEALTHY."]
    assert document["missing"] == ["Cloud Monitoring is not read, by configuration."]
    assert document["remedy"][0]["do"] == "End process 4242: `kill 4242`."
    cloud = document["cloud"]
    assert (cloud["state"], cloud["health"], cloud["spot"], cloud["hosts"]) == ("READY", "HEALTHY", True, 1)
    assert cloud["labels"] == {"team": "vision"}
    assert (cloud["symptoms"][0]["kind"], cloud["symptoms"][0]["at_epoch"]) == ("LOW_MEMORY", samples.NOW - 900)
    assert cloud["maintenance"]["start"] == "2026-11-20T14:44:14.250Z"


def test_a_verdict_that_is_only_the_last_known_one_says_so_and_why() -> None:
    unseen = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    lost = samples.judgement(Verdict.NODE_STUCK, unseen=unseen, at=samples.NOW - 480)
    document = samples.as_json(NodeDocument.of(samples.node(judgement=lost)))
    assert (document["verdict"], document["last_known"]) == ("node_stuck", True)
    assert document["judged_epoch"] == samples.NOW - 480
    assert document["unseen"] == {
        "signal": "cloud",
        "problem": "denied",
        "detail": "The account may not list the nodes.",
    }


def test_the_answer_of_a_nodes_own_tpuwatch_is_included() -> None:
    word = PeerVerdict(
        Verdict.IDLE, Action.NONE, Confidence.HIGH, "No program uses the TPU.", frozenset({Signal.HOST}), 2.0
    )
    peer = Peer(samples.NOW - 300, word, samples.NOW - 240, 7)
    shown = samples.as_json(PeerDocument.of(peer))
    assert (shown["answered_epoch"], shown["silent_since_epoch"]) == (samples.NOW - 300, samples.NOW - 240)
    assert (shown["verdict"], shown["summary"], shown["refuses"]) == ("idle", "No program uses the TPU.", False)
    assert PeerDocument.of(Peer(samples.NOW)).verdict is None


def test_every_field_of_the_evidence_is_included() -> None:
    shown = {
        CloudNode: samples.as_json(CloudNodeDocument.of(samples.cloud_node())),
        Host: samples.as_json(HostDocument.of(samples.host())),
        Holder: samples.as_json(HostDocument.of(samples.host()))["holders"][0],
        Chip: samples.as_json(RuntimeDocument.of(samples.runtime()))["ports"][0]["chips"][0],
        RuntimePort: samples.as_json(RuntimeDocument.of(samples.runtime()))["ports"][0],
        Identity: samples.as_json(samples.identity()),
        SignalStatus: samples.as_json(like(SignalStatusDocument, samples.SIGNALS[0])),
    }
    # A node's place is shown where its judgement stands, and `changed` is null where the change was not seen.
    told_beside = {"project", "zone", "changed_unseen"}
    for kind, document in shown.items():
        assert {field.name for field in fields(kind)} - told_beside <= {*document, *told_beside}


def test_a_change_that_was_not_seen_has_no_time() -> None:
    node = replace(samples.cloud_node(), changed_unseen=True)
    document = samples.as_json(CloudNodeDocument.of(node))
    assert (document["changed"], document["changed_epoch"]) == (None, None)


def test_an_unknown_identity_is_empty_not_absent() -> None:
    document = samples.as_json(samples.identity())
    assert document["project"] == {"value": "research-7", "source": "config"}
    assert document["spot"] == {"value": "", "source": ""}


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, tpuwatch.model.documents.status; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout
    assert {"prometheus_client", "pydantic", "watchdog", "http", "socketserver", "grpc", "google"}.isdisjoint(
        loaded.split()
    )
