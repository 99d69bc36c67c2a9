"""Stands in for the tpuwatch of another node, and does what a machine does that dies, for tests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any


def reason(signal: Any) -> dict[str, Any]:
    """One reason of a verdict."""
    return {"signal": signal, "text": "It says so.", "at_epoch": None}


def status(node: str = "train-2", verdict: str = "healthy", action: str = "none", **more: Any) -> dict[str, Any]:
    """What /api/v1/peer tells, as far as it is read."""
    known = {"project": "sim-project", "zone": "us-central2-b", "node": node}
    judged = {
        **known,
        "own": True,
        "since_epoch": None,
        "contradictions": [],
        "missing": [],
        "remedy": [],
        "verdict": verdict,
        "action": action,
        "confidence": "high",
        "summary": "So it is.",
        "judged_epoch": 998.0,
        "reasons": [reason("runtime"), reason("host")],
        **more,
    }
    return {
        "now_epoch": 1000.0,
        "identity": {name: {"value": value, "source": "metadata"} for name, value in known.items()},
        "node": judged,
        "signals": [],
    }


class PeerServer:
    """Answers each request with `reply`: a document, or the bytes of a whole reply. None: it takes it and says nothing.

    `asked` holds the requests.
    """

    def __init__(self) -> None:
        self.reply: Any = status()
        self.asked: list[bytes] = []
        self.arrived = threading.Condition()
        self._held: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._answer(connection)
            except OSError:  # the client has left
                connection.close()

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            piece = connection.recv(4096)
            if not piece:
                connection.close()
                return
            request += piece
        reply = self.reply
        with self.arrived:
            self.asked.append(request)
            self.arrived.notify_all()
        if reply is None:
            self._held.append(connection)
            return
        if not isinstance(reply, bytes):
            reply = http(json.dumps(reply).encode())
        connection.sendall(reply)
        connection.close()

    def wait(self, count: int) -> None:
        """Until so many requests have come."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.asked) >= count, 60), self.asked

    def close(self) -> None:
        """From now on the machine refuses connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        for connection in self._held:
            connection.close()


def http(body: bytes, code: str = "200 OK", **headers: str) -> bytes:
    """The bytes of a reply."""
    head = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {code}\r\n{lines}\r\n".encode() + body


@contextlib.contextmanager
def peer_server() -> Iterator[PeerServer]:
    """One on a port of this machine."""
    server = PeerServer()
    try:
        yield server
    finally:
        server.close()
