"""What the stand-in writes means to tpuwatch what the real thing would."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.sim.host.dialect import DIALECTS
from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.logwriter import SimulatedProcess
from tpuwatch.sim.scenario.launch import LAUNCHES, play

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.logs.parse.parser import Match

CAUSES = {
    "healthy": set[str](),
    "premapped": {"premapped_exhausted"},
    "hbm-oom": {"hbm_oom_compile"},
    "slow-init": {"slow_init"},
    "busy": {"tpu_in_use", "init_failed"},
}


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def read(scanner: Scanner, kind: StreamKind, data: bytes) -> list[Match]:
    parser = LogParser(scanner, kind, now=ManualClock().time())
    return [*parser.feed(data), *parser.finish()]


def causes(matches: list[Match]) -> set[str]:
    return {match.rule.cause.value for match in matches if match.rule.cause}


@pytest.mark.parametrize("libtpu", DIALECTS)
@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_is_recognised(tmp_path: Path, scanner: Scanner, name: str, libtpu: str) -> None:
    clock = ManualClock()
    output = io.StringIO()
    play(LAUNCHES[name], SimulatedProcess(tmp_path, 4711, "h", "u", clock, libtpu), JobOutput(output), clock.advance)
    log = next(tmp_path.glob("*.log.INFO.*")).read_bytes()
    matches = read(scanner, StreamKind.LIBTPU, log)
    assert causes(matches) == CAUSES[name]
    assert causes(read(scanner, StreamKind.TEXT, output.getvalue().encode())) == CAUSES[name] - {"slow_init"}
    marks = {match.rule.mark for match in matches}
    assert marks >= {"banner", "premapped", "init_started"}
    assert ("init_done" in marks) == (name != "busy")
