"""How the tpuwatch of other nodes are asked: whose certificates count, for which name, and with which token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.core import Reloaded, Tls, read_tokens

if TYPE_CHECKING:
    from tpuwatch.config import PeersConfig


class PeerAccess:
    """Made from [peers]; its files are read when they are first needed, and again when they change. Thread-safe.

    Every method raises ConfigError as long as a file cannot be used.
    """

    def __init__(self, peers: PeersConfig | None = None) -> None:
        self._server_name = peers.server_name if peers else ""
        self._ca_file = peers.ca_file if peers else ""
        self._token_file = peers.token_file if peers else ""
        self._tls: Reloaded[Tls] | None = None
        self._tokens: Reloaded[list[str]] | None = None

    def tls(self) -> Tls:
        """For connections to them."""
        if self._tls is None:
            paths = (Path(self._ca_file),) if self._ca_file else ()
            self._tls = Reloaded(paths, lambda: Tls.trusting(self._ca_file, self._server_name))
        return self._tls.get()

    def headers(self) -> dict[str, str]:
        """With which each request is sent."""
        if not self._token_file:
            return {}
        if self._tokens is None:
            path = Path(self._token_file)
            self._tokens = Reloaded((path,), lambda: read_tokens(path))
        return {"Authorization": f"Bearer {self._tokens.get()[0]}"}
