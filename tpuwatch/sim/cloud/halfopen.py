"""A server that takes connections and never says a word: what a half-dead machine or a bad firewall looks like."""

from __future__ import annotations

import socket
from typing import Final

BACKLOG: Final = 128  # connections; further ones are not even accepted


class HalfOpenServer:
    """Listens on 127.0.0.1. The kernel completes the handshake; nobody ever reads or writes, so no thread is needed."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self.port: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Reset the connections and stop listening."""
        self._socket.close()
