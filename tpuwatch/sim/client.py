"""Client of the control endpoint of a running simulator."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tpuwatch.core import ConfigError, TpuwatchError
from tpuwatch.sim.directory import read_info

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT_SECONDS = 10.0


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

    def launch(self, fields: Mapping[str, Any]) -> str:
        """Start a launch; return the outcome."""
        return str(self._request("POST", "/launch", fields)["done"])

    def _request(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        address = self.info["control"]
        body = None if document is None else json.dumps(document)
        try:
            with contextlib.closing(http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)) as connection:
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                reply = connection.getresponse()
                answer = json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TpuwatchError(
                f"the simulator in {self.directory} does not answer at {address} ({error}); "
                "start one with `tpuwatch sim`"
            ) from error
        if not isinstance(answer, dict):
            raise TpuwatchError(f"another program answers at {address}; start the simulator again")
        if reply.status != http.client.OK:
            message = str(answer.get("error", reply.status))
            raise (ConfigError if reply.status == http.client.BAD_REQUEST else TpuwatchError)(message)
        return answer
