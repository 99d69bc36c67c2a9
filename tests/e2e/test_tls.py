"""Two daemons that ask each other over TLS with a token, and the commands beside them. Real processes, real files."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import SECONDS, get, wait_for
from tests.paths import ROOT
from tests.proof.monitoring.stack import free_port
from tests.standins.certificates import Authority
from tests.standins.simulated import NOBODY, ZONE, Site, simulated

TOKEN, NEXT = "an-example-token-of-ours", "the-example-that-is-next"
NAME = "tpuwatch.example.org"  # in the certificate that all nodes share


class SecureDaemon(DaemonInCloud):
    """A daemon that serves over TLS and wants a token."""

    def __init__(self, root: Path, site: Site, authority: Authority, **more: Any) -> None:
        root.mkdir()
        self.token_file = write_token(root / "token", TOKEN)
        self.sent = TOKEN
        self.files = authority.issue(NAME, to=root.name)
        self.trust = ssl.create_default_context(cafile=authority.file)
        self.trust.check_hostname = False  # it is asked at its address
        super().__init__(root, site, **more)

    def __enter__(self) -> SecureDaemon:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def watch(self, **changes: dict[str, Any]) -> None:
        super().watch(**changes)
        files = {"certificate_file": self.files.certificate, "key_file": self.files.key, "token_file": self.token_file}
        lines = "".join(f'{key} = "{path}"\n' for key, path in files.items())
        self.config.write_text(self.config.read_text().replace("[http]\n", f"[http]\n{lines}"))

    def ask(self, path: str, address: str = "") -> tuple[int, str]:
        connection = http.client.HTTPSConnection(address or self.address, timeout=SECONDS, context=self.trust)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.sent}"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


def write_token(path: Path, *tokens: str) -> Path:
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text("".join(f"{token}\n" for token in tokens))
    return new.replace(path)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated(tmp_path / "sim") as site:
        yield site


def peers(inside: DaemonInCloud, authority: Authority, token: Path) -> dict[str, dict[str, Any]]:
    """What a watcher needs to ask it."""
    how = {"tls": True, "ca_file": str(authority.file), "server_name": NAME, "token_file": str(token)}
    return {
        "cloud": {"nodes": ["train-1"]},
        "runtime": {"enabled": False},
        "peers": {"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 5.0, **how},
        "peers.addresses": {"train-1": f"https://{inside.address}"},
    }


def target(outside: DaemonInCloud, inside: DaemonInCloud) -> bool:
    """Whether the one says where and how to scrape the other."""
    (labels,) = [one["labels"] for one in outside.api("targets") if one["targets"] == [inside.address]] or [{}]
    return labels.get("__scheme__") == "https"


@contextmanager
def two_daemons(site: Site, tmp_path: Path, authority: Authority) -> Iterator[tuple[SecureDaemon, SecureDaemon, Path]]:
    """One on a node, one elsewhere that watches it, and the file with the token that the second sends."""
    nowhere = {"GCE_METADATA_HOST": NOBODY, "GCE_METADATA_IP": NOBODY}
    with (
        SecureDaemon(tmp_path / "inside", site, authority) as inside,
        SecureDaemon(tmp_path / "outside", site, authority, environ=nowhere) as outside,
    ):
        inside.start()
        sent = write_token(tmp_path / "sent", TOKEN)
        outside.watch(**peers(inside, authority, sent))
        outside.start()
        yield inside, outside, sent


def test_peers_commands_and_scrapers_over_tls(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    up = f'tpuwatch_peer_up{{node="train-1",zone="{ZONE}"}}'
    with two_daemons(site, tmp_path, authority) as (inside, outside, sent):
        wait_for(lambda: outside.counted(up) == 1, "its answer")
        assert inside.metric("tpuwatch_http_certificate_expiry_timestamp_seconds") > 1.7e9
        wait_for(lambda: target(outside, inside), "its address")

        status, said = inside.command("status", "--json")
        assert (status in (0, 1), json.loads(said)["version"] != "") == (True, True)
        assert TOKEN not in said + inside.said() + outside.said()

        # Another token is in force at the one; the other learns it later.
        write_token(inside.token_file, NEXT)
        inside.sent = NEXT
        wait_for(lambda: outside.counted(up) == 0, "its refusal")
        assert outside.counted('tpuwatch_peers{state="silent"}') == 0  # the machine is there
        write_token(sent, NEXT)
        wait_for(lambda: outside.counted(up) == 1, "its answer to the new token")

        # And another certificate, of an authority that the other does not know.
        stranger = Authority(tmp_path / "stranger").issue(NAME)
        inside.files.key.write_bytes(stranger.key.read_bytes())
        inside.files.certificate.write_bytes(stranger.certificate.read_bytes())
        wait_for(lambda: outside.counted(up) == 0, "its refusal")
        authority.issue(NAME, to="inside")
        wait_for(lambda: outside.counted(up) == 1, "its answer with the new certificate")

        assert "Traceback" not in inside.said() + outside.said()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_scrapes_and_discovers_as_documented(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with two_daemons(site, tmp_path, authority) as (inside, outside, sent):
        wait_for(lambda: target(outside, inside), "its address")
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "alerts.md").read_text(), re.DOTALL)
        (shown,) = [block for block in blocks if "credentials_file" in block]
        for word, real in {
            "/etc/prometheus/tpuwatch/ca.pem": authority.file,
            "/etc/prometheus/tpuwatch/token": sent,
            "tpuwatch.example.org": NAME,
            "watcher:9478": outside.address,
        }.items():
            assert word in shown
            shown = shown.replace(word, str(real))
        (tmp_path / "prometheus.yml").write_text(f"global:\n  scrape_interval: 1s\n{shown}")
        port = free_port()
        with running_prometheus(tmp_path, port):
            wanted = {inside.address: "1", outside.address: "1"}
            wait_for(lambda: up(port) == wanted, "both to be scraped")


def up(port: int) -> dict[str, str]:
    """What Prometheus says of each instance."""
    status, body = get(f"127.0.0.1:{port}", "/api/v1/query?query=up")
    series = json.loads(body)["data"]["result"] if status == http.client.OK else []
    return {one["metric"]["instance"]: one["value"][1] for one in series}


@contextmanager
def running_prometheus(directory: Path, port: int) -> Iterator[None]:
    """On loopback alone, with the prometheus.yml of the directory."""
    given = ["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *given], cwd=directory, stdout=log, stderr=log)  # noqa: S607 # on PATH
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)
