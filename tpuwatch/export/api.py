"""The JSON documents of the HTTP API: a request's query in, a document out. No sockets here."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from tpuwatch.export import jsonable, restarts, tunes
from tpuwatch.export.view import RestartsStatus, TuneStatus
from tpuwatch.export.words import rank, worst_first
from tpuwatch.jsontext import parse_time, times
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tpuwatch.export.view import Status, View

MAX_LIMIT = 1000
DEFAULT_LIMIT = 100
SHOWN_WORKLOADS = 10  # in the status
MAX_NODES = 10_000
MAX_ID = 2**63 - 1  # the greatest id that the journal can give


class BadRequestError(Exception):
    """A query that cannot be answered; the message says what is wrong with it and what would be right."""


class Api:
    """Answers `/api/v1/…` from a view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.routes = {
            "/api/v1/status": self.status,
            "/api/v1/events": self.events,
            "/api/v1/findings": self.findings,
            "/api/v1/launches": self.launches,
            "/api/v1/nodes": self.nodes,
            "/api/v1/restarts": self.restarts,
            "/api/v1/tune": self.tune,
        }

    def status(self, query: str) -> dict[str, Any]:
        """The daemon's state."""
        parameters(query, ())
        return status_document(self._view.status())

    def events(self, query: str) -> dict[str, Any]:
        """Stored events, oldest first: those after an id, or else the newest."""
        given = parameters(query, ("since", "cause", "after", "limit"))
        events = self._view.events(
            since=_time("since", given["since"]) if "since" in given else None,
            cause=_cause(given["cause"]) if "cause" in given else None,
            after_id=_integer("after", given["after"], 0, MAX_ID) if "after" in given else None,
            limit=_limit(given),
        )
        return {"events": [jsonable.event(event) for event in events]}

    def findings(self, query: str) -> dict[str, Any]:
        """What is wrong, in the order in which to act, each with when it was last seen: many records have no time."""
        parameters(query, ())
        return {
            "findings": [
                {**jsonable.finding(finding), **times("seen", finding.last.when)} for finding in self._view.findings()
            ]
        }

    def launches(self, query: str) -> dict[str, Any]:
        """Launches, the newest first."""
        limit = _limit(parameters(query, ("limit",)))
        return {"launches": [jsonable.launch(launch) for launch in self._view.launches(limit)]}

    def nodes(self, query: str) -> dict[str, Any]:
        """Watched nodes, the worst first, and how many there are of each verdict."""
        given = parameters(query, ("node", "limit"))
        limit = _limit(given, MAX_NODES)
        watched = self._view.nodes()
        wanted = worst_first(node for node in watched if "node" not in given or node.node == given["node"])
        counted = Counter(node.judgement.verdict.value for node in watched)
        return {
            **times("now", self._view.status().now),
            "nodes": [jsonable.node(node) for node in wanted[:limit]],
            "watched": len(watched),
            "verdicts": dict(sorted(counted.items(), key=lambda item: rank(item[0]))),
        }

    def restarts(self, query: str) -> dict[str, Any]:
        """What is done about nodes and what is not: what is under way first, then what ended last."""
        limit, status = _limit(parameters(query, ("limit",))), self._view.status()
        return restarts.document(status.restarts or RestartsStatus(acts=False), status.now, limit)

    def tune(self, query: str) -> dict[str, Any]:
        """What is decided for the next launches, and why."""
        limit, status = _limit(parameters(query, ("limit",))), self._view.status()
        return tunes.document(status.tune or TuneStatus(applies=False, directory=""), status.now, limit)


def status_document(status: Status) -> dict[str, Any]:
    """The daemon's state as JSON."""
    journal = status.journal
    not_ready = status.not_ready()
    return {
        "version": status.version,
        "state": status.state,
        "ready": not not_ready,
        "not_ready": not_ready,
        **times("now", status.now),
        **times("started", status.started),
        "uptime_seconds": status.uptime_seconds,
        "loops": [
            {"name": loop.name, "fresh": loop.fresh, **times("last_success", loop.last_success)}
            for loop in status.loops
        ],
        "files": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "read_bytes": file.read_bytes,
                "lag_bytes": file.lag_bytes,
                **times("last_written", file.last_written),
            }
            for file in status.files
        ],
        "problems": [{"path": problem.path, "reason": problem.reason} for problem in status.problems],
        "notices": list(status.notices),
        "config_source": status.config_source,
        "journal": {
            "path": journal.path,
            "durable": journal.durable,
            "events": journal.events,
            "detail": journal.detail,
        },
        "last_launch": jsonable.launch(status.last_launch) if status.last_launch else None,
        "identity": jsonable.identity(status.identity) if status.identity else None,
        "node": jsonable.node(status.node) if status.node else None,
        "witnesses": [jsonable.witness(witness) for witness in status.witnesses],
        "runtime": jsonable.runtime(status.runtime) if status.runtime else None,
        "host": jsonable.host(status.host) if status.host else None,
        "restarts": restarts.lines(status.restarts, status.now) if status.restarts else [],
        "tune": tunes.document(status.tune, status.now, SHOWN_WORKLOADS) if status.tune else None,
    }


def parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """A query string's parameters. Raises BadRequestError for one that is unknown or given twice."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise BadRequestError("The query has too many parameters.") from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"There is no parameter {_shown(name)} here. {_nearest(name, known)}")
        if name in given:
            raise BadRequestError(f"The parameter {name} is given twice; give it once.")
        given[name] = value
    return given


def _limit(given: dict[str, str], highest: int = MAX_LIMIT) -> int:
    return _integer("limit", given["limit"], 1, highest) if "limit" in given else DEFAULT_LIMIT


def _integer(name: str, value: str, lowest: int, highest: int) -> int:
    # The length first: Python refuses to convert numbers of thousands of digits with an error of its own.
    if not (value.isascii() and value.isdecimal() and len(value) < 20 and lowest <= int(value) <= highest):
        raise BadRequestError(f"{name} must be a whole number from {lowest} to {highest}, not {_shown(value)}.")
    return int(value)


def _time(name: str, value: str) -> float:
    try:
        return parse_time(value)
    except ValueError as error:
        raise BadRequestError(
            f"{name} must be seconds since the epoch or an ISO 8601 time such as 2026-11-20T13:44:14Z (write the + of a"
            f" zone as %2B), not {_shown(value)}."
        ) from error


def _cause(value: str) -> Cause:
    try:
        return Cause(value)
    except ValueError as error:
        nearest = _nearest(value, [cause.value for cause in Cause])
        raise BadRequestError(f"There is no cause {_shown(value)}. {nearest}") from error


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    if not known:
        return "This document takes none."
    near = difflib.get_close_matches(word[:64], known, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(known)}."


def _shown(text: str) -> str:
    """What a caller sent, quoted and cut."""
    return repr(text if len(text) <= 64 else f"{text[:64]}…")
