"""The paths of the HTTP server and their responses, without sockets."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tpuwatch.core import TpuwatchError, dumps, encode, parse_time, redact
from tpuwatch.model import (
    Breaker,
    BreakerDocument,
    Cause,
    DecisionDocument,
    ErrorDocument,
    EventDocument,
    EventsDocument,
    FindingsDocument,
    GoodputDocument,
    JudgedQueuedResourceDocument,
    KnownFindingDocument,
    LaunchesDocument,
    NodeDocument,
    NodesDocument,
    PeerStatusDocument,
    ReadinessDocument,
    ReadyDocument,
    RestartDocument,
    RestartsDocument,
    RestartsStatus,
    StatusDocument,
    TargetDocument,
    TuneDocument,
    TuneStatus,
    UnknownPathDocument,
    present_problems,
    rank,
    worst_first,
)
from tpuwatch.restart import has_ended, owner_words
from tpuwatch.web.openapi import DEFAULT_LIMIT, MAX_ID, MAX_LIMIT, MAX_NODES, SERVED, openapi
from tpuwatch.web.sentences import restart_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tpuwatch.metrics import Metrics
    from tpuwatch.model import (
        DaemonStatus,
        JudgedNode,
        JudgedQueuedResource,
        Problems,
        RestartRecord,
        ScrapeTarget,
        View,
    )

_PAGE_EVENTS = 50
_LATE_LAUNCHES = 500  # that may show a finding to be over
_ERRORS = {
    400: "The request is not valid HTTP.",
    401: "The request has no token that is in `token_file` under [http]: send `Authorization: Bearer TOKEN`.",
    405: "tpuwatch is read-only: use GET or HEAD.",
    421: "The request's Host is not known to be a name of this server; if it is one, add it to `hosts` under [http].",
    431: "The request is too large.",
    503: "tpuwatch serves as many clients as it may; ask again.",
    505: "tpuwatch speaks HTTP/1.0 and HTTP/1.1.",
}
_ERROR_HEADERS = {
    401: {"WWW-Authenticate": 'Basic realm="tpuwatch"'},
    405: {"Allow": "GET, HEAD"},
    503: {"Retry-After": "1"},
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Routes:
    """Responds to paths from the view and the metrics."""

    def __init__(self, view: View, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics
        self._documents = Api(view).routes
        self._probes = {"/healthz": self._healthz, "/readyz": self._readyz}

    def respond(self, target: str, *, accept: str) -> Response:
        """The response to GET `target`; an exception becomes an error response."""
        path, _, query = target.partition("?")
        try:
            return self._route(path, query, accept)
        except BadRequestError as error:
            return _json(400, ErrorDocument(error=str(error)))
        except TpuwatchError as error:
            return _json(503, ErrorDocument(error=str(error)))
        except Exception:  # noqa: BLE001 # logged, and the client gets a server error
            _log.exception("Failed to answer %r", path[:100])
            return _json(500, ErrorDocument(error="tpuwatch failed to answer; its log has the reason."))

    def is_probe(self, target: str) -> bool:
        """Whether this is /healthz or /readyz, whose responses are short and quickly made."""
        return target.partition("?")[0] in self._probes

    def probe(self, target: str) -> Response | None:
        """What /healthz and /readyz say to those without a token, such as the kubelet; None for all other paths."""
        if not self.is_probe(target):
            return None
        path = target.partition("?")[0]
        response = self.respond(path, accept="")
        return _json(response.code, ReadyDocument(ready=response.code == 200)) if path == "/readyz" else response

    def _route(self, path: str, query: str, accept: str) -> Response:
        if path == "/metrics":
            self._count_problems()
            body, content_type = self._metrics.exposition(accept)
            return Response(200, content_type, body)
        if path in self._documents:
            return _json(200, self._documents[path](query))
        if path == "/":
            return self._page(query)
        if path in self._probes:
            return self._probes[path]()
        paths = ("/", "/metrics", "/healthz", "/readyz", *self._documents)
        return _json(404, UnknownPathDocument(error="There is nothing under this path.", paths=paths))

    def _healthz(self) -> Response:
        return Response(200, "text/plain; charset=utf-8", b"ok\n")

    def _readyz(self) -> Response:
        reasons = self._view.status().not_ready()
        return _json(503 if reasons else 200, ReadinessDocument(ready=not reasons, reasons=tuple(reasons)))

    def _count_problems(self) -> None:
        """Bring the metrics up to date. A store that cannot be read must not take the other metrics away."""
        with contextlib.suppress(TpuwatchError):
            problems = _problems(self._view)
            self._metrics.daemon.set_problems(problems.counts)
            self._metrics.daemon.set_findings(finding.cause.value for finding in problems.findings)

    def _page(self, query: str) -> Response:
        from tpuwatch.web import document, page  # with their templates, when the first page is asked for
        from tpuwatch.web.fleet import FLEET_PARAMETERS, FleetQuery

        values, nodes, status = parameters(query, ("node", *FLEET_PARAMETERS)), self._view.nodes(), self._view.status()
        if "node" in values:
            wanted = [node for node in nodes if _is_wanted(node, values)]
            if not wanted:
                raise BadRequestError(f"No node {' '.join(_quoted(value) for value in values.values())} is watched.")
            html = page.render_nodes(status, wanted, self._view.targets())
        else:
            try:
                fleet = FleetQuery.parse(values)
            except ValueError as error:
                raise BadRequestError(str(error)) from error
            html = page.render(
                status,
                self._view.findings(),
                self._view.launches(_LATE_LAUNCHES),
                self._view.events(limit=_PAGE_EVENTS),
                nodes,
                fleet=fleet,
            )
        headers = {"Content-Security-Policy": document.POLICY}
        return Response(200, "text/html; charset=utf-8", html.encode("utf-8", "replace"), headers)


def error_response(code: int, text: str = "") -> Response:
    """The response to a request that no route answers; `text`: why, other than what is usual for the code."""
    return _json(code, ErrorDocument(error=text or _ERRORS.get(code, _ERRORS[400])), _ERROR_HEADERS.get(code, {}))


def _json(code: int, document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """The response with a document, or a list of them, or with the description of all, which is JSON already."""
    shown = [encode(one) for one in document] if isinstance(document, list) else document
    shown = shown if isinstance(shown, (dict, list)) else encode(shown)
    text = dumps(shown, text=cache(redact))  # in a document of many nodes most strings are alike
    return Response(code, "application/json", f"{text}\n".encode(), headers or {})


class BadRequestError(Exception):
    """An invalid query; the message contains what is wrong and what would be right."""


class Api:
    """The documents under `/api/v1/`, built from a view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.routes: dict[str, Callable[[str], Any]] = {
            "/api/v1/status": self.status,
            "/api/v1/events": self.events,
            "/api/v1/findings": self.findings,
            "/api/v1/launches": self.launches,
            "/api/v1/goodput": self.goodput,
            "/api/v1/nodes": self.nodes,
            "/api/v1/restarts": self.restarts,
            "/api/v1/targets": self.targets,
            "/api/v1/tune": self.tune,
            "/api/v1/peer": self.peer,
            "/api/v1/openapi.json": self.openapi,
        }

    def status(self, query: str) -> StatusDocument:
        """The daemon's state."""
        parameters(query, SERVED["status"].parameters)
        status = self._view.status()
        sentences = restart_sentences(status.restarts, status.now) if status.restarts else []
        return StatusDocument.of(status, _problems(self._view), sentences)

    def peer(self, query: str) -> PeerStatusDocument:
        """What other machines' tpuwatch ask for."""
        parameters(query, SERVED["peer"].parameters)
        return PeerStatusDocument.of(self._view.status())

    def events(self, query: str) -> EventsDocument:
        """Stored events, oldest first: those after an id, or else the newest."""
        values = parameters(query, SERVED["events"].parameters)
        last = self._view.last_event_id()  # before they are read: none after it is missed
        events = self._view.events(
            since=_time("since", values["since"]) if "since" in values else None,
            cause=_cause(values["cause"]) if "cause" in values else None,
            history=_integer("history", values["history"], 0, 1) == 1 if "history" in values else None,
            after_id=_integer("after", values["after"], 0, MAX_ID) if "after" in values else None,
            limit=_limit(values),
        )
        return EventsDocument(events=tuple(map(EventDocument.of, events)), last_id=last)

    def findings(self, query: str) -> FindingsDocument:
        """Findings in the order in which to act, those that are over last; each with when it was last seen."""
        parameters(query, SERVED["findings"].parameters)
        found = _problems(self._view)
        both = [*((one, None) for one in found.findings), *((one.finding, one.why) for one in found.past)]
        return FindingsDocument(findings=tuple(KnownFindingDocument.known(one, why) for one, why in both))

    def launches(self, query: str) -> LaunchesDocument:
        """Launches, the newest first."""
        limit = _limit(parameters(query, SERVED["launches"].parameters))
        return LaunchesDocument.of(self._view.launches(limit))

    def goodput(self, query: str) -> GoodputDocument:
        """Where the time of trainings went."""
        values = parameters(query, SERVED["goodput"].parameters)
        since = _time("since", values["since"]) if "since" in values else None
        return GoodputDocument.of(self._view.goodput(since=since, workload=values.get("workload", "")))

    def nodes(self, query: str) -> NodesDocument:
        """Watched nodes, worst first, and the number of nodes with each verdict."""
        values, status = parameters(query, SERVED["nodes"].parameters), self._view.status()
        limit = _limit(values, MAX_NODES)
        watched = self._view.nodes()
        wanted = worst_first(node for node in watched if _is_wanted(node, values))
        counts = Counter(node.judgement.verdict.value for node in watched)
        return NodesDocument(
            now=status.now,
            nodes=tuple(map(NodeDocument.of, wanted[:limit])),
            queued_resources=tuple(map(JudgedQueuedResourceDocument.of, _queued_resources(status, values)[:limit])),
            watched=len(watched),
            bad=len(present_problems(status, (), watched, ()).nodes),
            verdicts=dict(sorted(counts.items(), key=lambda item: rank(item[0]))),
        )

    def targets(self, query: str) -> list[TargetDocument]:
        """Where each tpuwatch can be scraped, for Prometheus' discovery by HTTP."""
        parameters(query, SERVED["targets"].parameters)
        return [_target(target) for target in self._view.targets()]

    def restarts(self, query: str) -> RestartsDocument:
        """Restarts, open ones first and then the latest, and the decisions on nodes."""
        limit, status = _limit(parameters(query, SERVED["restarts"].parameters)), self._view.status()
        return restarts_document(status.restarts or RestartsStatus(acts=False), status.now, limit)

    def tune(self, query: str) -> TuneDocument:
        """What is decided for the next launches, and why."""
        limit, status = _limit(parameters(query, SERVED["tune"].parameters)), self._view.status()
        return TuneDocument.of(status.tune or TuneStatus(acts=False, directory=""), status.now, limit)

    def openapi(self, query: str) -> dict[str, Any]:
        """The OpenAPI description of all these documents."""
        parameters(query, SERVED["openapi.json"].parameters)
        return openapi()


