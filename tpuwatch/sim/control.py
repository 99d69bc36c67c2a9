"""The control endpoint of a simulator: JSON over HTTP on loopback, one request per connection.

    GET /state                what there is: nodes, faults, how far the time line is
    POST /fault {…}           set a fault; the keys are those of a step with do = "fault"
    DELETE /fault[?method=…]  clear the faults of a method, or all
    POST /node/NAME {…}       an action on a node or a pattern of nodes: {"do": "hang"}
    POST /queued-resource/NAME {…}  {"state": "ACTIVE"}
    POST /launch {…}          {"launch": "hbm-oom", "phase": "compiling"}

A wrong request is answered with 400 and {"error": what is wrong}, an action that does not fit with 409.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import ValidationError

from tpuwatch.sim.scenario import actions
from tpuwatch.sim.scenario.executor import ActionFailedError
from tpuwatch.sim.scenario.validation import describe_errors
from tpuwatch.sim.serving import LocalServer, OneRequestHandler

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BODY_BYTES: Final = 64 * 1024
MAX_CONNECTIONS: Final = 16
REQUEST_SECONDS: Final = 5.0  # for a client to send its request, and to take the answer
_PATHS: Final = "GET /state, POST /fault, DELETE /fault, POST /node/NAME, POST /queued-resource/NAME, POST /launch"


class _BadRequestError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlServer(LocalServer):
    """Serves on an address of this machine, from threads of its own."""

    def __init__(self, execute: Callable[[actions.ScenarioAction], str], state: Callable[[], dict[str, Any]]) -> None:
        """Binds a free port of this host at once, serves after `start`. Raises OSError.

        `execute` is ActionExecutor.execute, `state` gives the document of GET /state.
        """
        self.execute = execute
        self.state = state
        super().__init__(_Handler, "sim-control", max_connections=MAX_CONNECTIONS)


class _Handler(OneRequestHandler):
    """Answers in JSON."""

    server: ControlServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 (the base class calls it so)
        """Answer the request; each of the three methods comes here."""
        try:
            status, document = 200, self._execute()
        except _BadRequestError as error:
            status, document = error.status, {"error": str(error)}
        except ActionFailedError as error:
            status, document = 409, {"error": str(error)}
        body = json.dumps(document, default=str).encode() + b"\n"
        self.respond(status, body, "application/json")

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class calls them so

    def _execute(self) -> dict[str, Any]:
        url = urlsplit(self.path)
        if (self.command, url.path) == ("GET", "/state"):
            return self.server.state()
        if (self.command, url.path) == ("DELETE", "/fault"):
            return self._do({"do": "clear"}, {"method": parse_qs(url.query).get("method", ["*"])[-1]})
        if self.command == "POST":
            # Web pages in a browser can send forms to loopback, but this type only with our permission (CORS).
            if self.headers.get_content_type() != "application/json":
                raise _BadRequestError(415, "the body must be JSON; send Content-Type: application/json")
            body = self._body()
            if url.path in ("/fault", "/launch"):
                return self._do({"do": url.path[1:]}, body)
            if url.path.startswith("/node/"):
                return self._do_to_node({"node": unquote(url.path.removeprefix("/node/"))}, body)
            if url.path.startswith("/queued-resource/"):
                name = unquote(url.path.removeprefix("/queued-resource/"))
                return self._do({"do": "queued_resource", "name": name}, body)
        raise _BadRequestError(404, f"there is no {self.command} {url.path[:100]}; there are {_PATHS}")

    def _do_to_node(self, given: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        if body.get("do") not in actions.ON_NODES:
            known = ", ".join(actions.ON_NODES)
            raise _BadRequestError(400, f"do must be one of {known}, and is {json.dumps(body.get('do'))[:60]}")
        return self._do(given, body)

    def _do(self, given: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        for key in [*given, "at"]:
            if key in body:
                raise _BadRequestError(400, f"{key} has no place here; leave it out")
        try:
            action = actions.ADAPTER.validate_python({**given, **body})
        except ValidationError as error:
            raise _BadRequestError(400, "\n".join(describe_errors(error))) from error
        return {"done": self.server.execute(action)}

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise _BadRequestError(400, f"send a Content-Length of at most {MAX_BODY_BYTES}")
        try:
            document = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise _BadRequestError(400, f"the body is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise _BadRequestError(400, "the body must be one JSON object")
        return document
