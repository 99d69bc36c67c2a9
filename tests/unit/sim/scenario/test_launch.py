from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.logwriter import SimulatedProcess
from tpuwatch.sim.scenario.launch import LAUNCHES, play

if TYPE_CHECKING:
    from pathlib import Path


def run(directory: Path, name: str) -> tuple[int, str, str, float]:
    """Play a launch on a manual clock: exit status, the job's output, the INFO log, the seconds that it took."""
    clock = ManualClock()
    start = clock.monotonic()
    output = io.StringIO()
    libtpu = SimulatedProcess(directory, 4711, "h", "u", clock)
    status = play(LAUNCHES[name], libtpu, JobOutput(output), clock.advance)
    log = next(directory.glob("*.log.INFO.*")).read_text()
    return status, output.getvalue(), log, clock.monotonic() - start


@pytest.mark.parametrize(
    ("name", "status", "logged", "printed"),
    [
        ("healthy", 0, "TPU initialization is successful and it took 2.4", "step 800: loss: 0.8333"),
        ("premapped", 1, "Allocating buffer from premapped region failed", "Attempting to allocate 512.00M"),
        ("hbm-oom", 1, "Ran out of memory in memory space hbm", "CompileTimeHbmOom"),
        ("slow-init", 0, "TPU initialization is successful and it took 48.5", "step 100"),
        ("busy", 1, "Device or resource busy", "Device or resource busy"),
    ],
)
def test_launch_leaves_its_traces(tmp_path: Path, name: str, status: int, logged: str, printed: str) -> None:
    ended, output, log, _ = run(tmp_path, name)
    assert ended == status
    assert logged in log
    assert printed in output


def test_told_initialisation_takes_the_time_that_it_tells(tmp_path: Path) -> None:
    *_, seconds = run(tmp_path, "slow-init")
    assert seconds == pytest.approx(48.5 + 3 * 0.4)


def test_premapped_launch_sets_the_variable_that_it_suffers_from(tmp_path: Path) -> None:
    *_, log, _ = run(tmp_path, "premapped")
    assert "TPU premapped buffer enabled. Size: 268435456 " in log


def test_as_a_program_it_writes_under_its_own_pid_and_takes_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpuwatch.sim.scenario.launch", "healthy", "--logs", str(tmp_path), "--pace", "0"]
    environment = {**os.environ, "TPU_PREMAPPED_BUFFER_SIZE": "8192"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"step 100: loss:" in output
    (log,) = tmp_path.glob("*.log.INFO.*")
    assert log.name.endswith(f".{process.pid}")
    assert "Size: 8192 " in log.read_text()
