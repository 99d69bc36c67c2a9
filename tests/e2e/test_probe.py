"""`tpuwatch probe` as a process, with packages in place of the frameworks that do what a broken one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.pid_fifo import PAUSES, SECONDS, has_ended, process_of
from tests.paths import ROOT
from tests.standins.machine import Machine


def command(directory: Path, *words: str) -> list[str]:
    """The words of a probe there by this interpreter."""
    probe = [sys.executable, "-m", "tests.e2e.probe_elsewhere", f"{directory}/machine"]
    return [*probe, "--python", sys.executable, "--config", f"{directory}/c.toml", *words]


@contextmanager
def probing(directory: Path, jax: str) -> Iterator[subprocess.Popen[str]]:
    """The command on a machine where nothing holds a TPU, with a package `jax` that does that at its import."""
    Machine(directory / "machine")
    os.mkfifo(directory / "pid")
    (directory / "packages").mkdir()
    (directory / "packages" / "jax.py").write_text(jax)
    (directory / "state").mkdir()
    (directory / "c.toml").write_text(f'[state]\ndir = "{directory}/state"\n[cloud]\nenabled = false\n')
    environ = {"PATH": os.environ["PATH"], "PID_FIFO": f"{directory}/pid"}
    process = subprocess.Popen(
        command(directory, "--json"),
        cwd=ROOT,
        env={**environ, "PYTHONPATH": f"{directory}/packages:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_however_it_is_ended_no_child_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with probing(tmp_path, PAUSES) as process:
        child = process_of(tmp_path / "pid", process)
        process.send_signal(number)
        process.wait(SECONDS)
        assert process.returncode == (130 if number is signal.SIGINT else -number)
        assert has_ended(child), "the child is left"


def test_a_second_probe_waits_for_nothing_and_says_why(tmp_path: Path) -> None:
    with probing(tmp_path, PAUSES) as process:
        os.close(process_of(tmp_path / "pid", process))
        second = subprocess.run(
            command(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert second.returncode == 3
        assert "another probe runs" in second.stderr
        assert process.poll() is None


def test_a_framework_that_crashes_is_a_fault_of_the_stack_and_is_left_for_the_daemon(tmp_path: Path) -> None:
    with probing(tmp_path, "import os\nos.abort()\n") as process:
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, err
    document = json.loads(out)
    assert (document["verdict"], document["recorded"]) == ("stack_fault", True)
    assert [(one["platform"], one["problem"]["kind"]) for one in document["attempts"]] == [
        ("tpu", "died"),
        ("cpu", "died"),
    ]
    left = json.loads((tmp_path / "state" / "probe.json").read_text())
    assert (left["verdict"], left["summary"]) == ("stack_fault", document["summary"])
