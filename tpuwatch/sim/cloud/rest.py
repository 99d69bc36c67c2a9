"""The Cloud TPU API and its operations as REST, so that gcloud and clients that speak JSON can be pointed at it.

Requests are transcoded by the HTTP rules of the API's own definition, and passed on to the gRPC server: faults, access
tokens and errors are the same on both ways.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import grpc
from google.longrunning import operations_pb2
from google.protobuf import json_format
from google.rpc import status_pb2

from tpuwatch.sim.cloud.responses import STATUS_KEY, ServiceError, http_status
from tpuwatch.sim.cloud.tpu import OPERATIONS_SERVICE
from tpuwatch.sim.cloud.wire import COMMON_METADATA, ApiVersion
from tpuwatch.sim.serving import LocalServer, OneRequestHandler

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BODY_BYTES: Final = 1 << 20
MAX_CONNECTIONS: Final = 64
REQUEST_SECONDS: Final = 10.0  # for a client to send its request
ANSWER_SECONDS: Final = 300.0  # for the API to answer
_VARIABLE: Final = re.compile(r"\{([^=}]+)=([^}]+)\}")
_PLACE: Final = "projects/*/locations/*"
_NODE: Final = f"{_PLACE}/nodes/*"
_RESOURCE: Final = f"{_PLACE}/queuedResources/*"
_OPERATION: Final = f"{_PLACE}/operations/*"
# By method: the verb, the path after the version with the field that it gives, and the field that the body gives, "*"
# for all the others, "" for none. What the simulator does not serve is left out.
RULES: Final = {
    "ListNodes": ("GET", f"{{parent={_PLACE}}}/nodes", ""),
    "CreateNode": ("POST", f"{{parent={_PLACE}}}/nodes", "node"),
    "GetNode": ("GET", f"{{name={_NODE}}}", ""),
    "DeleteNode": ("DELETE", f"{{name={_NODE}}}", ""),
    "StopNode": ("POST", f"{{name={_NODE}}}:stop", "*"),
    "StartNode": ("POST", f"{{name={_NODE}}}:start", "*"),
    "ListQueuedResources": ("GET", f"{{parent={_PLACE}}}/queuedResources", ""),
    "GetQueuedResource": ("GET", f"{{name={_RESOURCE}}}", ""),
    "ResetQueuedResource": ("POST", f"{{name={_RESOURCE}}}:reset", "*"),
    "ListOperations": ("GET", f"{{name={_PLACE}}}/operations", ""),
    "GetOperation": ("GET", f"{{name={_OPERATION}}}", ""),
}
# Parameters of every Google API, which are no fields of the request.
_SYSTEM: Final = frozenset({"alt", "fields", "key", "prettyPrint", "quotaUser", "access_token"})
_OPERATIONS: Final = frozenset({"GetOperation", "ListOperations"})


@dataclass(frozen=True, slots=True)
class _Route:
    """A method, and the requests that mean it."""

    api: ApiVersion
    name: str
    verb: str
    path: re.Pattern[str]
    field: str  # that the path gives, with dots
    body: str  # the field that the body gives, "*" for all the others, "" for none

    @property
    def method(self) -> str:
        """As gRPC names it."""
        return f"/{OPERATIONS_SERVICE if self.name in _OPERATIONS else self.api.service}/{self.name}"

    def request(self, found: str, query: dict[str, list[str]], body: Any) -> Any:
        """The request's message. Raises ServiceError."""
        message = self._message(f"{self.name}Request")()
        given = dict(body) if self.body == "*" else {self.body: body} if self.body else {}
        for name, values in query.items():
            if name not in _SYSTEM and not name.startswith("$"):
                _set(given, name, values if len(values) > 1 else values[0])
        _set(given, self.field, found)
        try:
            return json_format.ParseDict(given, message)
        except json_format.ParseError as error:
            raise ServiceError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error

    def response(self, raw: bytes, *, numbers: bool) -> dict[str, Any]:
        """The answer as JSON; enums as numbers where that is wanted."""
        listed = self.name.startswith("List")
        shown = f"{self.name}Response" if listed else self.name[3:] if self.name.startswith("Get") else "Operation"
        message = self._message(shown).FromString(raw)
        for operation in message.operations if self.name == "ListOperations" else [message]:
            if shown.endswith(("Operation", "OperationsResponse")) and operation.metadata.type_url == COMMON_METADATA:
                # It has the fields of the API's own, and no client knows it by its name.
                operation.metadata.type_url = (
                    f"type.googleapis.com/google.cloud.tpu.{self.api.version}.OperationMetadata"
                )
        return dict(json_format.MessageToDict(message, use_integers_for_enums=numbers))

    def _message(self, name: str) -> Any:
        operations = name == "Operation" or self.name in _OPERATIONS
        return getattr(operations_pb2, name) if operations else self.api.message(name)


