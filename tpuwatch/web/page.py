"""The status page: one HTML document without external resources, rendered from `templates/page.html`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import TrainingState, present_problems, shares, tone, verdict_words, worst_first
from tpuwatch.web.document import document
from tpuwatch.web.fleet import FleetQuery, fleet_table
from tpuwatch.web.launch_chart import launch_chart
from tpuwatch.web.restart_rows import restart_rows
from tpuwatch.web.sentences import restart_sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import (
        DaemonStatus,
        Event,
        Finding,
        Goodput,
        Identity,
        JudgedNode,
        Known,
        Launch,
        Problems,
        Remedy,
        ScrapeTarget,
    )

REFRESH_SECONDS: Final = 5  # the script asks for the page again
REFRESH_SECONDS_BY_ITSELF: Final = 30  # and a browser that runs no scripts
_MAX_LAUNCHES: Final = 50
_LINKS: Final = (
    "/metrics",
    "/readyz",
    *(
        f"/api/v1/{name}"
        for name in ("status", "nodes", "restarts", "findings", "events", "launches", "goodput", "tune")
    ),
)


@dataclass(frozen=True, slots=True)
class First:
    """What to do first: the first step of the remedy for the worst that is known."""

    about: str  # the node, if it is another one
    step: Remedy


def render(
    status: DaemonStatus,
    findings: Sequence[Finding],
    launches: Sequence[Launch],
    events: Sequence[Event],
    nodes: Sequence[JudgedNode] = (),
    *,
    fleet: FleetQuery | None = None,
) -> str:
    """The page. `launches` are ordered newest first, `events` oldest first, as the view returns them.

    Only the first launches are listed; all of them tell which findings are over. `fleet`: which nodes are asked for.
    """
    problems = present_problems(status, findings, nodes, launches)
    current, earlier = _by_launch(problems.findings, launches)
    restarts = status.restarts
    return document(
        "page.html",
        {
            **_frame(status, problems.headline, _page_tone(problems, status)),
            "first": _first(problems),
            "current": current,
            "earlier": earlier,
            "past": problems.past,
            "restarts": restart_sentences(restarts, status.now) if restarts else [],
            "restart_rows": restart_rows(restarts.records) if restarts else [],
            "own_problems": [*(spot.sentence for spot in problems.blind_spots), *_own_problems(status)],
            "queued_resources": status.queued_resources,
            "fleet": fleet_table(nodes, fleet or FleetQuery()) if any(not node.own for node in nodes) else None,
            "state_rows": _state_rows(status.goodput) if status.goodput else [],
            "launches": launches[:_MAX_LAUNCHES],
            "chart": launch_chart(launches),
            "events": events[::-1],
            "identity": _identity_rows(status.identity) if status.identity else [],
            "links": _LINKS,
        },
    )


def render_nodes(status: DaemonStatus, nodes: Sequence[JudgedNode], targets: Sequence[ScrapeTarget]) -> str:
    """The page about one watched node; about several where a name is given in two zones."""
    worst = worst_first(nodes)[0]
    words = verdict_words(worst.judgement.verdict, None, last_known=worst.judgement.is_last_known)
    labels = {(node.zone, node.node) for node in nodes}
    records = status.restarts.records if status.restarts else ()
    decisions = dict(status.restarts.decisions) if status.restarts else {}
    return document(
        "node_page.html",
        {
            **_frame(
                status,
                f"{worst.node or 'This machine'} is {words}",
                tone(worst.judgement.verdict),
            ),
            "first": _first_of([worst]),
            "nodes": nodes,
            "decisions": decisions,
            "restart_rows": restart_rows([one for one in records if (one.target.zone, one.target.node) in labels]),
            "targets": [one for one in targets if (one.zone, one.node) in labels],
        },
    )


def _frame(status: DaemonStatus, title: str, page_tone: str) -> dict[str, Any]:
    """What every page has: a head with who it is about."""
    return {
        "status": status,
        "now": status.now,
        "title": title,
        "who": _who(status),
        "refresh": REFRESH_SECONDS,
        "refresh_by_itself": REFRESH_SECONDS_BY_ITSELF,
        "page_tone": page_tone,
    }


def _who(status: DaemonStatus) -> list[str]:
    """The host, the node and its zone, as far as they are known."""
    identity, node = status.identity, status.node
    names = [status.host_name]
    names.append(node.node if node else identity.node.value if identity else "")
    names.append(node.zone if node else identity.zone.value if identity else "")
    return [name for name in dict.fromkeys(names) if name]


def _first(problems: Problems) -> First | None:
    """By the worst node, else by the first finding that has a remedy, else by the first queued resource."""
    found = _first_of(problems.nodes)
    for finding in problems.findings:
        if found is None and finding.remedy:
            found = First("", finding.remedy[0])
    for one in problems.queued_resources:
        if found is None and one.remedy:
            found = First(f"with queued resource {one.queued.label}", one.remedy[0])
    return found


def _first_of(nodes: Sequence[JudgedNode]) -> First | None:
    for node in nodes:
        if tone(node.judgement.verdict) == "bad" and node.judgement.remedy:
            return First("" if node.own else f"with {node.node}", node.judgement.remedy[0])
    return None


def _by_launch(findings: Sequence[Finding], launches: Sequence[Launch]) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """Those of the newest launch, or since it began, and those from before it. All of them are not known to be over."""
    if not launches:
        return findings, ()
    newest = launches[0]
    current = [one for one in findings if one.last.pid == newest.pid or one.last.when >= newest.started]
    return current, [one for one in findings if one not in current]


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


def _state_rows(goodput: Goodput) -> list[tuple[TrainingState, float, float]]:
    """The states of trainings that took any time: each with its seconds and its share of all time."""
    parts = shares(goodput.seconds)
    return [(state, goodput.seconds[state], parts[state]) for state in TrainingState if goodput.seconds.get(state)]


def _identity_rows(identity: Identity) -> list[tuple[str, Known]]:
    return [(field.name.replace("_", " "), getattr(identity, field.name)) for field in fields(identity)]
