from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser

from tests.unit.restart.records import record
from tests.unit.web import samples
from tpuwatch.core.loop import LoopStatus
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Remedy
from tpuwatch.model.restart import Attempt, Phase
from tpuwatch.model.status import FileProblem, RestartsStatus, StoreStatus
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.web import document, page

ATTACK = "</pre></style></title>\"'><script>alert(1)</script><img src=x onerror=alert(1)>"


class Reader(HTMLParser):
    """Collects a page's elements, and its text as a person reads it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def test_a_finding_has_its_times_and_links_to_what_to_do() -> None:
    first = samples.event(age=3900)
    finding = samples.finding(first, last=samples.event(age=60), count=12)
    read = Reader(page.render(samples.status(), [finding], [samples.launch()], [first]))
    assert read.open == []
    assert "since 2026-11-20 12:39:14 UTC, 1 h 5 min ago · 12 times, last 1 min ago" in read.text
    assert ("a", {"href": "https://docs.example.org/hbm", "rel": "noopener noreferrer"}) in read.tags


def test_a_daemon_that_cannot_read_does_not_report_that_nothing_is_wrong() -> None:
    status = samples.status(
        reading=False,
        loops=(LoopStatus("follow", None, fresh=False),),
        problems=(
            FileProblem("/logs/a", "permission is denied"),
            FileProblem("/logs/b", "/logs/b is not read: it is a link"),
        ),
        notices=("The store was set aside.",),
        store=StoreStatus("/j", durable=False, events=0, detail="The disk is full."),
    )
    text = Reader(page.render(status, [], [], [])).text
    assert "3 problems: tpuwatch is not ready for 3 reasons" in text
    assert "No log can be read." in text
    assert "The loop follow has not finished a turn yet." in text
    assert "The store was set aside." in text
    assert "Events are held in memory only. The disk is full." in text
    assert "/logs/a: permission is denied" in text
    assert "/logs/b: " not in text  # the reason names the path already


def title(**changes: object) -> str:
    """The page's title with these findings, status and nodes."""
    given = {"status": samples.status(), "findings": [], "launches": [], "events": [], **changes}
    html = page.render(**given)  # type: ignore[arg-type] # the tests name parameters
    found = re.search("<title>(.*?)(?: · train-1 · us-central2-b)? · tpuwatch</title>", html)
    assert found is not None
    assert f"<h1><span>{found[1]}</span></h1>" in html
    return found[1]


def test_the_title_is_the_worst_that_is_known() -> None:
    well, stuck = samples.watching(), samples.watching(Verdict.RUNTIME_STUCK)
    others = [samples.node(), samples.node("train-2", Verdict.GONE), samples.node("train-3", Verdict.UNKNOWN)]
    unknown = "Nothing is known to be wrong: train-1 is unknown"
    assert title(status=stuck) == "1 problem: train-1 is runtime_stuck"
    assert (
        title(status=well, findings=[samples.finding()], nodes=others)
        == "2 problems: us-central2-b/train-2 is gone, hbm_oom_compile"
    )
    assert title(status=well, nodes=others) == "1 problem: us-central2-b/train-2 is gone"
    assert title(status=well, nodes=[samples.node()]) == "Nothing is wrong"
    assert title(status=samples.watching(Verdict.UNKNOWN)) == unknown


def test_host_node_and_zone_are_in_the_title_and_over_the_headline() -> None:
    html = page.render(samples.watching(host_name="t1v-n-1-w-0"), [], [], [])
    assert "<title>Nothing is wrong · t1v-n-1-w-0 · train-1 · us-central2-b · tpuwatch</title>" in html
    assert "<span>t1v-n-1-w-0</span><span>train-1</span><span>us-central2-b</span>" in html
    assert "<title>Nothing is wrong · tpuwatch</title>" in page.render(samples.status(), [], [], [])


def test_it_is_read_again_by_itself() -> None:
    html = page.render(samples.status(), [], [], [])
    assert '<noscript><meta http-equiv="refresh" content="30"></noscript>' in html
    assert f'<body data-refresh="{page.REFRESH_SECONDS}">' in html


def test_what_the_logs_are_doing_does_not_stand_under_the_headline() -> None:
    html = page.render(samples.watching(Verdict.NODE_STUCK), [], [], [])
    assert "Following 1 log" not in html.partition("</header>")[0]
    assert html.index("Followed logs") < html.index("Following 1 log")


def test_a_launch_that_came_up_and_then_failed_is_not_green() -> None:
    failed = samples.launch(faults={"hbm_oom_runtime": 60.0}, exit_status=1)
    html = page.render(samples.status(), [], [failed, samples.launch()], [])
    assert html.count('<span class="tag good">ok</span>') == 1
    assert '<span class="tag bad">ok, then hbm_oom_runtime</span>' in html


