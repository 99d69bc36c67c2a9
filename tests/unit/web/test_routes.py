from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.core.errors import StoreError
from tpuwatch.core.loop import LoopStatus
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.status import ScrapeTarget
from tpuwatch.model.verdict import Verdict
from tpuwatch.web.routes import Response, Routes, error_response


@dataclass
class Site:
    """The routes over a sample view."""

    view: SampleView = field(default_factory=SampleView)

    def get(self, target: str, accept: str = "") -> Response:
        return Routes(self.view, Metrics(loops=(), refusals=())).respond(target, accept=accept)

    def document(self, target: str, code: int = 200) -> Any:
        reply = self.get(target)
        assert (reply.code, reply.content_type) == (code, "application/json")
        assert reply.body.endswith(b"\n")
        return json.loads(reply.body)


def test_metrics_in_the_format_that_is_asked_for() -> None:
    assert Site().get("/metrics").content_type.startswith("text/plain; version=0.0.4")
    openmetrics = Site().get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.body.endswith(b"# EOF\n")


def test_the_problems_are_counted_by_kind_with_each_scrape() -> None:
    view = SampleView(samples.watching(Verdict.NODE_STUCK), wrong=[samples.finding()])
    site = Site(view)
    body = site.get("/metrics").body
    assert b'tpuwatch_problems{kind="node"} 1.0\ntpuwatch_problems{kind="finding"} 1.0\n' in body
    assert b'tpuwatch_problems{kind="daemon"} 0.0\n' in body
    cause = samples.finding().cause.value.encode()
    assert re.findall(rb"^tpuwatch_finding\{.*$", body, re.MULTILINE) == [b'tpuwatch_finding{cause="%s"} 1.0' % cause]
    view.wrong = []
    assert b"tpuwatch_finding{" not in site.get("/metrics").body


def test_metrics_are_served_when_the_store_cannot_be_read() -> None:
    reply = Site(SampleView(error=StoreError("The store is gone."))).get("/metrics")
    assert (reply.code, b'tpuwatch_problems{kind="node"} 0.0' in reply.body) == (200, True)


def test_the_page_of_a_node() -> None:
    site = Site(SampleView(watched=[samples.node(), samples.node("train-2", Verdict.GONE)]))
    assert b"<h1><span>train-2 is gone</span></h1>" in site.get("/?node=train-2").body
    assert site.document("/?node=train-9", 400) == {"error": "No node 'train-9' is watched."}
    assert "Did you mean node?" in site.document("/?nod=x", 400)["error"]


def test_alive_even_when_nothing_can_be_answered() -> None:
    site = Site(SampleView(error=StoreError("The store is gone.")))
    reply = site.get("/healthz?probe=1")
    assert (reply.code, reply.body) == (200, b"ok\n")


def test_ready_when_reading_and_every_loop_is_fresh() -> None:
    assert Site().document("/readyz") == {"ready": True, "reasons": []}


def test_not_ready_has_reasons() -> None:
    loops = (LoopStatus("follow", None, fresh=False), LoopStatus("store", samples.NOW, fresh=True))
    site = Site(SampleView(samples.status(reading=False, loops=loops)))
    assert site.document("/readyz", 503) == {
        "ready": False,
        "reasons": ["No log can be read.", "The loop follow has not finished a turn yet."],
    }


def test_documents() -> None:
    site = Site(SampleView(stored=[samples.event()], wrong=[samples.finding()], started=[samples.launch()]))
    assert site.document("/api/v1/status")["version"] == "0.1.0"
    assert len(site.document("/api/v1/events?limit=5")["events"]) == 1
    assert [one["cause"] for one in site.document("/api/v1/findings")["findings"]] == ["hbm_oom_compile"]
    assert [one["pid"] for one in site.document("/api/v1/launches?limit=6")["launches"]] == [4242]
    assert {5, 6} <= {asked["limit"] for asked in site.view.asked}
    assert site.document("/api/v1/nodes?node=x&limit=1") == {
        "now": "2026-11-20T13:44:14.250Z",
        "now_epoch": samples.NOW,
        "nodes": [],
        "queued_resources": [],
        "watched": 0,
        "bad": 0,
        "verdicts": {},
    }


def test_queued_resources_of_a_node_and_of_a_zone() -> None:
    found = (samples.queued("a", "ACTIVE"), samples.queued("b", "FAILED", QueuedProblem.ENDED, zone="eu-b"))
    site = Site(SampleView(samples.status(queued_resources=found)))

    def names(query: str) -> list[str]:
        return [one["name"] for one in site.document(f"/api/v1/nodes?{query}")["queued_resources"]]

    assert names("limit=5") == ["a", "b"]
    assert names("limit=1") == ["a"]
    assert names("zone=eu-b") == ["b"]
    assert names("node=a-node") == ["a"]
    assert names("node=a-node&zone=eu-b") == []
    assert [one["name"] for one in site.document("/api/v1/status")["queued_resources"]] == ["b"]


def test_targets_are_in_the_form_of_prometheus_discovery_by_http() -> None:
    found = [
        ScrapeTarget("http://[fd00::7]:9478", "us-east5-a", "train-1", 0),
        ScrapeTarget("https://proxy.example:8443/two/", "us-east5-a", "train-2", 3),
    ]
    assert Site(SampleView(scraped=found)).document("/api/v1/targets") == [
        {"targets": ["[fd00::7]:9478"], "labels": {"zone": "us-east5-a", "node": "train-1", "worker": "0"}},
        {
            "targets": ["proxy.example:8443"],
            "labels": {
                "zone": "us-east5-a",
                "node": "train-2",
                "worker": "3",
                "__scheme__": "https",
                "__metrics_path__": "/two/metrics",
            },
        },
    ]


def test_the_page_comes_with_its_policy() -> None:
    watched = [samples.node(), samples.node("train-77")]
    reply = Site(SampleView(wrong=[samples.finding()], watched=watched)).get("/")
    assert reply.content_type == "text/html; charset=utf-8"
    assert b"1 problem: hbm_oom_compile" in reply.body
    assert b"/?node=train-77" in reply.body
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")


def test_a_bad_query_is_the_clients_fault() -> None:
    assert Site().document("/api/v1/events?limit=x", 400) == {
        "error": "limit must be a whole number from 1 to 1000, not 'x'."
    }


@pytest.mark.parametrize("target", ["/nothing", "/metrics/", "//metrics", "/api/v1/", "/../etc/passwd", "*", ""])
def test_other_paths_lead_nowhere(target: str) -> None:
    document = Site().document(target, 404)
    assert "/api/v1/events" in document["paths"]


def test_an_error_of_the_view_is_served_with_503() -> None:
    site = Site(SampleView(error=StoreError("The store is locked; try again.")))
    assert site.document("/api/v1/status", 503) == {"error": "The store is locked; try again."}


def test_a_fault_of_ours_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(SampleView(error=ZeroDivisionError("secret")))
    with caplog.at_level(logging.ERROR):
        assert site.document("/api/v1/status", 500) == {"error": "tpuwatch failed to answer; its log has the reason."}
    assert "ZeroDivisionError" in caplog.text


def test_wrong_methods_are_answered_with_the_allowed_ones() -> None:
    reply = error_response(405)
    assert (reply.code, reply.headers["Allow"]) == (405, "GET, HEAD")
