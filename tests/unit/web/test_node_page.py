"""The status page's parts about nodes."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from tests.unit.web import samples
from tests.unit.web.test_page import ATTACK, Reader
from tpuwatch.libtpu import counted, unit
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Remedy
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.launches import Outcome
from tpuwatch.model.signals import Chip, Holder, Host, Identity, Known, Runtime, RuntimePort, Symptom
from tpuwatch.model.status import DaemonStatus, FileProblem, FileStatus, ScrapeTarget, SignalStatus, StoreStatus
from tpuwatch.model.verdict import Action, Reason, Verdict
from tpuwatch.model.workload import WorkloadKind
from tpuwatch.terminal.console import Console
from tpuwatch.terminal.node import print_machine
from tpuwatch.web import page


def part(html: str, title: str) -> str:
    """The article or section with a title that begins so; empty where there is none."""
    found = re.search(rf"<(article|section) [^>]*>\s*<h2>{title}.*?</\1>", html, re.DOTALL)
    return found[0] if found else ""


def text(html: str) -> str:
    read = Reader(html)
    assert read.open == []
    return read.text


def own_node(node: JudgedNode) -> str:
    return part(page.render(samples.status(node=node), [], [], []), "")


def watched_nodes(*nodes: JudgedNode) -> str:
    return part(page.render(samples.status(), [], [], [], nodes), "Watched nodes")


def machine(status: DaemonStatus) -> str:
    html = page.render(status, [], [], [])
    return part(html, "Chips") + part(html, "This machine")


def test_a_bad_verdict_is_shown_open_with_all_its_parts() -> None:
    html = own_node(samples.node(verdict=Verdict.RUNTIME_STUCK))
    assert '<article data-key="node us-central2-b/train-1" class="node bad">\n<h2>libtpu&#39;s runtime has' in html
    assert "<details>" not in html
    assert "<code>kill 4242</code>" in html


@pytest.mark.parametrize(
    ("verdict", "tone"), [(Verdict.HEALTHY, "good"), (Verdict.IDLE, "plain"), (Verdict.UNKNOWN, "warn")]
)
def test_another_verdict_is_folded(verdict: Verdict, tone: str) -> None:
    html = own_node(samples.node(verdict=verdict, cloud=None))
    assert html.startswith(f'<article data-key="node us-central2-b/train-1" class="node {tone}">')
    assert html.count("<details><summary>Why tpuwatch thinks so</summary>") == 1
    assert "action" not in html


def test_the_kind_of_workload_stands_beside_the_verdict() -> None:
    serving = samples.node(judgement=samples.judgement(Verdict.IDLE, kind=WorkloadKind.SERVING))
    assert "idle (serving) since" in text(own_node(serving))
    assert "idle (serving)" in text(watched_nodes(serving, samples.node("train-2")))


def test_the_cloud_may_report_little() -> None:
    bare = samples.cloud_node(
        health="", symptoms=(), accelerator="", runtime_version="", spot=False, queued_resource="", maintenance=None
    )
    html = own_node(samples.node(cloud=bare))
    assert text(html).endswith("The cloud says READY since 2 h ago")
    html = own_node(samples.node(cloud=replace(bare, changed_unseen=True)))
    assert text(html).endswith("The cloud says READY")


def test_nodes_are_listed_the_worst_first_each_with_a_link_to_its_page() -> None:
    nodes = [samples.node(), samples.node("train-2"), samples.node("a/b?&", Verdict.GONE, cloud=None)]
    read = Reader(watched_nodes(*nodes))
    assert [attrs["href"] for tag, attrs in read.tags if tag == "a" and (attrs["href"] or "").startswith("/?node")] == [
        "/?node=a%2Fb%3F%26&zone=us-central2-b",
        "/?node=train-1&zone=us-central2-b",
        "/?node=train-2&zone=us-central2-b",
    ]
    assert "all 3 gone 1 healthy 2" in read.text
    assert "train-1 here" in read.text


@pytest.mark.slow
def test_thousands_of_nodes_are_a_page_of_a_hundred() -> None:
    html = page.render(
        samples.status(), [], [], [], [samples.node(f"n{one}", Verdict.NODE_STUCK) for one in range(5000)]
    )
    assert part(html, "Watched nodes").count("<tr data-key=") == 100
    assert "1 to 100 of 5,000 nodes" in text(html)
    assert len(html) < 100_000


def test_a_machine_of_which_nothing_is_known_is_not_shown() -> None:
    assert machine(samples.status()) == ""


def test_a_machine_without_a_workload() -> None:
    shown = text(machine(samples.status(runtime=Runtime(()), host=Host(boot_id="", booted=None))))
    assert shown == "Chips No chip is reported. This machine No process holds the TPU."


def test_no_holder_is_certain_only_if_all_processes_could_be_examined() -> None:
    host = Host(boot_id="", booted=None, unseen=("The open files of 3 processes may not be seen.",))
    shown = text(machine(samples.status(host=host)))
    assert "No process is seen to hold the TPU." in shown
    assert "No process holds" not in shown


def test_a_port_that_answers_something_else_is_named() -> None:
    port = RuntimePort(8431, problem=Problem.FOREIGN, detail="Something else answers there.")
    assert "foreign Port 8431: Something else answers there." in text(machine(samples.status(runtime=Runtime((port,)))))


@pytest.mark.parametrize(("used", "value"), [(-5, "0.0"), (8, "50.0"), (99, "100.0")])
def test_the_bar_stays_within_its_ends(used: int, value: str) -> None:
    runtime = Runtime((RuntimePort(8431, (Chip("0", used, 16),)),))
    assert f'<rect width="{value}%"' in machine(samples.status(runtime=runtime))


def test_a_watched_node_has_a_page() -> None:
    nodes = [samples.node(), samples.node("train-2", Verdict.GONE), samples.node("train-3", Verdict.NODE_STUCK)]
    status = samples.watching(Verdict.RUNTIME_STUCK, node=nodes[0])
    targets = [ScrapeTarget("http://192.0.2.7:9478", "us-central2-b", name, 0) for name in ("train-2", "train-3")]
    html = page.render_nodes(status, nodes[1:2], targets)
    read = Reader(html)
    assert read.open == []
    assert "<h1><span>train-2 is gone</span></h1>" in html
    assert read.text.count("http://192.0.2.7:9478") == 1  # its own page
    assert '<header class="bad">' in html
    assert "End process 4242" in read.text  # what to do about it
    assert "train-3" not in read.text
    assert "28 GiB" not in read.text
    assert ("a", {"href": "/"}) in read.tags
    assert ("a", {"href": "/api/v1/nodes?node=train-2&zone=us-central2-b"}) in read.tags


def test_signals_with_their_problems() -> None:
    status = samples.status(signals=(*samples.SIGNALS, SignalStatus("host", None, None, None, "")))
    html = part(page.render(status, [], [], []), "Signals")
    assert "host never never not asked yet" in text(html)
    assert '<span class="tag warn">scope</span>' in html
    assert '<span class="tag plain">off</span>' in html


def test_whatever_others_wrote_stays_text() -> None:
    judgement = samples.judgement(
        Verdict.NODE_STUCK,
        action=Action.MANUAL,
        summary=ATTACK,
        reasons=(Reason(Signal.LOGS, ATTACK, samples.NOW),),
        contradictions=(ATTACK,),
        missing=(ATTACK,),
        remedy=(Remedy(ATTACK, f"javascript:{ATTACK}"),),
    )
    cloud = samples.cloud_node(
        state=ATTACK,
        health=ATTACK,
        health_description=ATTACK,
        symptoms=(Symptom(ATTACK, None, ATTACK),),
        accelerator=ATTACK,
        queued_resource=ATTACK,
    )
    node = samples.node(ATTACK, judgement=judgement, zone=ATTACK, cloud=cloud)
    event = samples.event(text=ATTACK, file=ATTACK)
    remedy = (Remedy(ATTACK, f"javascript:{ATTACK}"), Remedy("do", ATTACK))
    finding = samples.finding(event, summary=ATTACK, remedy=remedy)
    launch = samples.launch(user=ATTACK, outcome=Outcome.FAILED, cause=Cause.HANG)
    status = samples.status(
        state=ATTACK,
        files=(FileStatus(ATTACK, 1, 0),),
        problems=(FileProblem(ATTACK, ATTACK),),
        notices=(ATTACK,),
        config_source=ATTACK,
        version=ATTACK,
        store=StoreStatus(ATTACK, durable=False, events=0, detail=ATTACK),
        node=node,
        identity=Identity(zone=Known(ATTACK, ATTACK)),
        runtime=Runtime((RuntimePort(8431, (Chip(ATTACK),), None, Problem.FOREIGN, ATTACK),)),
        host=samples.host(holders=(Holder(1, ATTACK, ATTACK, None, (ATTACK,)),), unseen=(ATTACK,)),
        signals=(SignalStatus(ATTACK, None, None, Problem.DENIED, ATTACK),),
    )
    read = Reader(page.render(status, [finding], [launch], [event], [node, samples.node("train-2")]))
    assert read.open == []
    assert [tag for tag, _ in read.tags if tag in ("script", "img")] == ["script"]  # ours
    assert all(
        attrs["href"].startswith(("/", "#main"))
        for tag, attrs in read.tags
        if tag == "a" and attrs["href"] and "docs.example" not in attrs["href"]
    )
    assert not any(name.startswith("on") or name == "style" for _, attrs in read.tags for name in attrs)
    assert read.text.count("<script>alert(1)</script>") >= 37


@pytest.mark.parametrize(
    ("accelerator", "entries"),
    [("tpu7x-8", 8), ("v3-8", 8), ("v4-8", 4), ("v5p-8", 4), ("v6e-8", 8), ("", 8)],
)
def test_chips_are_counted_alike_in_status_page_and_reasons(accelerator: str, entries: int) -> None:
    runtime = Runtime((RuntimePort(8431, tuple(Chip(str(number)) for number in range(entries))),))
    status = samples.status(identity=Identity(accelerator=Known(accelerator, "config")), runtime=runtime)
    stream = io.StringIO()
    print_machine(Console(stream, width=80), samples.received(samples.status_document(status)))
    words = counted(entries, accelerator)
    assert words in text(machine(status))
    assert f" {words}." in stream.getvalue()
    column = unit(accelerator).capitalize()
    assert f'data-name="{column}"' in machine(status)
