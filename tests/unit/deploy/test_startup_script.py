"""deploy/startup-script.sh on a machine whose metadata server and commands are stand-ins."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = b"a Debian package"
SUM = hashlib.sha256(PACKAGE).hexdigest()
BUCKET = "gs://packages/tpuwatch_0.1.0-1_amd64.deb"
STUBS = {
    "gcloud": 'cp "$ROOT/package.deb" "$5"',  # gcloud storage cp --quiet SOURCE TARGET
    "apt-get": 'cp "$ROOT/tpuwatch" "$ROOT/bin/tpuwatch"',
    "dpkg": '! grep -q wrong "$ROOT/etc/tpuwatch/config.toml" && cp "$ROOT/tpuwatch" "$ROOT/bin/tpuwatch"',
    "systemctl": "",
}
REFUSES = 'mkdir -p "$ROOT/usr/lib/tpuwatch"; cp "$ROOT/tpuwatch" "$ROOT/usr/lib/tpuwatch/environment"; exit 100'


class Machine:
    """`attributes` are the VM's metadata; `calls` are the commands that were run."""

    def __init__(self, root: Path, attributes: dict[str, str], server: str) -> None:
        self.root, self.attributes, self._server = root, attributes, server
        (root / "bin").mkdir()
        (root / "etc/tpuwatch").mkdir(parents=True)
        (root / "package.deb").write_bytes(PACKAGE)
        for name, does in STUBS.items():
            self.command(root / "bin" / name, name, does)
        checks = 'for last; do :; done; case $1 in config|check) ! grep -q wrong "$last" || exit 2 ;; esac'
        self.command(root / "tpuwatch", "tpuwatch", checks)

    def command(self, path: Path, name: str, does: str) -> None:
        path.write_text(f'#!/bin/sh\necho {name} "$@" >> "$ROOT/calls"\n{does}\n')
        path.chmod(0o755)

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.root / "calls").write_text("")
        paths = f"{self.root}/bin:/usr/bin:/bin"
        fixed = {"PATH": paths, "ROOT": str(self.root), "TPUWATCH_ROOT": str(self.root)}
        return subprocess.run(
            ("/bin/bash", str(ROOT / "deploy/startup-script.sh")),
            env={"TMPDIR": os.environ.get("TMPDIR", "/tmp"), "GCE_METADATA_HOST": self._server, **fixed, **environment},  # noqa: S108
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return [line.split()[0] for line in (self.root / "calls").read_text().splitlines()]

    @property
    def config(self) -> Path:
        return self.root / "etc/tpuwatch/config.toml"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    attributes: dict[str, str] = {}

    class Metadata(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/computeMetadata/v1/instance/attributes/")
            known = name in attributes and self.headers["Metadata-Flavor"] == "Google"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(attributes.get(name, "").encode())

        def log_message(self, *words: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Machine(tmp_path, attributes, f"127.0.0.1:{server.server_port}")
        server.shutdown()


def test_the_package_of_the_metadata_is_installed_once(machine: Machine) -> None:
    machine.attributes.update({"tpuwatch-deb": BUCKET, "tpuwatch-sha256": SUM})
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.calls == ["gcloud", "apt-get", "tpuwatch"]
    assert machine.run().returncode == 0
    assert machine.calls == ["tpuwatch"]
    machine.attributes["tpuwatch-deb"] = BUCKET.replace("0.1.0", "0.2.0")
    assert machine.run().returncode == 0
    assert machine.calls == ["gcloud", "apt-get", "tpuwatch"]


def test_by_hand_a_file_is_installed(machine: Machine) -> None:
    done = machine.run(TPUWATCH_DEB=str(machine.root / "package.deb"))
    assert (done.returncode, done.stderr) == (0, "")
    assert machine.calls == ["apt-get", "tpuwatch"]


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({}, "no package is named"),
        ({"tpuwatch-deb": "package.deb"}, "tpuwatch-deb is 'package.deb'; give gs://BUCKET/OBJECT"),
        ({"tpuwatch-deb": "https://example.com/tpuwatch.deb"}, "takes its checksum in tpuwatch-sha256"),
        ({"tpuwatch-deb": BUCKET, "tpuwatch-sha256": "0" * 64}, "has another checksum than 000"),
    ],
)
def test_what_cannot_be_installed_is_not(machine: Machine, attributes: dict[str, str], why: str) -> None:
    machine.attributes.update(attributes)
    done = machine.run()
    assert done.returncode == 1
    assert why in done.stderr
    assert "apt-get" not in machine.calls


def test_a_configuration_is_put_in_force_when_it_has_changed(machine: Machine) -> None:
    machine.attributes.update({"tpuwatch-deb": BUCKET, "tpuwatch-config": '[cloud]\nnodes = ["train-*"]'})
    assert machine.run().returncode == 0
    assert machine.config.read_text() == '[cloud]\nnodes = ["train-*"]\n'
    assert machine.calls == ["gcloud", "apt-get", "tpuwatch", "systemctl", "tpuwatch"]
    assert machine.run().returncode == 0
    assert machine.calls == ["tpuwatch", "tpuwatch"]


def test_a_wrong_configuration_leaves_the_one_that_is_there(machine: Machine) -> None:
    machine.config.write_text("[tune]\n")
    machine.attributes.update({"tpuwatch-deb": BUCKET, "tpuwatch-config": "wrong"})
    done = machine.run()
    assert done.returncode == 1
    assert "tpuwatch-config is wrong, and is not used" in done.stderr
    assert machine.config.read_text() == "[tune]\n"
    assert [path.name for path in machine.config.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_version_that_refuses_the_configuration_that_is_there_is_set_up_with_the_new_one(
    machine: Machine, *, taken: bool
) -> None:
    machine.config.write_text("wrong for the new version\n")
    machine.command(machine.root / "bin/apt-get", "apt-get", REFUSES)
    machine.attributes.update({"tpuwatch-deb": BUCKET, "tpuwatch-config": "[tune]" if taken else "wrong, too"})
    assert (machine.run().returncode == 0) == taken
    assert ("dpkg" in machine.calls) == taken
    assert machine.config.read_text() == ("[tune]\n" if taken else "wrong for the new version\n")


def test_a_package_that_cannot_be_installed_is_said(machine: Machine) -> None:
    machine.command(machine.root / "bin/apt-get", "apt-get", "exit 100")
    machine.attributes.update({"tpuwatch-deb": BUCKET, "tpuwatch-config": "[tune]"})
    done = machine.run()
    assert done.returncode == 1
    assert BUCKET in done.stderr
    assert machine.run().returncode == 1, "it is tried again at the next boot"
