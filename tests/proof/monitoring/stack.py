"""Prometheus and Alertmanager with the rules and routes that are shipped, at short intervals, and who gets messages."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml

from tests.e2e.daemon_process import get, wait_for
from tests.paths import ROOT

PROGRAMS: Final = ("prometheus", "prometheus-alertmanager")
EVERY: Final = "1s"  # scrapes, evaluations, messages
WINDOW: Final = "8s"  # in place of minutes and hours
TARGETS: Final = "targets.json"  # in the directory of both
SHORT: Final = "> 3"  # seconds, in place of minutes and hours
_RULES: Final = ROOT / "deploy" / "prometheus" / "tpuwatch.rules.yml"
_ROUTES: Final = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"

Labels = dict[str, str]


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def replaced(directory: Path) -> Iterator[None]:
    """An empty file is in the place of the directory."""
    away = directory.with_suffix(".away")
    directory.rename(away)
    directory.touch()
    yield
    directory.unlink()
    away.rename(directory)


class Inbox:
    """Takes what Alertmanager sends: the latest status of each alert, and when it became so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alerts: dict[frozenset[tuple[str, str]], list[tuple[float, str]]] = {}
        self.url = ""

    def take(self, message: dict[str, Any]) -> None:
        now = time.monotonic()
        with self._lock:
            for alert in message["alerts"]:
                seen = self._alerts.setdefault(frozenset(alert["labels"].items()), [])
                if not seen or seen[-1][1] != alert["status"]:
                    seen.append((now, alert["status"]))

    def became(self, status: str, labels: Labels, since: float) -> float | None:
        """When the first alert with these labels and perhaps more fired, or the last ended; None if that was before."""
        wanted = set(labels.items())
        with self._lock:
            latest = [seen[-1] for found, seen in self._alerts.items() if wanted <= found]
        times = [at for at, now in latest if now == status and at >= since]
        if status == "firing":
            return min(times, default=None)
        return max(times) if times and all(now == status for _, now in latest) else None

    def firing(self) -> list[Labels]:
        """All that has fired and is not over."""
        with self._lock:
            return [dict(found) for found, seen in self._alerts.items() if seen[-1][1] == "firing"]

    def heard(self, labels: Labels) -> bool:
        """Whether there was ever a message about it."""
        with self._lock:
            return any(set(labels.items()) <= found for found in self._alerts)

    @contextmanager
    def open(self) -> Iterator[Inbox]:
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_address[1]}/"
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def hastened_rules() -> dict[str, Any]:
    """The rules, with seconds in place of minutes and hours."""
    document: dict[str, Any] = yaml.safe_load(_RULES.read_text())
    for group in document["groups"]:
        group["interval"] = EVERY
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[\d+[mh]\]", f"[{WINDOW}]", rule["expr"])
            rule["expr"] = re.sub(r"> (?:300|3600)\b", SHORT, rule["expr"])
            for waits in ("for", "keep_firing_for"):
                if waits in rule:
                    rule[waits] = EVERY
    return document


def hastened_routes(url: str) -> dict[str, Any]:
    """The routes, without waits; what a program gets goes to `url`, and the people's messages to nobody."""
    document: dict[str, Any] = yaml.safe_load(_ROUTES.read_text())
    del document["global"]["slack_api_url_file"]
    document["receivers"] = [{"name": receiver["name"]} for receiver in document["receivers"]]
    document["receivers"][0]["webhook_configs"] = [{"url": url, "send_resolved": True}]
    assert document["receivers"][0]["name"] == "webhook"
    document["route"] |= {"group_wait": "0s", "group_interval": EVERY}
    return document


class Stack:
    """Both programs. `discovery` are the addresses of daemons that say where all daemons are; others are in TARGETS."""

    def __init__(self, root: Path, inbox: Inbox) -> None:
        self.inbox = inbox
        self._root = root
        self._port = free_port()

    @contextmanager
    def running(self, discovery: Sequence[str]) -> Iterator[Stack]:
        """Start them, and wait until both are ready."""
        alertmanager = free_port()
        self._write("rules.yml", hastened_rules())
        self._write("alertmanager.yml", hastened_routes(self.inbox.url))
        self._write(
            "prometheus.yml",
            {
                "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
                "rule_files": ["rules.yml"],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]},
                "scrape_configs": [
                    {
                        "job_name": "tpuwatch",
                        "honor_labels": True,
                        "http_sd_configs": [
                            {"url": f"http://{address}/api/v1/targets", "refresh_interval": EVERY}
                            for address in discovery
                        ],
                        "file_sd_configs": [{"files": [TARGETS], "refresh_interval": EVERY}],
                    }
                ],
            },
        )
        with ExitStack() as started:
            for name, port, flags in (
                (
                    "prometheus-alertmanager",
                    alertmanager,
                    ("--config.file=alertmanager.yml", "--storage.path=am", "--cluster.listen-address="),
                ),
                ("prometheus", self._port, ("--config.file=prometheus.yml", "--storage.tsdb.path=tsdb")),
            ):
                started.enter_context(self._program(name, port, flags))
            yield self

    def query(self, text: str, at: float | None = None) -> list[dict[str, Any]]:
        """The result of a query now, or at a time in seconds since the epoch."""
        return self._ask("query", query=text, **({} if at is None else {"time": at}))

    def range(self, text: str, since: float, until: float, step: float) -> list[dict[str, Any]]:
        """The result of a query over a time, in seconds since the epoch; series without a point in it are not in it."""
        return self._ask("query_range", query=text, start=since, end=until, step=step)

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that fire now, with their labels and annotations."""
        status, body = get(f"127.0.0.1:{self._port}", "/api/v1/alerts")
        assert status == 200, body
        found: list[dict[str, Any]] = json.loads(body)["data"]["alerts"]
        return [one for one in found if one["state"] == "firing"]

    def _ask(self, what: str, **given: Any) -> list[dict[str, Any]]:
        status, body = get(f"127.0.0.1:{self._port}", f"/api/v1/{what}?{urlencode(given)}")
        assert status == 200, f"{given['query']}: {body}"
        found: list[dict[str, Any]] = json.loads(body)["data"]["result"]
        return found

    @contextmanager
    def _program(self, name: str, port: int, flags: Sequence[str]) -> Iterator[None]:
        command = [name, f"--web.listen-address=127.0.0.1:{port}", *flags]
        log = self._root / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._root)
        try:

            def is_ready() -> bool:
                assert process.poll() is None, log.read_text()
                return get(f"127.0.0.1:{port}", "/-/ready")[0] == 200

            wait_for(is_ready, f"{name} to be ready", 30.0)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _write(self, name: str, document: dict[str, Any]) -> None:
        (self._root / name).write_text(yaml.safe_dump(document, sort_keys=False))
