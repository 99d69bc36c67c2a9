from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import SHARED
from tpuwatch.core.clock import ManualClock
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.launch import PADDED
from tpuwatch.sim.host.logwriter import BUILD_LABEL, SimulatedProcess

RECORD = re.compile(r"^([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{6}) +(\d+) ([^ :\]]+:\d+)\] (.*)$")
REAL_LOGS = SHARED / "libtpu-logs"


@pytest.fixture
def writer(tmp_path: Path) -> SimulatedProcess:
    return SimulatedProcess(GlogFiles(tmp_path, ManualClock(), pid=4711, host="t1v-n-1", user="ada"))


def lines(writer: SimulatedProcess, severity: str) -> list[str]:
    writer.flush()
    return writer.files.path(severity).read_text().splitlines()


def test_every_record_of_a_healthy_launch_is_framed(writer: SimulatedProcess) -> None:
    writer.banner()
    writer.init_start()
    writer.init_ok(2.5)
    framed = lines(writer, "I")[6:]
    assert len(framed) > 20
    assert all(RECORD.match(line) for line in framed)
    assert any(f"Build label: {BUILD_LABEL}" in line for line in framed)


def test_a_compile_that_fits_complains_of_nothing(tmp_path: Path, writer: SimulatedProcess) -> None:
    writer.compile_ok()
    assert any("XLA::TPU program HBM usage: 6.00G / 15.75G" in line for line in lines(writer, "I"))
    assert [path.name.split(".")[-3] for path in tmp_path.iterdir() if not path.is_symlink()] == ["INFO"]


@pytest.mark.skipif(not REAL_LOGS.is_dir(), reason="the logs of a real libtpu are not beside the repository")
def test_files_look_like_those_of_the_real_library(writer: SimulatedProcess) -> None:
    real_dir = REAL_LOGS / "aot-oom" / "oom-v5e_2x2-padlayout" / "logs"
    real_file = next(real_dir.glob("tpu_driver.*.log.ERROR.*"))
    writer.hbm_oom(PADDED)
    ours = lines(writer, "E")
    real = real_file.read_text().splitlines()
    assert [line.split(":")[0] for line in ours[:6]] == [line.split(":")[0] for line in real[:6]]
    assert shape(ours[6:]) == shape(real[6:])
    pattern = r"tpu_driver\.[^.]+\.[^.]+\.log\.ERROR\.\d{8}-\d{6}\.\d+"
    assert re.fullmatch(pattern, real_file.name)
    assert re.fullmatch(pattern, writer.files.path("E").name)


def shape(report: list[str]) -> list[str]:
    """The kinds of line in a report: numbers, names and repetitions taken out."""
    plain = [re.sub(r"[a-z0-9]+\[[\d,]+\]", "SHAPE", line) for line in report]
    plain = [re.sub(r"module: \w+\.", "module.", line) for line in plain]
    plain = [re.sub(r" *\d[\d.]*", "N", line) for line in plain]
    return list(dict.fromkeys(plain))
