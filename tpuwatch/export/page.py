"""The status page: one HTML document without scripts or external resources.

First what is wrong, since when and what to do; then what hinders tpuwatch itself, launches, events and files.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.export import jsonable
from tpuwatch.export.markup import Markup, element, join
from tpuwatch.model import Outcome
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.export.view import Problem, Status
    from tpuwatch.model import Cause, Event, Finding, Launch, Remedy

_STYLE: Final = Markup(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_TONES: Final = {Outcome.OK: "good", Outcome.STARTING: "plain", Outcome.SLOW: "warn"}  # of a launch; else "bad"
_LINKS: Final = ("/metrics", "/readyz", "/api/v1/status", "/api/v1/findings", "/api/v1/events", "/api/v1/launches")
_NONE: Final = "-"


def render(status: Status, findings: Sequence[Finding], launches: Sequence[Launch], events: Sequence[Event]) -> str:
    """The page. `launches` come newest first, `events` oldest first, as the view gives them."""
    now, hindrances = status.now, _hindrances(status)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{_verdict(status, findings)} · tpuwatch"),
        element("style", _STYLE),
    )
    main = element(
        "main",
        _header(status, findings, hindered=bool(hindrances)),
        *(_finding(finding, now) for finding in findings),
        _section("tpuwatch itself", element("ul", *(element("li", one) for one in hindrances)), "warn")
        if hindrances
        else "",
        _launches(launches, now),
        _events(events, now),
        _files(status),
        _loops(status),
        _footer(status),
    )
    return f"<!doctype html>{element('html', head, element('body', main), lang='en')}\n"


def _header(status: Status, findings: Sequence[Finding], *, hindered: bool) -> Markup:
    tone = "bad" if findings else "warn" if hindered else "good"
    again = element("a", "Look again", href="/")
    return element(
        "header",
        element("h1", _verdict(status, findings)),
        element("p", status.state),
        element("p", f"As of {_clock(status.now)} · ", again, class_="quiet"),
        class_=tone,
    )


def _verdict(status: Status, findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing is known to be wrong" if status.not_ready() else "Nothing is wrong"
    return "1 thing is wrong" if len(findings) == 1 else f"{len(findings)} things are wrong"


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
    seen: list[str] = [f" · since {_clock(first.when)}, ", _moment(first.when, now)]
    if finding.count > 1:
        seen += [f" · {finding.count} times, last ", _moment(last.when, now)]
    place = first.file if finding.line is None else f"{first.file}:{finding.line}"
    return element(
        "article",
        element("h2", finding.summary),
        element("p", _cause(finding.cause), *seen, class_="quiet"),
        element("h3", "What to do") if finding.remedy else "",
        element("ol", *map(_step, finding.remedy)) if finding.remedy else "",
        element("details", element("summary", f"The first record, in {place}"), element("pre", first.text)),
    )


def _cause(cause: Cause) -> Markup:
    return element("code", cause.value, class_="cause")


def _step(step: Remedy) -> Markup:
    pieces = step.do.split("`")  # what stands between two backticks is a command or a setting
    do = [element("code", piece) if index % 2 else piece for index, piece in enumerate(pieces)]
    if not step.source.startswith(("https://", "http://")):
        return element("li", *do)
    return element("li", *do, " ", element("a", "Source", href=step.source, rel="noopener noreferrer"))


def _launches(launches: Sequence[Launch], now: float) -> Markup:
    rows = [
        (
            _moment(launch.started, now),
            _outcome(launch),
            _NONE if launch.init_seconds is None else format_seconds(launch.init_seconds),
            _NONE if launch.premapped_bytes is None else format_size(launch.premapped_bytes),
            f"{launch.pid} {launch.user}",
        )
        for launch in launches
    ]
    columns = ("Started", "Outcome", "Initialisation", "Premapped buffer", "Process")
    return _section("Launches", _table(columns, rows, "None seen yet."))


def _outcome(launch: Launch) -> Markup:
    words = launch.outcome.value + (f": {launch.cause.value}" if launch.cause else "")
    return _tag(words, _TONES.get(launch.outcome, "bad"))


def _events(events: Sequence[Event], now: float) -> Markup:
    rows = [
        (
            _moment(event.when, now),
            join(_cause(event.cause), " ", _tag("history", "plain") if event.history else ""),
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
    return _section("Latest events", _table(("When", "Cause", "Process", "Record"), rows, "None."))


def _files(status: Status) -> Markup:
    rows = [
        (
            element("code", file.path),
            format_size(file.size_bytes),
            format_size(file.lag_bytes) if file.lag_bytes else "none",
            _since(file.last_written, status.now),
        )
        for file in status.files
    ]
    return _section("Followed logs", _table(("File", "Size", "Unread", "Last written"), rows, "None found yet."))


def _loops(status: Status) -> Markup:
    rows = [
        (loop.name, _since(loop.last_success, status.now), _tag("fresh", "good") if loop.fresh else _tag("late", "bad"))
        for loop in status.loops
    ]
    return _section("Loops", _table(("Loop", "Last success", "State"), rows, "None."))


def _footer(status: Status) -> Markup:
    about = (
        f"tpuwatch {status.version}, up for {format_seconds(status.uptime_seconds)}."
        f" Configuration: {status.config_source}. Journal: {status.journal.path}, {status.journal.events} events."
    )
    links = [join(element("a", path, href=path), " ") for path in _LINKS]
    return element("footer", element("p", about), element("p", *links), class_="quiet")


def _section(title: str, content: Markup, tone: str = "plain") -> Markup:
    return element("section", element("h2", title), content, class_=tone)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> Markup:
    """A table; on a narrow screen each row becomes a block whose cells carry their column's name."""
    body = [
        element("tr", *(element("td", cell, data_name=name) for name, cell in zip(columns, row, strict=True)))
        for row in rows
    ]
    if not body:
        return element("p", empty, class_="quiet")
    head = element("tr", *(element("th", name) for name in columns))
    return element("table", element("thead", head), element("tbody", *body))


def _tag(words: str, tone: str) -> Markup:
    return element("span", words, class_=f"tag {tone}")


def _since(epoch: float | None, now: float) -> str:
    return "never" if epoch is None else _moment(epoch, now)


def _moment(epoch: float, now: float) -> Markup:
    """A time as an age, with the exact time for who points at it."""
    exact = jsonable.iso(epoch)
    if exact is None:
        return join("at an unknown time")
    age = now - epoch
    words = _clock(epoch) if age < 0 else "just now" if age < 1 else f"{format_seconds(age)} ago"
    return element("time", words, datetime=exact, title=exact)


def _clock(epoch: float) -> str:
    exact = jsonable.iso(epoch)
    return f"{exact[:10]} {exact[11:19]} UTC" if exact else "an unknown time"


def _first_line(text: str) -> str:
    """What stands for a record in a list."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 160 else f"{line[:160]}…"
