"""A metadata server on loopback for one worker of a simulated node, as Compute Engine's own behaves.

Clients find it by the environment variables GCE_METADATA_HOST and GCE_METADATA_IP. Every request needs the header
`Metadata-Flavor: Google`, and every reply carries it. Connections are closed after one reply, and their number is
bounded.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING, Final

from tpuwatch.sim.cloud.metadata_pages import Page, Pages, Query
from tpuwatch.sim.cloud.responses import http_status
from tpuwatch.sim.serving import LocalServer, OneRequestHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.cloud.faults import InjectedFault
    from tpuwatch.sim.cloud.world import World

FLAVOR: Final = "Metadata-Flavor"
MAX_CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 10.0  # for a client to send its request
CHECK_SECONDS: Final = 0.1  # between two checks of a waiting request for changes and a disconnect
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_PORTAL: Final = Page(200, b"<!DOCTYPE html><title>Sign in</title><p>Sign in to the network.\n", "text/html")


class MetadataServer(LocalServer):
    """Serves `pages` over HTTP, with the world's faults of the method "metadata". Its address is the value for
    GCE_METADATA_HOST and GCE_METADATA_IP.

    A fault that drops "Metadata-Flavor" makes it a web server of another kind; names of values leave those out.
    """

    def __init__(self, world: World, pages: Pages) -> None:
        """Binds a free port of this host at once; requests are answered after `start`. Raises OSError."""
        self.world = world
        self.pages = pages
        super().__init__(_Handler, "sim-metadata", max_connections=MAX_CONNECTIONS, busy=_BUSY)


class _Handler(OneRequestHandler):
    """Answers as the metadata server does."""

    server: MetadataServer
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:  # noqa: N802 (the base class calls it so)
        """Answer with a value, a listing, an error, or what the fault that strikes makes of it."""
        fault = self.server.world.faults.take("metadata", self.server.pages.node)
        if fault is None:
            self._send(self._page())
        elif fault.black_hole:
            self._swallow()
        else:
            self._wait(fault.latency_seconds, lambda: False)
            self._send_faulty(fault)

    def _page(self, drop: tuple[str, ...] = ()) -> Page:
        if self.headers.get(FLAVOR) != "Google":
            return Page(403, b"Missing Metadata-Flavor:Google header.\n")
        query = Query.parse(self.path)
        pages = self.server.pages
        page = pages.page(query, drop)
        if query.waits and page.status in (200, 503):  # 503 is what there is while nothing has been announced
            known = query.last_etag or page.etag
            self._wait(query.timeout_seconds, lambda: pages.page(query, drop).etag != known)
            page = pages.page(query, drop)
        return page

    def _wait(self, seconds: float, happened: Callable[[], bool]) -> None:
        """Wait until something has happened, at most so long. Raises ConnectionAbortedError if the client has left."""
        end = time.monotonic() + seconds
        while not happened() and (left := end - time.monotonic()) > 0:
            if self.server.stopping.wait(min(left, CHECK_SECONDS)) or self._is_abandoned():
                raise ConnectionAbortedError("the client has left")

    def _is_abandoned(self) -> bool:
        readable = select.poll()  # takes any number of open files
        readable.register(self.connection, select.POLLIN)
        return bool(readable.poll(0) and not self.connection.recv(1, socket.MSG_PEEK))

    def _swallow(self) -> None:
        """Take what comes and never answer, until the client leaves or `close` cuts the connection."""
        self.connection.settimeout(None)
        while self.connection.recv(4096):
            pass

    def _send_faulty(self, fault: InjectedFault) -> None:
        if fault.code and fault.code != "OK":
            page = Page(http_status(fault.code), (fault.message or fault.code).encode())
            self._send(page, fault)
        elif FLAVOR in fault.drop:
            self._send(_PORTAL, fault)
        else:
            self._send(self._page(fault.drop), fault)

    def _send(self, page: Page, fault: InjectedFault | None = None) -> None:
        self.send_response(page.status)
        if fault is None or FLAVOR not in fault.drop:
            self.send_header(FLAVOR, "Google")
        if fault is not None and fault.retry_after_seconds is not None:
            self.send_header("Retry-After", f"{fault.retry_after_seconds:.0f}")
        if page.location:
            self.send_header("Location", f"http://{self.server.address}{page.location}")
        self.send_header("Content-Type", page.content_type)
        self.send_header("ETag", page.etag)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(page.body)

    def version_string(self) -> str:
        """The Server header."""
        return "Metadata Server for VM"
