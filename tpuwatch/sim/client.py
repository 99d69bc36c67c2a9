"""Client of the control endpoint of a running simulator."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tpuwatch.core import ConfigError, HttpClient, HttpError, SystemClock, TpuwatchError
from tpuwatch.sim.directory import read_info

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT_SECONDS = 10.0
MAX_BYTES = 64 << 20  # the state of thousands of nodes


class Client:
    """A running simulator, found by sim.json in its directory."""

    def __init__(self, directory: Path) -> None:
        """Raises DirectoryError if no simulator runs there."""
        self.directory = directory
        self.info = read_info(directory)

    def state(self) -> dict[str, Any]:
        """The document of GET /state."""
        return self._request("GET", "/state")

    def fault(self, fields: Mapping[str, Any]) -> str:
        """Set a fault; return the outcome."""
        return str(self._request("POST", "/fault", fields)["done"])

    def clear(self, method: str = "*") -> str:
        """Clear the faults of a method, or all; return the outcome."""
        return str(self._request("DELETE", f"/fault?method={quote(method, safe='')}")["done"])

    def node(self, name: str, fields: Mapping[str, Any]) -> str:
        """Execute an action on the nodes that match a name or pattern; return the outcome."""
        return str(self._request("POST", f"/node/{quote(name, safe='')}", fields)["done"])

    def queued_resource(self, name: str, fields: Mapping[str, Any]) -> str:
        """Change a queued resource; return the outcome."""
        return str(self._request("POST", f"/queued-resource/{quote(name, safe='')}", fields)["done"])

    def launch(self, fields: Mapping[str, Any]) -> str:
        """Start a launch; return the outcome."""
        return str(self._request("POST", "/launch", fields)["done"])

    def _request(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        address = self.info["control"]
        body = None if document is None else json.dumps(document).encode()
        try:
            reply = HttpClient(SystemClock()).request(
                f"http://{address}{path}",
                seconds=TIMEOUT_SECONDS,
                max_bytes=MAX_BYTES,
                method=method,
                headers={"Content-Type": "application/json"} if body else {},
                body=body,
            )
            answer = reply.json()
        except HttpError as error:
            raise TpuwatchError(
                f"the simulator in {self.directory} does not answer at {address} ({error.fault.value}); "
                "start one with `tpuwatch sim`"
            ) from error
        if not isinstance(answer, dict):
            raise TpuwatchError(f"another program answers at {address}; start the simulator again")
        if reply.status != HTTPStatus.OK:
            message = str(answer.get("error", reply.status))
            raise (ConfigError if reply.status == HTTPStatus.BAD_REQUEST else TpuwatchError)(message)
        return answer
