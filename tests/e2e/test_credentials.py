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
from tpuwatch.sim.cloud.metadata_pages import Account, Pages
from tpuwatch.sim.cloud.metadata_server import MetadataServer
from tpuwatch.sim.cloud.server import CloudServer
from tpuwatch.sim.cloud.world import SimNode, World

# What could lead a client to credentials, proxies or settings of the machine that the tests run on.
FOREIGN = ("GOOGLE_", "CLOUDSDK_", "GCE_", "GRPC_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_GCE_CHECK")


class Site:
    """A cloud that speaks TLS and demands tokens, a metadata server that gives them out, and a process that asks."""

    def __init__(self, directory: Path, account: Account | None) -> None:
        self.world = World(ManualClock())
        self.world.tokens = {}
        node = self.world.add(SimNode(PROJECT, ZONE, "train-1"))
        self.certificates = make_certificates(directory)
        self.server = CloudServer(self.world, tls=self.certificates.server())
        self.metadata = MetadataServer(self.world, Pages(self.world, node.path, account=account))
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
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(tmp_path, getattr(request, "param", Account()))
    yield made
    made.close()


def test_a_token_of_the_metadata_server_opens_the_api_over_tls(site: Site) -> None:
    site.start()
    told = site.ask()
    assert told == {"problem": None, "detail": "", "states": {"train-1": "READY"}, "counts": {"ListNodes OK": 1}}
    assert site.world.tokens  # one was given out, and nothing is answered without
    assert [(call.method, call.code) for call in site.world.calls if call.service] == [("ListNodes", "OK")]


def test_a_token_that_is_revoked_is_replaced_by_the_next_ask(site: Site) -> None:
    site.start()
    assert site.ask()["problem"] is None
    assert site.world.tokens is not None
    site.world.tokens.clear()
    told = site.ask()
    assert told["problem"] == "credentials"
    assert "gcloud auth application-default login" in told["detail"]
    assert told["states"] == {"train-1": "READY"}  # what was last known
    told = site.ask()
    assert told["problem"] is None
    assert told["counts"] == {"ListNodes OK": 2, "ListNodes UNAUTHENTICATED": 1}


@pytest.mark.parametrize("site", [Account(token_seconds=0)], indirect=True)
def test_expired_credentials(site: Site) -> None:
    site.start()
    told = site.ask()
    assert told["problem"] == "credentials"
    assert told["counts"] == {"ListNodes UNAUTHENTICATED": 1}


@pytest.mark.parametrize("site", [None], indirect=True)
def test_a_vm_without_a_service_account(site: Site) -> None:
    site.start()
    told = site.ask()
    assert told["problem"] == "credentials"
    assert "attach a service account" in told["detail"]
    assert told["counts"] == {"ListNodes UNAUTHENTICATED": 1}


def test_no_credentials_at_all(site: Site) -> None:
    site.start(NO_GCE_CHECK="true")
    told = site.ask()
    assert told["problem"] == "credentials"
    assert "GOOGLE_APPLICATION_CREDENTIALS" in told["detail"]
    assert told["counts"] == {"ListNodes UNAUTHENTICATED": 1}
    assert not site.world.calls


def test_a_key_file_that_is_not_there(site: Site) -> None:
    site.start(GOOGLE_APPLICATION_CREDENTIALS=str(site.directory / "missing.json"))
    told = site.ask()
    assert told["problem"] == "credentials"
    assert "missing.json" in told["detail"]


def test_a_metadata_server_that_hangs_costs_the_deadline(site: Site) -> None:
    site.world.faults.set(InjectedFault(method="metadata", black_hole=True))
    site.start(seconds=0.5)
    told = site.ask()
    assert told["problem"] == "timeout"
    assert "issues access tokens" in told["detail"]
    assert site.metadata.address in told["detail"]
    assert told["counts"] == {"ListNodes DEADLINE_EXCEEDED": 1}


def test_a_metadata_server_that_hangs_is_not_taken_for_none(site: Site) -> None:
    site.world.faults.set(InjectedFault(method="metadata", black_hole=True))
    site.start(GCE_METADATA_TIMEOUT="1", GCE_METADATA_DETECT_RETRIES="2")  # of Google's library, within our deadline
    told = site.ask()
    assert told["problem"] == "timeout"
    assert "issues access tokens" in told["detail"]
    assert "did not answer in time" in told["detail"]


def test_a_token_server_that_answers_something_else(site: Site) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 2\r\n\r\n{}")

    with listening(answer) as port:
        site.start(GCE_METADATA_HOST=f"127.0.0.1:{port}", GCE_METADATA_IP=f"127.0.0.1:{port}")
        told = site.ask()
    assert told["problem"] == "credentials"
    assert "the server that should issue access tokens gives none (KeyError)" in told["detail"]


def test_a_missing_scope_and_a_disabled_api(site: Site) -> None:
    site.start()
    site.world.faults.set(
        InjectedFault("ListNodes", "PERMISSION_DENIED", reason="ACCESS_TOKEN_SCOPE_INSUFFICIENT", times=1)
    )
    told = site.ask()
    assert told["problem"] == "scope"
    assert "https://www.googleapis.com/auth/cloud-platform" in told["detail"]
    site.world.faults.set(InjectedFault("ListNodes", "PERMISSION_DENIED", reason="SERVICE_DISABLED", times=1))
    told = site.ask()
    assert told["problem"] == "disabled"
    assert "gcloud services enable tpu.googleapis.com --project=lab" in told["detail"]
    assert site.ask()["problem"] is None


def test_an_authority_that_is_not_trusted(site: Site) -> None:
    other = site.directory / "other"
    other.mkdir()
    site.start(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(make_certificates(other).authority))
    told = site.ask()
    assert told["problem"] == "foreign"
    assert "certificate" in told["detail"]


def test_a_port_where_nobody_listens(site: Site) -> None:
    site.start()
    site.server.stop()
    told = site.ask()
    assert told["problem"] == "unreachable"
    assert f"localhost:{site.server.port}" in told["detail"]
