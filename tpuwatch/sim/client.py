"""Talks to the control endpoint of a running simulator."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tpuwatch.errors import ConfigError, TpuwatchError
from tpuwatch.sim.place import read_note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SECONDS = 10.0


class Client:
    """One running simulator, found by the note in its directory."""

    def __init__(self, directory: Path) -> None:
        """Raises PlaceError when none has left a note there."""
        self.directory = directory
        self.note = read_note(directory)

    def state(self) -> dict[str, Any]:
        """The document of GET /state."""
        return self._ask("GET", "/state")

    def fault(self, fields: Mapping[str, Any]) -> str:
        """Set a fault; what was done."""
        return str(self._ask("POST", "/fault", fields)["done"])

    def clear(self, method: str = "*") -> str:
        """Clear the faults of a method, or all; what was done."""
        return str(self._ask("DELETE", f"/fault?method={quote(method, safe='')}")["done"])

    def node(self, name: str, fields: Mapping[str, Any]) -> str:
        """An action on a node or a pattern of nodes; what was done."""
        return str(self._ask("POST", f"/node/{quote(name, safe='')}", fields)["done"])

    def launch(self, fields: Mapping[str, Any]) -> str:
        """Start a launch; what was done."""
        return str(self._ask("POST", "/launch", fields)["done"])

    def _ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        address = self.note["control"]
        body = None if document is None else json.dumps(document)
        try:
            with contextlib.closing(http.client.HTTPConnection(address, timeout=SECONDS)) as connection:
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                reply = connection.getresponse()
                answer = json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TpuwatchError(
                f"the simulator in {self.directory} does not answer at {address} ({error}); "
                "start one with `tpuwatch sim`"
            ) from error
        if not isinstance(answer, dict):
            raise TpuwatchError(f"some other program answers at {address}; start the simulator again")
        if reply.status != http.client.OK:
            told = str(answer.get("error", reply.status))
            raise (ConfigError if reply.status == http.client.BAD_REQUEST else TpuwatchError)(told)
        return answer
