"""What a simulated launch leaves means to tpuwatch what the real thing would."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_streams, load_catalogue
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.launch import LAUNCHES, play
from tpuwatch.sim.host.logwriter import SimulatedProcess


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(for_streams(load_catalogue(), MARKS))


def read(scanner: Scanner, kind: StreamKind, data: bytes) -> list[Match]:
    parser = LogParser(scanner, kind, now=ManualClock().time())
    return [*parser.feed(data), *parser.finish()]


def causes(matches: list[Match]) -> set[str]:
    return {match.rule.cause.value for match in matches if match.rule.cause}


@pytest.mark.parametrize(
    ("name", "status", "seconds", "expected"),
    [
        ("healthy", 0, 2.4 + 8 * 0.4, set[str]()),
        ("premapped", 1, 1.6 + 3 * 0.4, {"premapped_exhausted"}),
        ("hbm-oom", 1, 2.1 + 0.8, {"hbm_oom_compile"}),
        ("slow-init", 0, 48.5 + 3 * 0.4, {"slow_init"}),
        ("busy", 1, 0.0, {"tpu_in_use"}),
    ],
)
def test_launch_is_recognised(
    tmp_path: Path, scanner: Scanner, name: str, status: int, seconds: float, expected: set[str]
) -> None:
    clock = ManualClock()
    start = clock.monotonic()
    output = io.StringIO()
    libtpu = SimulatedProcess(GlogFiles(tmp_path, clock, pid=4711, host="h", user="u"))
    assert play(LAUNCHES[name], libtpu, JobOutput(output), clock.advance) == status
    assert clock.monotonic() - start == pytest.approx(seconds)
    matches = read(scanner, StreamKind.LIBTPU, next(tmp_path.glob("*.log.INFO.*")).read_bytes())
    assert causes(matches) == expected
    assert causes(read(scanner, StreamKind.TEXT, output.getvalue().encode())) == expected - {"slow_init"}
    marks = {match.rule.mark for match in matches}
    assert marks >= {"banner", "premapped", "init_started"}
    assert ("init_done" in marks) == (name != "busy")


def test_as_a_program_it_writes_under_its_own_pid_and_takes_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpuwatch.sim.host.launch", "healthy", "--logs", str(tmp_path), "--pace", "0"]
    environment = {**os.environ, "TPU_PREMAPPED_BUFFER_SIZE": "8192"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"step 100: loss:" in output
    (log,) = tmp_path.glob("*.log.INFO.*")
    assert log.name.endswith(f".{process.pid}")
    assert "Size: 8192 " in log.read_text()
