"""The OpenAPI description of the API: its paths with their parameters, and the schemas of their documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.core import schema_name, schemas
from tpuwatch.model import (
    Cause,
    ErrorDocument,
    EventsDocument,
    FindingsDocument,
    GoodputDocument,
    LaunchesDocument,
    NodesDocument,
    PeerStatusDocument,
    RestartsDocument,
    StatusDocument,
    TargetDocument,
    TuneDocument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LIMIT: Final = 1000
DEFAULT_LIMIT: Final = 100
MAX_NODES: Final = 10_000
MAX_ID: Final = 2**63 - 1  # the greatest id that the store can give

_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}


@dataclass(frozen=True, slots=True)
class Served:
    """One document of the API."""

    document: type[Any] | None  # None: another one's description
    summary: str
    parameters: Mapping[str, Mapping[str, Any]]  # their schemas
    is_list: bool = False  # of such documents


SERVED: Final[Mapping[str, Served]] = {
    "status": Served(StatusDocument, "The daemon's state", {}),
    "nodes": Served(
        NodesDocument,
        "The watched nodes, the worst first",
        {"node": {"type": "string"}, "zone": {"type": "string"}, "limit": {**_LIMIT, "maximum": MAX_NODES}},
    ),
    "events": Served(
        EventsDocument,
        "Stored events, the oldest first: with `after` the first ones after that id, else the newest",
        {
            "since": {"type": "string", "description": "seconds since the epoch, or an ISO 8601 time"},
            "cause": {"type": "string", "enum": [one.value for one in Cause]},
            "history": {
                "type": "integer",
                "enum": [0, 1],
                "description": "only what was in the logs before tpuwatch first ran here (1), or what was not (0)",
            },
            "after": {"type": "integer", "minimum": 0, "maximum": MAX_ID},
            "limit": _LIMIT,
        },
    ),
    "findings": Served(FindingsDocument, "Findings in the order in which to act, those that are over last", {}),
    "launches": Served(LaunchesDocument, "Launches, the newest first", {"limit": _LIMIT}),
    "goodput": Served(
        GoodputDocument,
        "Where the time of trainings went, in the last 7 days or since another time",
        {
            "since": {"type": "string", "description": "seconds since the epoch, or an ISO 8601 time"},
            "workload": {"type": "string"},
        },
    ),
    "restarts": Served(RestartsDocument, "Restarts of nodes, and the latest decisions", {"limit": _LIMIT}),
    "targets": Served(TargetDocument, "Where to scrape each machine, for Prometheus", {}, is_list=True),
    "tune": Served(TuneDocument, "What is decided for the next launches", {"limit": _LIMIT}),
    "peer": Served(PeerStatusDocument, "What other machines' tpuwatch ask for: the verdict on this machine", {}),
    "openapi.json": Served(None, "This description", {}),
}


def openapi() -> dict[str, Any]:
    """The description in OpenAPI 3.1."""
    documents = [served.document for served in SERVED.values() if served.document is not None]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tpuwatch",
            "version": __version__,
            "summary": "What tpuwatch knows of this machine and of the nodes that it watches. Read-only.",
        },
        "paths": {f"/api/v1/{name}": {"get": _operation(name, served)} for name, served in SERVED.items()},
        "components": {
            "schemas": schemas(*documents, ErrorDocument),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(name: str, served: Served) -> dict[str, Any]:
    return {
        "operationId": name.partition(".")[0],
        "summary": served.summary,
        "parameters": [
            {"name": parameter, "in": "query", "schema": schema} for parameter, schema in served.parameters.items()
        ],
        "responses": {
            "200": _response(served.summary, _answer(served)),
            "400": _response("A parameter is wrong", _reference(ErrorDocument)),
            "401": _response("The token is missing or unknown", _reference(ErrorDocument)),
            "503": _response("The document is not available now", _reference(ErrorDocument)),
        },
    }


def _answer(served: Served) -> dict[str, Any]:
    if served.document is None:
        return {"type": "object"}
    one = _reference(served.document)
    return {"type": "array", "items": one} if served.is_list else one


def _reference(document: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema_name(document)}"}


def _response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