def restarts_document(status: RestartsStatus, now: float, limit: int) -> RestartsDocument:
    """Open and past restarts, and the latest decisions: `limit` nodes of each."""
    records = sorted(status.records, key=lambda one: (not one.open, -max(one.entered, one.requested)))
    return RestartsDocument(
        now=now,
        mode="act" if status.acts else "observe",
        ledger_read=status.read,
        ledger_problem=status.ledger_problem or None,
        unrecorded=status.alarms,
        breaker=BreakerDocument.of(status.breaker or Breaker()),
        budget=status.budget,
        restarts=tuple(_restart(one) for one in records[:limit]),
        decisions=tuple(DecisionDocument.of(label, one) for label, one in status.decisions[:limit]),
    )


def _restart(record: RestartRecord) -> RestartDocument:
    owner = record.lease.owner
    return RestartDocument.of(record, driver=owner_words(owner) if owner else "", driver_ended=has_ended(owner))


def _target(target: ScrapeTarget) -> TargetDocument:
    url = urlsplit(target.url)
    labels = {"zone": target.zone, "node": target.node, "worker": str(target.worker)}
    if url.scheme != "http":
        labels["__scheme__"] = url.scheme
    if path := url.path.rstrip("/"):
        labels["__metrics_path__"] = f"{path}/metrics"
    return TargetDocument(targets=(url.netloc,), labels=labels)


