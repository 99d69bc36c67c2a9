"""Tests that go the whole way of Application Default Credentials: token of the metadata server, TLS, checked tokens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standins.certificates import make_certificates
from tests.standins.runtime_server import listening
from tests.unit.sim.cloud.servers import PROJECT, ZONE
from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.sim.cloud.metadata_pages import Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import World

# What could lead a client to credentials, proxies or settings of the machine that the tests run on.
FOREIGN = ("GOOGLE_", "CLOUDSDK_", "GCE_", "GRPC_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_GCE_CHECK")


class Site:
    """A cloud that speaks TLS and demands tokens, a metadata server that gives them out, and a process that asks."""

    def __init__(self, directory: Path) -> None:
        self.world = World(ManualClock())
        self.world.tokens = {}
        node = self.world.add(SimNode(PROJECT, ZONE, "train-1"))
        self.certificates = make_certificates(directory)
        self.server = CloudServer(self.world, tls=self.certificates.server())
        self.metadata = MetadataServer(self.world, Pages(self.world, node.path))
        self.metadata.start()
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, seconds: float = 30.0, **environment: str) -> None:
        """Start the process that asks; `environment` overrides."""
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(FOREIGN)}
        own = {
            "HOME": str(self.directory),
            "GCE_METADATA_HOST": self.metadata.address,
            "GCE_METADATA_IP": self.metadata.address,
            "GCE_METADATA_DETECT_RETRIES": "1",
            "GCE_METADATA_TIMEOUT": "30",
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.certificates.authority),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.standins.asker", f"localhost:{self.server.port}", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, **own, **environment},
        )

    def ask(self) -> dict[str, Any]:
        """Let it ask once."""
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("ask\n")
        process.stdin.flush()
        return dict(json.loads(process.stdout.readline()))

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)
            assert self.process.returncode == 0
        self.metadata.close()
        self.server.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def test_a_token_of_the_metadata_server_opens_the_api_over_tls(site: Site) -> None:
    site.start()
    answer = site.ask()
    assert answer == {
        "problem": None,
        "detail": "",
        "states": {"us-east5-a/train-1": "READY"},
        "counts": {"GetNode OK": 1},
    }
    assert site.world.tokens  # one was given out, and nothing is answered without
    assert [(call.method, call.code) for call in site.world.calls if call.service] == [("GetNode", "OK")]


def test_a_token_that_is_revoked_is_replaced_by_the_next_ask(site: Site) -> None:
    site.start()
    assert site.ask()["problem"] is None
    assert site.world.tokens is not None
    site.world.tokens.clear()
    answer = site.ask()
    assert answer["problem"] == "credentials"
    assert "gcloud auth application-default login" in answer["detail"]
    assert answer["states"] == {"us-east5-a/train-1": "READY"}  # what was last known
    answer = site.ask()
    assert answer["problem"] is None
    assert answer["counts"] == {"GetNode OK": 2, "GetNode UNAUTHENTICATED": 1}


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NO_GCE_CHECK": "true"}, "GOOGLE_APPLICATION_CREDENTIALS"),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/missing.json"}, "missing.json"),
    ],
    ids=["none at all", "a key file that is not there"],
)
def test_without_credentials_nobody_is_asked(site: Site, environment: dict[str, str], words: str) -> None:
    site.start(**environment)
    answer = site.ask()
    assert answer["problem"] == "credentials"
    assert words in answer["detail"]
    assert answer["counts"] == {"GetNode UNAUTHENTICATED": 1}
    assert not site.world.calls


@pytest.mark.parametrize(
    ("seconds", "environment", "words"),
    [
        (0.5, {}, "127.0.0.1:"),  # the deadline is ours
        (30.0, {"GCE_METADATA_TIMEOUT": "1", "GCE_METADATA_DETECT_RETRIES": "2"}, "did not answer in time"),
    ],
    ids=["longer than the deadline", "until Google's library gives up"],
)
def test_a_metadata_server_that_hangs_is_not_taken_for_none(
    site: Site, seconds: float, environment: dict[str, str], words: str
) -> None:
    site.world.faults.set(InjectedFault(method="metadata", black_hole=True))
    site.start(seconds=seconds, **environment)
    answer = site.ask()
    assert answer["problem"] == "timeout"
    assert "issues access tokens" in answer["detail"]
    assert words in answer["detail"]
    assert answer["counts"] == {"GetNode DEADLINE_EXCEEDED": 1}


def test_a_token_server_that_answers_something_else(site: Site) -> None:
    def reply(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 2\r\n\r\n{}")

    with listening(reply) as port:
        site.start(GCE_METADATA_HOST=f"127.0.0.1:{port}", GCE_METADATA_IP=f"127.0.0.1:{port}")
        answer = site.ask()
    assert answer["problem"] == "credentials"
    assert "the server that should issue access tokens gives none (KeyError)" in answer["detail"]


def test_a_missing_scope(site: Site) -> None:
    site.start()
    site.world.faults.set(
        InjectedFault("*Node*", "PERMISSION_DENIED", reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", times=1)
    )
    answer = site.ask()
    assert answer["problem"] == "scope"
    assert "https://www.googleapis.com/auth/cloud-platform" in answer["detail"]
    assert site.ask()["problem"] is None


def test_an_authority_that_is_not_trusted(site: Site) -> None:
    other = site.directory / "other"
    other.mkdir()
    site.start(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(make_certificates(other).authority))
    answer = site.ask()
    assert answer["problem"] == "foreign"
    assert "certificate" in answer["detail"]


def test_a_port_where_nobody_listens(site: Site) -> None:
    site.start()
    site.server.stop()
    answer = site.ask()
    assert answer["problem"] == "unreachable"
    assert f"localhost:{site.server.port}" in answer["detail"]
