"""Somebody who takes what the webhook sends."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tpuwatch.restart.webhook import Webhook

PATH = "/hook/T0-secret"


class TakenWebhook(Webhook):
    """Has no address: what is sent is given to the test."""

    def __init__(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__("")
        self._take = take

    def send(self, document: Mapping[str, Any]) -> None:
        self._take(document)


class Listener:
    """Answers each POST with the next of `answers`, and then with 200."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.heard: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.arrived = threading.Condition()
        self.endless: threading.Event | None = None  # until it is set an answer goes on, a byte now and then

    def take(self, path: str, body: bytes) -> tuple[int, dict[str, str]]:
        with self.arrived:
            self.asked.append(path)
            answer = self.answers.pop(0) if self.answers else (200, {})
            if answer[0] == 200:
                self.heard.append(json.loads(body))
            self.arrived.notify_all()
            return answer

    def wait(self, count: int) -> None:
        """Until so many requests have come."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.asked) >= count, 30), self.asked


@contextmanager
def listener() -> Iterator[Listener]:
    """One on a port of this machine."""
    found: list[Listener] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code, headers = found[0].take(self.path, body)
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            endless = found[0].endless
            self.send_header("Content-Length", "0" if endless is None else "4096")
            self.end_headers()
            with contextlib.suppress(OSError):
                while endless is not None and not endless.wait(0.01):
                    self.wfile.write(b".")

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.append(Listener(server.server_address[1]))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield found[0]
        finally:
            server.shutdown()
            thread.join()
