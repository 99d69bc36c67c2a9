"""What is served under which path. No sockets here."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuwatch.errors import TpuwatchError
from tpuwatch.export import page
from tpuwatch.export.api import Api, BadRequestError
from tpuwatch.jsontext import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.export.metrics import Metrics
    from tpuwatch.export.view import View

_log = logging.getLogger(__name__)

_ERRORS = {
    400: "The request is not HTTP as tpuwatch understands it.",
    405: "tpuwatch only shows: use GET or HEAD.",
    431: "The request is too large.",
    505: "tpuwatch speaks HTTP/1.0 and HTTP/1.1.",
}
_PAGE_LIMIT = 50  # launches and events on the status page


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back."""

    code: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Routes:
    """Answers a path from the view and the metrics."""

    def __init__(self, view: View, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics
        self._documents = Api(view).routes
        self._others = {"/": self._page, "/healthz": self._healthz, "/readyz": self._readyz}

    def reply(self, target: str, *, accept: str) -> Reply:
        """The answer to GET `target`, whatever happens on the way to it."""
        path, _, query = target.partition("?")
        try:
            return self._route(path, query, accept)
        except BadRequestError as error:
            return _json(400, {"error": str(error)})
        except TpuwatchError as error:
            return _json(503, {"error": str(error)})
        except Exception:  # noqa: BLE001 # logged, and the client learns that it is not its fault
            _log.exception("Failed to answer %r", path[:100])
            return _json(500, {"error": "tpuwatch failed to answer; its own log says why."})

    def _route(self, path: str, query: str, accept: str) -> Reply:
        if path == "/metrics":
            body, content_type = self._metrics.exposition(accept)
            return Reply(200, content_type, body)
        if path in self._documents:
            return _json(200, self._documents[path](query))
        if path in self._others:
            return self._others[path]()
        paths = ["/", "/metrics", "/healthz", "/readyz", *self._documents]
        return _json(404, {"error": "There is nothing under this path.", "paths": paths})

    def _healthz(self) -> Reply:
        return Reply(200, "text/plain; charset=utf-8", b"ok\n")

    def _readyz(self) -> Reply:
        reasons = self._view.status().not_ready()
        return _json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    def _page(self) -> Reply:
        html = page.render(
            self._view.status(),
            self._view.findings(),
            self._view.launches(_PAGE_LIMIT),
            self._view.events(limit=_PAGE_LIMIT),
            self._view.nodes(),
        )
        headers = {"Content-Security-Policy": page.POLICY}
        return Reply(200, "text/html; charset=utf-8", html.encode("utf-8", "replace"), headers)


def error_reply(code: int) -> Reply:
    """The answer to a request that has no route because it is no proper request."""
    headers = {"Allow": "GET, HEAD"} if code == 405 else {}
    return _json(code, {"error": _ERRORS.get(code, _ERRORS[400])}, headers)


def _json(code: int, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(code, "application/json", f"{dumps(document)}\n".encode(), headers or {})
