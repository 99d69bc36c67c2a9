from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tpuwatch.sim.control import MAX_BODY_BYTES, ControlServer
from tpuwatch.sim.scenario.actions import ScenarioAction
from tpuwatch.sim.scenario.executor import ActionFailedError

DEADLINE = 60.0


class Site:
    """A control endpoint whose actions are only written down."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.server = ControlServer(self._do, lambda: {"time": 7})
        self.server.start()

    def _do(self, action: ScenarioAction) -> str:
        if getattr(action, "node", "") == "nobody":
            raise ActionFailedError("there is no node nobody")
        self.done.append(action.model_dump(exclude_defaults=True))
        return "done indeed"

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and document; a body that is not bytes goes as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.server.address, timeout=DEADLINE)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            reply = connection.getresponse()
            assert reply.headers["Content-Type"] == "application/json"
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.close()


def test_the_state(site: Site) -> None:
    assert site.ask("GET", "/state") == (200, {"time": 7})
    assert site.ask("GET", "/state?x=1") == (200, {"time": 7})


@pytest.mark.parametrize(
    ("method", "path", "body", "action"),
    [
        ("POST", "/fault", {"method": "ListNodes", "code": "UNAVAILABLE"}, {"do": "fault", "code": "UNAVAILABLE"}),
        ("POST", "/fault", {"drop": ["health"], "share": 0.5}, {"do": "fault", "drop": ("health",), "share": 0.5}),
        ("DELETE", "/fault", None, {"do": "clear"}),
        ("DELETE", "/fault?method=metadata", None, {"do": "clear", "method": "metadata"}),
        ("POST", "/node/train-1", {"do": "hang"}, {"do": "hang", "node": "train-1"}),
        ("POST", "/node/train-%2A", {"do": "lie"}, {"do": "lie", "node": "train-*"}),
        (
            "POST",
            "/node/a",
            {"do": "workload", "phase": "stuck", "worker": 2},
            {"do": "workload", "node": "a", "phase": "stuck", "worker": 2},
        ),
        ("POST", "/node/a", {"do": "set", "state": 42}, {"do": "set", "node": "a", "state": 42}),
        ("POST", "/launch", {"launch": "healthy"}, {"do": "launch", "launch": "healthy"}),
        (
            "POST",
            "/queued-resource/q-1",
            {"state": "ACTIVE"},
            {"do": "queued_resource", "name": "q-1", "state": "ACTIVE"},
        ),
        ("POST", "/fault", {"omit": ["train-*"]}, {"do": "fault", "omit": ("train-*",)}),
    ],
)
def test_actions_arrive(site: Site, method: str, path: str, body: object, action: dict[str, Any]) -> None:
    assert site.ask(method, path, body) == (200, {"done": "done indeed"})
    (done,) = site.done
    assert {**done, **action} == done


@pytest.mark.parametrize(
    ("path", "body", "status", "answer"),
    [
        ("/fault", {"cod": "X"}, 400, "cod is not a key of 'fault'; did you mean code?"),
        ("/fault", {"do": "hang"}, 400, "do has no place here; leave it out"),
        ("/fault", {"at": 3}, 400, "at has no place here"),
        ("/fault", b"{", 400, "the body is not JSON: "),
        ("/fault", b"[" * 20_000, 400, "the body is not JSON: "),
        ("/fault", b"\xff", 400, "the body is not JSON: "),
        ("/fault", [1], 400, "the body must be one JSON object"),
        (
            "/node/a",
            {"do": "hagn"},
            400,
            "do must be one of hang, lie, preempt, maintain, vanish, restore, workload, s",
        ),
        ("/node/a", {"do": "fault"}, 400, "do must be one of"),
        ("/node/a", {"do": "hang", "node": "b"}, 400, "node has no place here"),
        ("/node/", {"do": "hang"}, 400, 'node cannot be ""; give a node\'s name'),
        ("/queued-resource/q-1", {"state": "WAITING"}, 400, "state cannot be"),
        ("/queued-resource/q-1", {}, 400, "state"),
        ("/node/nobody", {"do": "hang"}, 409, "there is no node nobody"),
        ("/lanch", {}, 404, "there is no POST /lanch; there are GET /state, POST /fault"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(
    site: Site, path: str, body: object, status: int, answer: str
) -> None:
    code, document = site.ask("POST", path, body)
    assert code == status
    assert answer in document["error"]
    assert site.done == []


def test_a_page_in_a_browser_cannot_send_forms(site: Site) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, document = site.ask("POST", "/node/a", {"do": "hang"}, **{"Content-Type": kind})
        assert (status, "application/json" in document["error"]) == (415, True)
    assert site.done == []


def test_other_methods_and_paths_do_nothing(site: Site) -> None:
    assert site.ask("GET", "/fault")[0] == 404
    assert site.ask("DELETE", "/node/a")[0] == 404
    connection = http.client.HTTPConnection(site.server.address, timeout=DEADLINE)
    connection.request("PUT", "/fault", b"{}")
    assert connection.getresponse().status == 501
    connection.close()
    assert site.done == []


def test_a_body_is_bounded(site: Site) -> None:
    assert site.ask("POST", "/fault", b" " * (MAX_BODY_BYTES + 1))[0] == 400
    assert site.ask("POST", "/fault", b"{}", **{"Content-Length": "-1"})[0] == 400
    assert site.done == []


def test_closing_ends_at_once_though_clients_are_slow(site: Site) -> None:
    host, _, port = site.server.address.partition(":")
    with socket.create_connection((host, int(port)), DEADLINE) as slow:
        slow.sendall(b"POST /fault HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        assert site.ask("GET", "/state")[0] == 200  # it holds up nobody else
        site.server.close()
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), DEADLINE)