def test_a_past_finding_stands_apart_and_not_in_the_title() -> None:
    finding = samples.finding(samples.event(age=3700))
    html = page.render(samples.status(finding_seconds=3600.0), [finding], [], [])
    assert "<h1><span>Nothing is wrong</span></h1>" in html
    assert '<header class="good">' in html
    assert "Past: no longer wrong" in html
    assert "Not seen for 1 h (`finding_seconds` under [health])." in html
    assert "What to do" not in html


def test_the_verdict_comes_before_the_findings_and_they_before_the_machine() -> None:
    html = page.render(
        samples.watching(Verdict.RUNTIME_STUCK),
        [samples.finding()],
        [samples.launch()],
        [samples.event()],
        [samples.node(verdict=Verdict.RUNTIME_STUCK), samples.node("train-2")],
    )
    read = Reader(html)
    assert read.open == []
    order = [
        *(
            "has not answered for 12 min",
            "since 2026-11-20 13:32:14 UTC",
            "Port 8431 takes",
        ),
        *("What speaks against it", "End process 4242", "needs 28 GiB of HBM", "Use a smaller batch"),
        *("Watched nodes", "Chips", "This machine", "Launches", "Latest events", "Where this comes from", "Signals"),
        *("Who this machine is", "Followed logs"),
    ]
    text = read.text[read.text.index("What to do first") + len("What to do first") :]
    assert text.startswith("End process 4242: kill 4242.")
    text = text.partition("Source")[2]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_commands_in_a_remedy_are_set_apart() -> None:
    remedy = (Remedy("Run `free -g` first.", ""),)
    assert "Run <code>free -g</code> first." in page.render(samples.status(), [samples.finding(remedy=remedy)], [], [])


def test_it_needs_nothing_from_anywhere() -> None:
    html = page.render(samples.status(), [samples.finding()], [samples.launch()], [samples.event()])
    read = Reader(html)
    assert {"img", "iframe"}.isdisjoint(tag for tag, _ in read.tags)
    assert [attrs for tag, attrs in read.tags if tag == "script"] == [{}]
    assert [attrs["href"][:19] for tag, attrs in read.tags if tag == "link" and attrs["href"]] == [
        "data:image/svg+xml,"
    ]
    assert "url(" not in html
    assert "@import" not in html
    assert not any("style" in attrs for _, attrs in read.tags)


def test_the_policy_allows_the_style_and_the_script_and_no_other() -> None:
    html = page.render(samples.status(), [], [], [])
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in document.POLICY
    assert document.POLICY.startswith("default-src 'none';")
    assert "unsafe" not in document.POLICY


def test_times_that_no_calendar_has_are_survived() -> None:
    event = samples.event(time=1e30, observed=float("nan"))
    text = Reader(page.render(samples.status(), [samples.finding(event)], [], [event])).text
    assert "at an unknown time" in text


def test_a_time_to_come_is_shown_as_it_is() -> None:
    text = Reader(page.render(samples.status(), [], [samples.launch(started=samples.NOW + 3600)], [])).text
    assert "2026-11-20 14:44:14 UTC" in text


def test_what_could_hide_or_reorder_text_becomes_visible() -> None:
    html = page.render(samples.status(state="a\x00b\x1b[31mc\u202ed\ud800e\n\tf"), [], [], [])
    assert "<p>a\ufffdb\ufffd[31mc\ufffdd\ufffde\n\tf</p>" in html


def test_the_template_engine_is_not_loaded_before_a_page_is_asked_for() -> None:
    code = "import sys, tpuwatch.web.server; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_findings_of_the_current_launch_stand_before_and_apart_from_those_of_earlier_ones() -> None:
    old = samples.finding(samples.event(Cause.HANG, age=7200, pid=1, file="/old"), summary="Long ago.")
    new = samples.finding(samples.event(age=60), summary="Just now.")
    text = Reader(page.render(samples.status(), [old, new], [samples.launch()], [])).text
    order = (
        "Wrong with the current launch Just now.",
        "From before the current launch, and not known to be over Long ago.",
    )
    assert text.index(order[0]) < text.index(order[1])


def test_restarts_are_listed_those_under_way_first() -> None:
    ended = Attempt(
        Action.RESTART_NODE, "node_stuck", samples.NOW - 900, samples.NOW - 600, Phase.DONE, 1, "bob", "It hung."
    )
    records = [
        record(phase=Phase.DONE, history=(ended,)),
        record(phase=Phase.STARTING, requested=samples.NOW - 90, history=()),
    ]
    status = samples.status(restarts=RestartsStatus(acts=True, records=records))
    html = page.render(status, [], [], [])
    table = Reader(html[html.index('id="restarts"') - 9 : html.index("Latest events")].rpartition("<section")[0]).text
    assert table.index("under way") < table.index("It hung.")
    assert "doneafter 5 min" in table
