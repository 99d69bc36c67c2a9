"""The status page: one HTML document without scripts or external resources.

First what is wrong, since when, why and what to do; then what hinders tpuwatch itself, this machine, launches, events,
and where all that is known from.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.export import node_page, restarts, tune_page
from tpuwatch.export.markup import Markup, element, join
from tpuwatch.export.page_parts import clock, moment, section, since, steps, table, tag
from tpuwatch.export.words import is_bad
from tpuwatch.health.verdict import Verdict
from tpuwatch.model import Outcome
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.export.view import NodeStatus, Problem, Status
    from tpuwatch.model import Cause, Event, Finding, Launch

_STYLE: Final = Markup(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_TONES: Final = {Outcome.OK: "good", Outcome.STARTING: "plain", Outcome.SLOW: "warn"}  # of a launch; else "bad"
_LINKS: Final = (
    "/metrics",
    "/readyz",
    *(f"/api/v1/{name}" for name in ("status", "nodes", "restarts", "findings", "events", "launches", "tune")),
)
_NONE: Final = "-"


def render(
    status: Status,
    findings: Sequence[Finding],
    launches: Sequence[Launch],
    events: Sequence[Event],
    nodes: Sequence[NodeStatus] = (),
) -> str:
    """The page. `launches` come newest first, `events` oldest first, as the view gives them."""
    now, node = status.now, status.node
    title, tone = _title(status, findings, nodes)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · tpuwatch"),
        element("style", _STYLE),
    )
    main = element(
        "main",
        _header(status, title, tone),
        node_page.node_article(node, now) if node else "",
        *(_finding(finding, now) for finding in findings),
        _restarts(status),
        node_page.watched_nodes(nodes, now) if any(not one.own for one in nodes) else "",
        _itself(status),
        node_page.machine(status),
        tune_page.next_launches(status.tune, now) if status.tune else "",
        _launches(launches, now),
        _events(events, now),
        node_page.witnesses(status.witnesses, now) if status.witnesses else "",
        node_page.identity(status.identity) if status.identity else "",
        _files(status),
        _loops(status),
        _footer(status),
    )
    return f"<!doctype html>{element('html', head, element('body', main), lang='en')}\n"


def _header(status: Status, title: str, tone: str) -> Markup:
    again = element("a", "Look again", href="/")
    return element(
        "header",
        element("h1", title),
        element("p", status.state),
        element("p", f"As of {clock(status.now)} · ", again, class_="quiet"),
        class_=tone,
    )


def _title(status: Status, findings: Sequence[Finding], nodes: Sequence[NodeStatus]) -> tuple[str, str]:
    """The worst that is known, in a few words, and its colour."""
    node = status.node
    if node is not None and is_bad(node.judgement.verdict):
        return node_page.node_title(node), "bad"
    if findings:
        return "1 thing is wrong" if len(findings) == 1 else f"{len(findings)} things are wrong", "bad"
    bad = sum(is_bad(one.judgement.verdict) for one in nodes)
    if bad:
        return f"{bad} of {len(nodes)} watched nodes {'needs' if bad == 1 else 'need'} help", "bad"
    unknown = node is not None and node.judgement.verdict is Verdict.UNKNOWN
    if unknown or status.not_ready():
        return "Nothing is known to be wrong", "warn"
    return "Nothing is wrong", "warn" if _hindrances(status) else "good"


def _restarts(status: Status) -> Markup:
    """What is under way about nodes, and what is not done and calls for a person; nothing where there is nothing."""
    told = restarts.lines(status.restarts, status.now) if status.restarts is not None else []
    return section("Restarts", element("ul", *(element("li", one) for one in told)), "warn") if told else Markup()


def _itself(status: Status) -> Markup:
    """What hinders tpuwatch; nothing where nothing does."""
    hindrances = [element("li", one) for one in _hindrances(status)]
    return section("tpuwatch itself", element("ul", *hindrances), "warn") if hindrances else Markup()


def _hindrances(status: Status) -> list[str]:
    """What keeps tpuwatch itself from doing all of its work, a sentence each."""
    lines = [*status.not_ready(), *status.notices]
    if not status.journal.durable:
        lines.append(
            f"Events are held in memory only: {status.journal.path} cannot be written. {status.journal.detail}"
        )
    return lines + [_problem(problem) for problem in status.problems]


def _problem(problem: Problem) -> str:
    return problem.reason if problem.path in problem.reason else f"{problem.path}: {problem.reason}"


def _finding(finding: Finding, now: float) -> Markup:
    first, last = finding.first, finding.last
    seen: list[str] = [f" · since {clock(first.when)}, ", moment(first.when, now)]
    if finding.count > 1:
        seen += [f" · {finding.count} times, last ", moment(last.when, now)]
    place = first.file if finding.line is None else f"{first.file}:{finding.line}"
    return element(
        "article",
        element("h2", finding.summary),
        element("p", _cause(finding.cause), *seen, class_="quiet"),
        *steps(finding.remedy),
        element("details", element("summary", f"The first record, in {place}"), element("pre", first.text)),
    )


def _cause(cause: Cause) -> Markup:
    return element("code", cause.value, class_="cause")


def _launches(launches: Sequence[Launch], now: float) -> Markup:
    rows = [
        (
            moment(launch.started, now),
            _outcome(launch),
            launch.workload or _NONE,
            _NONE if launch.init_seconds is None else format_seconds(launch.init_seconds),
            _NONE if launch.premapped_bytes is None else format_size(launch.premapped_bytes),
            f"{launch.pid} {launch.user}",
        )
        for launch in launches
    ]
    columns = ("Started", "Outcome", "Workload", "Initialisation", "Premapped buffer", "Process")
    return section("Launches", table(columns, rows, "None seen yet."))


def _outcome(launch: Launch) -> Markup:
    words = launch.outcome.value + (f": {launch.cause.value}" if launch.cause else "")
    return tag(words, _TONES.get(launch.outcome, "bad"))


def _events(events: Sequence[Event], now: float) -> Markup:
    rows = [
        (
            moment(event.when, now),
            join(_cause(event.cause), " ", tag("history", "plain") if event.history else ""),
            _NONE if event.pid is None else str(event.pid),
            element(
                "details",
                element("summary", _first_line(event.text)),
                element("pre", event.text),
                element("p", event.file, class_="quiet"),
            ),
        )
        for event in reversed(events)
    ]
    return section("Latest events", table(("When", "Cause", "Process", "Record"), rows, "None."))


def _files(status: Status) -> Markup:
    rows = [
        (
            element("code", file.path),
            format_size(file.size_bytes),
            format_size(file.lag_bytes) if file.lag_bytes else "none",
            since(file.last_written, status.now),
        )
        for file in status.files
    ]
    return section("Followed logs", table(("File", "Size", "Unread", "Last written"), rows, "None found yet."))


def _loops(status: Status) -> Markup:
    rows = [
        (loop.name, since(loop.last_success, status.now), tag("fresh", "good") if loop.fresh else tag("late", "bad"))
        for loop in status.loops
    ]
    return section("Loops", table(("Loop", "Last success", "State"), rows, "None."))


def _footer(status: Status) -> Markup:
    about = (
        f"tpuwatch {status.version}, up for {format_seconds(status.uptime_seconds)}."
        f" Configuration: {status.config_source}. Journal: {status.journal.path}, {status.journal.events} events."
    )
    links = [join(element("a", path, href=path), " ") for path in _LINKS]
    return element("footer", element("p", about), element("p", *links), class_="quiet")


def _first_line(text: str) -> str:
    """What stands for a record in a list."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 160 else f"{line[:160]}…"
