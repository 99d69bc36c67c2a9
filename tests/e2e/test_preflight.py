"""`tpuwatch preflight` that is ended in the middle, with a stand-in for the interpreter that has JAX."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pid_fifo import has_ended, process_of


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_of_one_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    started, python = tmp_path / "started", tmp_path / "python"
    os.mkfifo(started)
    python.write_text(f"#!/bin/sh\necho $$ > {started}\nexec cat\n")
    python.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    words = ["preflight", "train:step", "--shape", "f32[8]", "--tpu", "v5e-1", "--python", str(python)]
    environ = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = subprocess.Popen(
        [sys.executable, "-m", "tpuwatch", *words], env=environ, stderr=subprocess.PIPE, text=True
    )
    child = process_of(started, command)
    command.send_signal(number)
    _, errors = command.communicate(timeout=60)
    assert (command.returncode, "Traceback" in errors) == (130, False)
    assert has_ended(child), "the child goes on"
    assert not list((tmp_path / "temporary").iterdir())