def _is_wanted(node: JudgedNode, values: Mapping[str, str]) -> bool:
    """Whether a query asks for the node, by its name, its zone or both."""
    return values.get("node", node.node) == node.node and values.get("zone", node.zone) == node.zone


def _queued_resources(status: DaemonStatus, values: Mapping[str, str]) -> list[JudgedQueuedResource]:
    """Those of the node and the zone that a query asks for."""
    node, zone = values.get("node"), values.get("zone")
    found = [one for one in status.queued_resources if zone in (None, one.queued.zone)]
    return [one for one in found if node is None or node in one.queued.nodes]


def _problems(view: View) -> Problems:
    return present_problems(view.status(), view.findings(), view.nodes(), view.launches(_LATE_LAUNCHES))


def parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """A query string's parameters. Raises BadRequestError for one that is unknown or given twice."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise BadRequestError("The query has too many parameters.") from error
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"There is no parameter {_quoted(name)} here. {_nearest(name, known)}")
        if name in values:
            raise BadRequestError(f"The parameter {name} is given twice; give it once.")
        values[name] = value
    return values


def _limit(values: dict[str, str], highest: int = MAX_LIMIT) -> int:
    return _integer("limit", values["limit"], 1, highest) if "limit" in values else DEFAULT_LIMIT


def _integer(name: str, value: str, lowest: int, highest: int) -> int:
    # The length first: Python refuses to convert numbers of thousands of digits with an error of its own.
    if not (value.isascii() and value.isdecimal() and len(value) < 20 and lowest <= int(value) <= highest):
        raise BadRequestError(f"{name} must be a whole number from {lowest} to {highest}, not {_quoted(value)}.")
    return int(value)


def _time(name: str, value: str) -> float:
    try:
        return parse_time(value)
    except ValueError as error:
        raise BadRequestError(
            f"{name} must be seconds since the epoch or an ISO 8601 time such as 2026-11-20T13:44:14Z (write the + of a"
            f" zone as %2B), not {_quoted(value)}."
        ) from error


def _cause(value: str) -> Cause:
    try:
        return Cause(value)
    except ValueError as error:
        nearest = _nearest(value, [cause.value for cause in Cause])
        raise BadRequestError(f"There is no cause {_quoted(value)}. {nearest}") from error


def _nearest(word: str, known: Iterable[str]) -> str:
    known = list(known)
    if not known:
        return "This document takes none."
    near = difflib.get_close_matches(word[:64], known, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(known)}."


def _quoted(text: str) -> str:
    """What a client sent, quoted and truncated."""
    return repr(text if len(text) <= 64 else f"{text[:64]}…")
