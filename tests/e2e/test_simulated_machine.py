"""A simulator and its daemon on a machine where somebody else trains: only the simulated machine is seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import ROOT, SECONDS, get, wait_for
from tests.standins.decoy import MARK, decoy

# Of the user who works on a TPU VM in a pod: nothing of it is meant for the simulated machine.
REAL = {"TPU_NAME": MARK, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "NODE_NAME": MARK, "TPU_WORKER_HOSTNAMES": MARK}


class SimulatedSite:
    """`tpuwatch sim` with `tpuwatch run` on its configuration, and commands beside them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "sim"
        self.config = self.directory / "tpuwatch.toml"
        self.environ = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), "HOME": str(directory), **REAL}
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> SimulatedSite:  # noqa: PYI034 - Self is in typing from 3.11 on
        try:
            self._start("sim", "--json", "--dir", str(self.directory))
            wait_for(lambda: (self.directory / "sim.json").exists(), "the simulator")
            self._start("run", "--config", str(self.config))
            wait_for(lambda: self.address, "the daemon")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.terminate()
            process.communicate(timeout=SECONDS)

    @property
    def address(self) -> str:
        """Where the daemon serves; empty before it does."""
        file = self.directory / "state/http.address"
        return file.read_text().strip() if file.exists() else ""

    def api(self, name: str) -> Any:
        """A document of the API."""
        return json.loads(get(self.address, f"/api/v1/{name}")[1])

    def own(self) -> dict[str, Any]:
        """The node of the simulated machine."""
        nodes: list[dict[str, Any]] = self.api("nodes")["nodes"]
        return next((node for node in nodes if node["own"]), {})

    def judged(self, *verdict: str) -> dict[str, Any]:
        """The node, once it is judged so."""
        wait_for(lambda: (self.own().get("verdict"), self.own().get("confidence")) == verdict, str(verdict))
        return self.own()

    def command(self, *words: str) -> tuple[int, str]:
        """Exit status and output of a command with the simulator's configuration alone."""
        done = subprocess.run(
            [sys.executable, "-m", "tpuwatch", *words],
            env={**self.environ, "TPUWATCH_CONFIG": str(self.config)},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def _start(self, *words: str) -> None:
        with (self.directory.parent / f"{words[0]}.log").open("w") as output:
            self._started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tpuwatch", *words],
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    text=True,
                )
            )


@pytest.fixture(scope="module")
def other() -> Iterator[int]:
    with decoy() as pid:
        if pid is None:
            pytest.skip("no mount may be made here")
        yield pid


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, other: int) -> Iterator[SimulatedSite]:
    assert other
    with SimulatedSite(tmp_path_factory.mktemp("site")) as running:
        yield running


def unnamed(text: str, other: int) -> bool:
    """Whether a text says nothing of the real machine's program and environment."""
    return MARK not in text and not re.search(rf"\b{other}\b", text)


def test_no_view_shows_what_runs_on_the_real_machine(site: SimulatedSite, other: int) -> None:
    site.judged("healthy", "high")
    host = site.api("status")["host"]
    assert host["holders"] == []
    for document in ("status", "nodes", "findings", "launches", "restarts"):
        assert unnamed(json.dumps(site.api(document)), other), document
    for words in (("status", "--verbose"), ("nodes", "train-1"), ("restart", "train-1", "--dry-run"), ("tune",)):
        assert unnamed(site.command(*words)[1], other), words


def test_doctor_examines_the_simulated_machine(site: SimulatedSite, other: int) -> None:
    code, text = site.command("doctor", "--json")
    results = {check["id"]: check["status"] for check in json.loads(text)["checks"]}
    assert code == 0
    assert unnamed(text, other)
    named = ("devices", "lock_file", "memory", "metadata", "daemon", "service", "kubernetes")
    assert [results[name] for name in named] == [*["ok"] * 5, *["skipped"] * 2]


def test_the_archive_for_support_is_of_the_simulated_machine(site: SimulatedSite, other: int) -> None:
    assert site.command("support", "--output", "support.tar.gz")[0] == 0
    with tarfile.open(site.directory / "support.tar.gz") as archive:
        texts = {
            Path(one.name).name: file.read().decode()
            for one in archive
            if (file := archive.extractfile(one)) is not None
        }
    for name, text in texts.items():
        assert unnamed(text, other), name
    assert "/dev/accel3" in texts["system.txt"]
    assert not {"daemon.log", "kernel.log"} & texts.keys()


def test_jobs_of_the_simulated_machine_are_seen_while_they_run(site: SimulatedSite) -> None:
    assert site.command("sim", "launch", "slow-init", "--dir", str(site.directory))[0] == 0

    def starting() -> Any:
        return next((one for one in site.api("launches")["launches"] if one["outcome"] == "starting"), None)

    launch = wait_for(starting, "the launch")
    assert launch["environment"] == {"TPU_PREMAPPED_BUFFER_SIZE": str(64 << 30)}


def test_a_run_of_exec_is_recorded_on_the_simulated_machine(site: SimulatedSite) -> None:
    assert site.command("exec", "--workload", "mine", "--", "true")[0] == 0
    assert not (site.directory.parent / ".local").exists()


def test_probe_leaves_the_real_tpu_alone(site: SimulatedSite) -> None:
    assert site.command("probe")[0] == 3


def test_the_configuration_is_valid_and_consistent(site: SimulatedSite) -> None:
    assert site.command("config", "check")[0] == 0
