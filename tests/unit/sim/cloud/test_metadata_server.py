"""The simulated metadata server over HTTP, asked by plain clients and by google-auth."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.metadata_pages import ROOT, Account, Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.world import World

DEADLINE = 60.0  # of each socket operation: long, for none should need it
GOOGLE = {"Metadata-Flavor": "Google"}


class Site:
    """A running metadata server of a world with one node."""

    def __init__(self) -> None:
        self.world = World(ManualClock())
        self.node = self.world.add(SimNode("lab", "us-east5-a", "train-1"))
        self.pages = Pages(self.world, self.node.path)
        self.server = MetadataServer(self.world, self.pages)
        self.server.start()

    def connection(self, timeout: float = DEADLINE) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.server.address, timeout=timeout)

    def get(self, path: str, headers: dict[str, str] | None = None, timeout: float = DEADLINE) -> Any:
        connection = self.connection(timeout)
        try:
            connection.request("GET", path, headers=GOOGLE if headers is None else headers)
            response = connection.getresponse()
            response.text = response.read().decode()  # type: ignore[attr-defined]
            return response
        finally:
            connection.close()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    try:
        yield running
    finally:
        running.server.close()


def test_the_header_is_needed_and_sent(site: Site) -> None:
    root = site.get("/")
    assert (root.status, root.text) == (200, "computeMetadata/\n")
    assert root.headers["Metadata-Flavor"] == "Google"
    for headers in ({}, {"Metadata-Flavor": "Other"}):
        refused = site.get(f"{ROOT}instance/name", headers)
        assert refused.status == 403
        assert "t1v-n" not in refused.text
    moved = site.get(f"{ROOT}instance")
    assert (moved.status, moved.headers["Location"]) == (301, f"http://{site.server.address}{ROOT}instance/")


def until(condition: Callable[[], bool]) -> None:
    """Return once the server's threads have come so far."""
    pause = threading.Event()
    for _ in range(12_000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not come to that")


def waiting(ask: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Ask in a thread; the list holds the answer, or the exception, once the thread has ended."""
    answers: list[Any] = []

    def run() -> None:
        try:
            answers.append(ask())
        except (OSError, http.client.HTTPException) as error:
            answers.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, answers


def test_wait_for_change_sees_what_nobody_reported_and_an_announcement(site: Site) -> None:
    path = f"{ROOT}instance/upcoming-maintenance?alt=json&wait_for_change=true"
    etag = site.get(f"{ROOT}instance/upcoming-maintenance?alt=json").headers["ETag"]
    thread, answers = waiting(lambda: site.get(f"{path}&last_etag={etag}"))
    site.world.maintain(site.node, in_seconds=600)
    thread.join(DEADLINE)
    assert answers[0].status == 200
    assert json.loads(answers[0].text)["maintenance_status"] == "PENDING"


def test_wait_for_change_gives_back_the_same_after_its_time(site: Site) -> None:
    path = f"{ROOT}instance/maintenance-event"
    etag = site.get(path).headers["ETag"]
    same = site.get(f"{path}?wait_for_change=true&timeout_sec=0&last_etag={etag}")
    assert (same.status, same.text, same.headers["ETag"]) == (200, "NONE", etag)
    assert site.get(f"{path}?wait_for_change=true&timeout_sec=1").text == "NONE"


def test_close_releases_who_waits_and_who_is_in_a_black_hole() -> None:
    site = Site()
    waits = f"{ROOT}instance/maintenance-event?wait_for_change=true"
    site.world.faults.set(InjectedFault(method="metadata", black_hole=True, times=1))
    connections = []
    for path in (f"{ROOT}instance/name", waits):
        connection = site.connection()
        connection.request("GET", path, headers=GOOGLE)
        connections.append(connection)
        until(lambda: len(site.server._open) == len(connections) and not site.world.faults.active)
    site.server.close()
    for connection in connections:
        with pytest.raises((OSError, http.client.HTTPException)):
            connection.getresponse()
        connection.close()
    # One that was in the middle of a reply ends a moment after its connection.
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("sim-metadata")])
    with pytest.raises(OSError, match="refused"):
        site.get("/")


def test_something_else_may_answer(site: Site) -> None:
    site.world.faults.set(InjectedFault(method="metadata", drop=("Metadata-Flavor",)))
    reply = site.get(f"{ROOT}instance/name")
    assert reply.status == 200
    assert reply.headers["Metadata-Flavor"] is None
    assert reply.text.startswith("<!DOCTYPE html>")
    site.world.faults.clear()
    site.world.faults.set(InjectedFault(method="metadata", drop=("tpu-env",), latency_seconds=0.01))
    assert site.get(f"{ROOT}instance/attributes/tpu-env").status == 404
    assert site.get(f"{ROOT}instance/attributes/accelerator-type").status == 200


GOOGLE_AUTH = """
import google.auth, google.auth.exceptions, google.auth.transport.requests as transport
try:
    credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(transport.Request())
except google.auth.exceptions.GoogleAuthError as error:
    print(type(error).__name__)
else:
    print(type(credentials).__module__, project, credentials.service_account_email, credentials.token)
"""


def google_auth(site: Site) -> list[str]:
    """What google-auth makes of the server, in a process that has it as its metadata server."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GCE_", "CLOUDSDK"))},
        "GCE_METADATA_HOST": site.server.address,
        "GCE_METADATA_IP": site.server.address,
        "CLOUDSDK_CONFIG": "/nonexistent",
        "PATH": "/nonexistent",  # no gcloud
    }
    done = subprocess.run(
        [sys.executable, "-c", GOOGLE_AUTH], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_google_auth_gets_its_token_here(site: Site) -> None:
    site.world.tokens = {}
    module, project, email, token = google_auth(site)
    assert module == "google.auth.compute_engine.credentials"
    assert (project, email) == ("lab", Account().email)
    assert token in site.world.tokens
