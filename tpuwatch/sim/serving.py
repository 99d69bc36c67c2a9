"""HTTP on this machine, as the parts of a simulator serve it: a thread for each connection, and one end to all."""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

POLL_SECONDS: Final = 0.05  # how soon `close` is noticed

_log = logging.getLogger(__name__)


class LocalServer(socketserver.TCPServer):
    """Serves at most so many connections at a time, each from a thread of its own."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        most: int,
        busy: bytes = b"",
    ) -> None:
        """Binds the address at once (port 0: any free one), serves after `start`. Raises OSError.

        `name` is for threads and the log. When there are `most` connections, a new one is sent `busy` and closed.
        """
        self.name = name
        self.stopping = threading.Event()  # set by `close`: a handler that waits ends
        self._most = most
        self._busy = busy
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__((host, port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), name=name, daemon=True)

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut what is open; returns within moments."""
        self.stopping.set()
        if self._thread.ident is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._lock:
            threads = list(self._open.values())
            for connection in self._open:
                with contextlib.suppress(OSError):  # it is gone already
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection in a thread of its own, or turn it away."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name=f"{self.name}-request", daemon=True
        )
        with self._lock:
            admitted = len(self._open) < self._most
            if admitted:
                self._open[request] = thread
                thread.start()
        if not admitted:
            with contextlib.suppress(OSError):  # it has left
                request.settimeout(0)
                request.send(self._busy)
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the base class calls it so)
        """A connection could not be taken; the caller closes it."""
        _log.exception("%s failed to take a connection.", self.name)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError as error:  # the client went away or was too slow, or `close` cut it
            _log.debug("A connection to %s ended early: %s", self.name, error)
        except Exception:  # noqa: BLE001 (one connection's failure stays its own)
            _log.exception("%s failed to answer a request.", self.name)
        finally:
            with self._lock:
                del self._open[request]
            self.shutdown_request(request)
