"""The program that does what the TPU_* variables say: real files, real output, a real end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.daemon_process import ROOT, wait_for
from tests.unit.whole_text import findings_in
from tpuwatch.cli.main import main
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.tune import SIZE, THRESHOLD
from tpuwatch.sim.host.launch import LAUNCHES, LaunchScript, run_launch
from tpuwatch.sim.host.libtpu_settings import read

SECONDS = 60.0


def played(tmp_path: Path, script: LaunchScript, **environ: str) -> int:
    """Play in this process, with log files in logs/."""
    return run_launch(script, {"TPU_LOG_DIR": str(tmp_path / "logs"), **environ})


def log(tmp_path: Path, severity: str = "INFO") -> str:
    return (tmp_path / "logs" / f"tpu_driver.{severity}").read_text()


def script(need: str = "0") -> LaunchScript:
    return LaunchScript(need=int(need) << 30, transfer=1 << 30, steps=4, pace=0.0)


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def test_a_launch_that_fits_trains_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert played(tmp_path, script("4")) == 0
    output, error = capsys.readouterr()
    assert [line.split(":")[0] for line in output.splitlines()] == ["step 100", "step 200", "step 300", "step 400"]
    assert error == ""
    text = log(tmp_path)
    assert "TPU premapped buffer enabled. Size: 4294967296 Threshold: 4294967296 Partitions: 1" in text
    assert "TPU initialization is successful and it took 4.000000s" in text  # 2 s, and 0.5 s for each GiB
    assert not (tmp_path / "logs" / "tpu_driver.ERROR").exists()


def test_a_need_that_the_buffer_does_not_hold_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert played(tmp_path, script("6"), **{SIZE: str(9 << 29)}) == 1  # 4.5 GiB
    output, error = capsys.readouterr()
    told = "Attempting to allocate 1.00G. That was not possible. There are 512.00M free."
    assert output.splitlines()[-1].startswith("step 100:")
    assert error.startswith("Traceback (most recent call last):")
    assert error.count(told) == 1
    assert told in log(tmp_path)
    assert told in log(tmp_path, "ERROR")


def test_tpuwatch_knows_what_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--logbuflevel=-1"
    played(tmp_path, script("6"), **{SIZE: "4294967296", THRESHOLD: "2147483648", "LIBTPU_INIT_ARGS": flags})
    capsys.readouterr()
    main(["diagnose", "--json", str(tmp_path / "logs" / "tpu_driver.INFO")])
    told = json.loads(capsys.readouterr().out)
    (launch,) = told["launches"]
    assert (launch["pid"], launch["init_seconds"]) == (os.getpid(), 4.0)
    assert (launch["premapped_bytes"], launch["premapped_threshold_bytes"]) == (4 << 30, 2 << 30)
    assert [finding["cause"] for finding in told["findings"]] == ["premapped_exhausted"]


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({SIZE: "6442450944"}, 0),
        ({SIZE: "6GB"}, 0),  # six bytes, and every transfer goes round them
        ({SIZE: "0"}, 0),  # no buffer
        ({THRESHOLD: str(1 << 29)}, 0),
        ({THRESHOLD: str(1 << 30)}, 1),
        ({"TPU_ACCELERATOR_TYPE": "v4-8"}, 0),
        ({}, 1),
    ],
    ids=["enough", "misread", "off", "all above the threshold", "none above it", "v4", "default"],
)
def test_whether_it_fits_follows_libtpus_rules(tmp_path: Path, environ: dict[str, str], status: int) -> None:
    assert played(tmp_path, script("6"), **environ) == status


@pytest.mark.parametrize(
    ("name", "status", "causes"),
    [
        ("healthy", 0, []),
        ("premapped", 1, ["premapped_exhausted"]),
        ("hbm-oom", 1, ["hbm_oom_compile"]),
        ("slow-init", 0, ["slow_init"]),
        ("busy", 1, ["tpu_in_use"]),
    ],
)
def test_each_launch_with_a_name_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scanner: Scanner, name: str, status: int, causes: list[str]
) -> None:
    assert played(tmp_path, replace(LAUNCHES[name].script, pace=0.0), **LAUNCHES[name].environment) == status
    output = "".join(capsys.readouterr())
    for text, expected in ((log(tmp_path), causes), (output, causes if status else [])):
        found = findings_in(text.encode(), scanner, "launch", time.time())
        assert [finding.cause.value for finding in found] == expected


def test_one_that_is_run_by_its_name_writes_at_once_under_its_own_pid_and_takes_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpuwatch.sim.host.launch", "healthy", "--logs", str(tmp_path / "logs")]
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), SIZE: "8192"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: initialising(tmp_path), "its first lines")
        finally:
            process.kill()
    link = tmp_path / "logs/tpu_driver.INFO"
    assert link.resolve().name.endswith(f".{process.pid}")
    assert "Size: 8192 " in link.read_text()


def test_without_a_buffer_there_is_no_line_of_it(tmp_path: Path) -> None:
    assert played(tmp_path, script(), **{SIZE: "abc"}) == 0
    assert "premapped buffer" not in log(tmp_path)
    assert "it took 2.000000s" in log(tmp_path)


def test_three_partitions_are_fatal(tmp_path: Path) -> None:
    assert played(tmp_path, script(), TPU_PREMAPPED_BUFFER_PARTITION_COUNT="3") == 1
    assert "must be a power of 2, but the configured value was 3" in log(tmp_path, "FATAL")
    assert "Build label: " in log(tmp_path)
    assert "premapped buffer enabled" not in log(tmp_path)


def test_an_unknown_flag_ends_it_before_it_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert played(tmp_path, script(), LIBTPU_INIT_ARGS="--nonexistent_flag=1") == 1
    assert capsys.readouterr().err == "ERROR: Unknown command line flag 'nonexistent_flag'\n"
    assert not (tmp_path / "logs").exists() or not list((tmp_path / "logs").iterdir())


def test_levels_decide_what_is_written_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, script("6"), TPU_MIN_LOG_LEVEL="2", TPU_STDERR_LOG_LEVEL="0")
    error = capsys.readouterr().err
    assert error.splitlines()[0].startswith("E")
    assert "] Allocating buffer from premapped region failed" in error
    assert {path.name for path in (tmp_path / "logs").iterdir() if path.is_symlink()} == {"tpu_driver.ERROR"}
    played(tmp_path, script(), TPU_STDERR_LOG_LEVEL="0")
    assert "it took 4.000000s" in capsys.readouterr().err


def test_the_highest_level_leaves_no_file(tmp_path: Path) -> None:
    played(tmp_path, script("6"), TPU_MIN_LOG_LEVEL="4")
    assert list((tmp_path / "logs").iterdir()) == []


def test_noise_is_that_of_the_seed() -> None:
    times = [LaunchScript(seed=seed).init_seconds(4 << 30) for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]
    assert all(3.0 < seconds < 5.0 for seconds in times)


@pytest.mark.parametrize(
    ("need", "transfer", "short"),
    [
        (8 << 30, None, (1 << 30, 0)),  # eight transfers of 1 GiB
        (5 << 30, 3 << 30, (2 << 30, 1 << 30)),  # the last transfer is the rest
        (4 << 30, 1 << 30, None),
        (9 << 30, 5 << 30, None),  # larger than the threshold
    ],
    ids=["eighths", "rest", "fits", "round it"],
)
def test_what_is_free_when_it_fails(need: int, transfer: int | None, short: tuple[int, int] | None) -> None:
    assert LaunchScript(need=need, transfer=transfer).short_of(read({})) == short


def started(tmp_path: Path, *options: str, **environ: str) -> subprocess.Popen[str]:
    """One that waits in its initialisation."""
    return subprocess.Popen(
        [sys.executable, "-m", "tpuwatch", "sim", "launch", "--init-base", "1000", *options],
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "TPU_LOG_DIR": str(tmp_path / "logs"), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def initialising(tmp_path: Path) -> bool:
    link = tmp_path / "logs" / "tpu_driver.INFO"
    return link.exists() and "Starting premapped memory manager" in link.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_as_it_ends_a_job(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, LIBTPU_INIT_ARGS="--logbuflevel=-1") as process:
        try:
            wait_for(lambda: initialising(tmp_path), "its first lines")
            process.send_signal(number)
            output, error = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == -number
    assert output == ""
    if number is signal.SIGTERM:
        assert f"*** SIGTERM received by PID {process.pid}" in error
        assert f"*** SIGTERM received by PID {process.pid}" in log(tmp_path, "ERROR")
    else:
        assert error.endswith("KeyboardInterrupt\n" if number is signal.SIGINT else "")


def test_what_is_buffered_is_lost_when_it_is_killed(tmp_path: Path) -> None:
    link = tmp_path / "logs" / "tpu_driver.INFO"
    with started(tmp_path) as process:
        try:
            wait_for(link.exists, "its log file")
            process.kill()
            process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert len(link.read_bytes()) % 4096 == 0
    assert "Starting premapped memory manager" not in link.read_text()


def test_the_command_takes_sizes_and_wants_no_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_LOG_DIR", "")
    monkeypatch.delenv(SIZE, raising=False)
    command = ["sim", "launch", "--need", "6G", "--pace", "0", "--logs", str(tmp_path / "logs")]
    assert main(command) == 1
    assert "There are 256.00M free." in log(tmp_path, "ERROR")
    assert main([*command, "--transfer", "8G"]) == 0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--need", "much"], "'much' is not a size"),
        (["--pace", "-1"], "-1 cannot be; give a number from 0"),
        (["--steps", "-1"], "-1 cannot be; give a number from 0"),
        (["--steps", "x"], "invalid"),
        (["--speed", "2"], "--speed does not go with launch"),
    ],
    ids=["need", "pace", "steps", "no number", "speed"],
)
def test_wrong_options_are_answered(arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: int | str | None = main(["sim", "launch", *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert answer in capsys.readouterr().err


def test_its_options_do_not_go_with_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "fault", "--need", "1G"]) == 2
    assert main(["sim", "quiet", "--need", "1G"]) == 2
    assert capsys.readouterr().err.count("--need does not go with") == 2