def _routes(api: ApiVersion) -> Iterator[_Route]:
    for name, (verb, template, body) in RULES.items():
        before, field, wanted, after = _VARIABLE.split(template)
        path = f"/{api.version}/{before}({wanted.replace('*', '[^/]+')}){after}"
        yield _Route(api, name, verb, re.compile(path), field, body)


def _set(given: dict[str, Any], name: str, value: Any) -> None:
    """Set a field, with dots between the names of nested ones."""
    *outer, last = name.split(".")
    for each in outer:
        given = given.setdefault(each, {})
    given[last] = value


class RestServer(LocalServer):
    """Serves REST on an address of this machine, from threads of its own."""

    def __init__(self, grpc_address: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Binds at once, serves after `start`. Raises OSError. `grpc_address`: of the gRPC server, without TLS."""
        self.routes = [route for version in ("v2", "v2alpha1") for route in _routes(ApiVersion(version))]
        super().__init__(_Handler, "sim-rest", max_connections=MAX_CONNECTIONS, host=host, port=port)
        self.channel = grpc.insecure_channel(grpc_address, options=[("grpc.enable_http_proxy", 0)])

    def close(self) -> None:
        """Stop listening, and end all calls."""
        self.channel.close()
        super().close()


class _Handler(OneRequestHandler):
    """Answers in JSON."""

    server: RestServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 (the base class calls it so)
        """Answer the request; each of the methods comes here."""
        try:
            status, document = 200, self._answer()
        except ServiceError as error:
            status, document = _error(error.code, error.message, [])
        except grpc.RpcError as error:
            status, document = _error(error.code().name, error.details() or "", _details(error))
        body = json.dumps(document, indent=2).encode() + b"\n"
        self.respond(status, body, "application/json; charset=UTF-8")

    do_POST = do_DELETE = do_GET  # noqa: N815 - the base class calls them so

    def _answer(self) -> dict[str, Any]:
        url = urlsplit(self.path)
        query, body = parse_qs(url.query, keep_blank_values=True), self._body()
        for route in self.server.routes:
            found = route.path.fullmatch(unquote(url.path)) if route.verb == self.command else None
            if found is not None:
                request = route.request(found[1], query, body).SerializeToString()
                token = self.headers.get("Authorization")
                metadata = [("authorization", token)] if token else None
                raw = self.server.channel.unary_unary(route.method)(request, timeout=ANSWER_SECONDS, metadata=metadata)
                numbers = any("enum-encoding=int" in value for value in query.get("$alt", []))
                return route.response(raw, numbers=numbers)
        raise ServiceError("UNIMPLEMENTED", f"The simulator has no {self.command} {url.path[:200]}.")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise ServiceError("INVALID_ARGUMENT", f"Send a Content-Length of at most {MAX_BODY_BYTES}.")
        try:
            document = json.loads(self.rfile.read(int(length)) or b"{}")
        except (ValueError, RecursionError) as error:
            raise ServiceError("INVALID_ARGUMENT", f"Invalid JSON payload received. {error}") from error
        if not isinstance(document, dict):
            raise ServiceError("INVALID_ARGUMENT", "Invalid JSON payload received. It must be an object.")
        return document


def _details(error: Any) -> list[Any]:
    status = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY:
            status.ParseFromString(value)
    return [json_format.MessageToDict(detail) for detail in status.details]


def _error(code: str, message: str, details: list[Any]) -> tuple[int, dict[str, Any]]:
    status = http_status(code)
    error: dict[str, Any] = {"code": status, "message": message, "status": code}
    return status, {"error": {**error, **({"details": details} if details else {})}}
