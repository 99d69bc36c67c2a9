"""The status page: one HTML document without scripts or external resources, rendered from `templates/page.html`.

Jinja2 is imported when the first page is asked for.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tpuwatch.core import format_seconds, format_size, format_time, iso, redact
from tpuwatch.model import cloud_words, is_bad, present_problems, tone, worst_first
from tpuwatch.web.serializers import describe_buffer, restart_sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment

    from tpuwatch.model import DaemonStatus, Event, Finding, Identity, JudgedNode, Known, Launch, Problems

_STYLE: Final = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REFRESH_SECONDS: Final = 30  # a browser asks for the page again
MAX_LISTED_IN_FULL: Final = 50  # with more nodes than this the table lists only those that are bad or unknown
MAX_NODE_ROWS: Final = 200
_MAX_LAUNCHES: Final = 50
_MAX_LINE: Final = 160  # characters of a record in a list
_LINKS: Final = (
    "/metrics",
    "/readyz",
    *(f"/api/v1/{name}" for name in ("status", "nodes", "restarts", "findings", "events", "launches", "tune")),
)


def render(
    status: DaemonStatus,
    findings: Sequence[Finding],
    launches: Sequence[Launch],
    events: Sequence[Event],
    nodes: Sequence[JudgedNode] = (),
    *,
    only: Sequence[JudgedNode] | None = None,
) -> str:
    """The page. `launches` are ordered newest first, `events` oldest first, as the view returns them.

    Only the first launches are listed; all of them tell which findings are over. `only`: for a page about these watched
    nodes alone.
    """
    if only is not None:
        return _render_node(status, only)
    problems = present_problems(status, findings, nodes, launches)
    context = {
        "status": status,
        "now": status.now,
        "title": problems.headline,
        "refresh": REFRESH_SECONDS,
        "page_tone": _page_tone(problems, status),
        "findings": problems.findings,
        "past": problems.past,
        "restarts": restart_sentences(status.restarts, status.now) if status.restarts else [],
        "own_problems": _own_problems(status),
        "nodes": _node_rows(nodes) if any(not node.own for node in nodes) else None,
        "launches": launches[:_MAX_LAUNCHES],
        "events": events,
        "identity": _identity_rows(status.identity) if status.identity else [],
        "links": _LINKS,
    }
    return _environment().get_template("page.html").render(context)


def _render_node(status: DaemonStatus, nodes: Sequence[JudgedNode]) -> str:
    """The page about one watched node; about several where a name is given in two zones, or a zone alone is."""
    worst = worst_first(nodes)[0]
    context = {
        "status": status,
        "now": status.now,
        "title": f"{worst.node or 'This machine'} is {worst.judgement.verdict.value}",
        "refresh": REFRESH_SECONDS,
        "page_tone": tone(worst.judgement.verdict),
        "nodes": nodes,
    }
    return _environment().get_template("node_page.html").render(context)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        """Text without secrets; control characters, which could hide or reorder text, become visible."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = redact(value)
        if text.isprintable():
            return text
        return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(style=Markup(_STYLE), cloud_words=cloud_words)  # noqa: S704 # a file of this package
    environment.tests["bad"] = is_bad
    environment.filters.update(
        age=_age,
        buffer=describe_buffer,
        clock=format_time,
        duration=format_seconds,
        first_line=_first_line,
        iso=iso,
        percent="{:.0%}".format,
        size=format_size,
        tone=tone,
        url_quoted=lambda text: quote(text, safe=""),
    )
    return environment


def _page_tone(problems: Problems, status: DaemonStatus) -> str:
    """The colour of the title."""
    if problems.total:
        return "bad"
    return "warn" if problems.unknown or _own_problems(status) else "good"


def _own_problems(status: DaemonStatus) -> list[str]:
    """What prevents tpuwatch itself from doing all of its work, a sentence each."""
    sentences = [*status.not_ready(), *status.notices]
    for problem in status.problems:
        named = problem.path in problem.reason
        sentences.append(problem.reason if named else f"{problem.path}: {problem.reason}")
    return sentences


def _node_rows(nodes: Sequence[JudgedNode]) -> dict[str, Any]:
    """The rows of the table of nodes, worst first, how many nodes have no row, and how many have each verdict."""
    ordered = worst_first(nodes)
    counts = Counter(node.judgement.verdict.value for node in ordered)
    listed = ordered
    if len(nodes) > MAX_LISTED_IN_FULL:
        listed = [node for node in ordered if tone(node.judgement.verdict) in ("bad", "warn")][:MAX_NODE_ROWS]
    return {
        "listed": listed,
        "unlisted": len(nodes) - len(listed),
        "counts": ", ".join(f"{number} {words}" for words, number in counts.items()),
    }


def _identity_rows(identity: Identity) -> list[tuple[str, Known]]:
    return [(field.name.replace("_", " "), getattr(identity, field.name)) for field in fields(identity)]


def _age(epoch: float, now: float) -> str:
    age = now - epoch
    return format_time(epoch) if age < 0 else "just now" if age < 1 else f"{format_seconds(age)} ago"


def _first_line(text: str) -> str:
    """The first line of a record that is not empty, without secrets and then cut."""
    line = redact(next((line for line in text.splitlines() if line.strip()), ""))
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
