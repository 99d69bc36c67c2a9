from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.paths import SHARED
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.sim.host.dialect import DIALECTS
from tpuwatch.sim.host.logwriter import SimulatedProcess, own_process
from tpuwatch.sim.scenario.launch import PADDED

RECORD = re.compile(r"^([IWEF])(\d{4} \d\d:\d\d:\d\d\.\d{6}) +(\d+) ([^ :\]]+:\d+)\] (.*)$")
REAL_LOGS = SHARED / "libtpu-logs"


def process(directory: Path, libtpu: str = "0.0.51") -> SimulatedProcess:
    return SimulatedProcess(directory, 4711, "t1v-n-1", "ada", ManualClock(), libtpu)


def lines(writer: SimulatedProcess, severity: str) -> list[str]:
    writer.flush()
    return writer.files.path(severity).read_text().splitlines()


def texts(writer: SimulatedProcess, severity: str) -> list[str]:
    """What the records say; unprefixed lines as they stand."""
    found = []
    for line in lines(writer, severity)[6:]:
        match = RECORD.match(line)
        found.append(match[5] if match else line)
    return found


@pytest.mark.parametrize("libtpu", DIALECTS)
def test_every_record_of_a_healthy_launch_is_framed(tmp_path: Path, libtpu: str) -> None:
    writer = process(tmp_path, libtpu)
    writer.banner()
    writer.init_start()
    writer.init_ok(2.5)
    framed = lines(writer, "I")[6:]
    assert len(framed) > 20
    assert all(RECORD.match(line) for line in framed)
    assert any(f"Build label: {DIALECTS[libtpu].label}" in line for line in framed)


@pytest.mark.parametrize(("libtpu", "partitions"), [("0.0.51", True), ("0.0.42.1", False), ("0.0.23", False)])
def test_banner_names_the_premapped_setting_and_only_new_versions_its_partitions(
    tmp_path: Path, libtpu: str, partitions: bool
) -> None:
    writer = process(tmp_path, libtpu)
    writer.banner(premapped_bytes=8192)
    text = "TPU premapped buffer enabled. Size: 8192 Threshold: 8192" + " Partitions: 1" * partitions
    assert text in texts(writer, "I")


def test_banner_without_premapped_setting_says_nothing_of_it(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.banner(premapped_bytes=None)
    writer.init_start(premapped_bytes=None)
    assert not [text for text in texts(writer, "I") if "premapped buffer" in text]


def test_init_says_how_long_it_took(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.init_ok(48.5)
    assert "CreateTpuSystemState: TPU initialization is successful and it took 48.500000s" in texts(writer, "I")


def test_new_hbm_report_is_one_record_with_blank_lines(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.hbm_oom(PADDED)
    error = lines(writer, "E")[6:]
    assert "Used 20.00G of 15.75G hbm. Exceeded hbm capacity by 4.25G. HLO module: jit_train_step." in error[0]
    assert [bool(RECORD.match(line)) for line in (error[0], error[-1])] == [True, True]
    assert not any(RECORD.match(line) for line in error[1:-1])
    assert "" in error
    assert "   16.00GiB( 80%);   16.00GiB;            0;                1; f32[33554432,14]" in error


def test_old_hbm_report_is_one_record_for_each_line_and_has_no_headline(tmp_path: Path) -> None:
    writer = process(tmp_path, "0.0.23")
    writer.hbm_oom(PADDED)
    error = lines(writer, "E")[6:]
    assert all(RECORD.match(line) for line in error)
    assert len({tuple(line.split("] ")[0].split()[-2:]) for line in error}) == 1  # one thread, one file:line
    assert "     Extra memory due to padding: 14.25G (9.1x expansion)" in texts(writer, "E")
    assert not any("Ran out of memory" in line for line in error)


def test_a_compile_that_fits_complains_of_nothing(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.compile_ok(used=3 << 30)
    writer.flush()
    assert [path.name.split(".")[-3] for path in tmp_path.iterdir() if not path.is_symlink()] == ["INFO"]
    assert "XLA::TPU program HBM usage: 3.00G / 15.75G" in texts(writer, "I")


def test_premapped_failure_names_both_sizes(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.premapped_exhausted(requested=512 << 20, free=196 << 20)
    (text,) = texts(writer, "E")
    assert "Attempting to allocate 512.00M. That was not possible. There are 196.00M free." in text


def test_busy_device_fails_the_initialisation(tmp_path: Path) -> None:
    writer = process(tmp_path)
    writer.busy(group=3)
    first, second = texts(writer, "E")
    assert "/dev/vfio/3: " not in first
    assert "open(/dev/vfio/3): 16: Device or resource busy" in first
    assert second.startswith("Failed to initialize TPU system with error: FAILED_PRECONDITION")


def test_own_process_has_this_process_id(tmp_path: Path) -> None:
    writer = own_process(tmp_path, SystemClock())
    writer.record("E", "here")
    assert writer.files.path("E").name.endswith(f".{os.getpid()}")


@pytest.mark.skipif(not REAL_LOGS.is_dir(), reason="the logs of a real libtpu are not beside the repository")
def test_files_look_like_those_of_the_real_library(tmp_path: Path) -> None:
    real_dir = REAL_LOGS / "aot-oom" / "oom-v5e_2x2-padlayout" / "logs"
    real_file = next(real_dir.glob("tpu_driver.*.log.ERROR.*"))
    writer = process(tmp_path)
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
