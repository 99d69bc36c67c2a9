"""`tpuwatch env`: what it prints, says, writes and refuses."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.cli.main import main
from tpuwatch.config.file import stamp
from tpuwatch.model.tune import SIZE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.tune.plan import write_plan

DECISION = SizeDecision(SizeStep.GROW, 8 << 30, None, ("A transfer asked for 3 GiB more.",), before_bytes=4 << 30)


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tune directory of a daemon's, and an environment without variables of a TPU's."""
    for name in [name for name in os.environ if "TPU" in name]:
        monkeypatch.delenv(name)
    (tmp_path / "logs").mkdir()
    (tmp_path / "tune" / "launches").mkdir(parents=True)
    config = tmp_path / "config.toml"
    config.write_text(
        f'[logs]\npaths = ["{tmp_path}/logs"]\n[tune]\ndir = "{tmp_path}/tune"\nlog_dir = "{tmp_path}/logs"\n'
    )
    monkeypatch.setenv("TPUWATCH_CONFIG", str(config))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path / "tune"


Env = Callable[..., Any]  # with what was printed as `out` and `err`


@pytest.fixture
def env(capsys: pytest.CaptureFixture[str]) -> Env:
    """Runs the command, and returns what it prints."""

    def run(*words: str) -> Any:
        assert main(["env", *words]) == 0
        return capsys.readouterr()

    return run


def decide(tune: Path, workload: str = "default", size: int = 8 << 30) -> None:
    settings = (VariableSetting(SIZE, str(size), DECISION.reasons[0]), VariableSetting("TPU_LOG_DIR", "/gone", "old"))
    write_plan(tune, TunePlan(workload, 1_800_000_000.0, settings, DECISION, stamp(tune.parent / "config.toml")))


def test_a_shell_takes_it_and_the_next_launch_has_it(tune: Path) -> None:
    decide(tune)
    program = shutil.which("tpuwatch", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("tpuwatch is not installed beside this Python")
    script = f'eval "$({program} env)" && env'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)  # noqa: S607
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "TPU" in line)
    assert done.stderr == ""
    assert found[SIZE] == str(8 << 30)
    assert found["TPU_LOG_DIR"] == str(tune.parent / "logs")
    assert found["LIBTPU_INIT_ARGS"] == "--logbuflevel=-1"
    assert (found["TPUWATCH_WORKLOAD"], SIZE in found["TPUWATCH_SET"].split(",")) == ("default", True)


@pytest.mark.parametrize("form", ["shell", "systemd", "docker", "json"])
def test_a_job_finds_the_heartbeats_socket_of_another_place(
    tune: Path, form: str, env: Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "TPUWATCH_SOCKET" not in env("--format", form).out
    config = tune.parent / "config.toml"
    config.write_text(config.read_text() + '[workload]\nsocket = "/run/other.socket"\n')
    found = [line for line in env("--format", form).out.splitlines() if "TPUWATCH_SOCKET" in line]
    assert len(found) == 1
    assert "/run/other.socket" in found[0]
    monkeypatch.setenv("TPUWATCH_SOCKET", "/run/mine.socket")
    assert ("/run/other.socket" in env("--format", form).out) is (form in ("systemd", "docker"))
    env("--write")
    assert "TPUWATCH_SOCKET" not in (tune / "plans" / "default.env").read_text()


def test_without_a_plan_the_launch_is_made_visible_and_its_size_left_alone(tune: Path, env: Env) -> None:
    told = env("--workload", "bert")
    assert "export TPU_MIN_LOG_LEVEL=0;" in told.out
    assert SIZE not in told.out
    assert "# There is no history of this workload yet" in told.out
    assert told.err == ""
    assert [path.name for path in tune.iterdir()] == ["launches"]


def test_what_is_set_already_stays_and_is_said(tune: Path, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(tune)
    monkeypatch.setenv(SIZE, "4096\x1b")
    monkeypatch.setenv("TPU_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_a='b c'")
    told = env()
    assert f"export {SIZE}" not in told.out
    assert "export LIBTPU_INIT_ARGS='--logbuflevel=-1 --xla_a='\"'\"'b c'\"'\"'';" in told.out
    assert f"tpuwatch: {SIZE}=4096  is set already and stays; tpuwatch would have {8 << 30}." in told.err
    assert "TPU_MIN_LOG_LEVEL=2 hides launches" in told.err


@pytest.mark.parametrize("form", ["systemd", "docker"])
def test_another_environment_has_all_of_it(tune: Path, form: str, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(tune)
    monkeypatch.setenv(SIZE, "4096")
    told = env("--format", form)
    assert str(8 << 30) in told.out
    assert told.err == ""


def test_the_workload_may_stand_in_the_environment(tune: Path, env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(tune, "bert", 1 << 30)
    monkeypatch.setenv("TPUWATCH_WORKLOAD", "bert")
    document = json.loads(env("--json").out)
    assert (document["workload"], document["set"][0]["value"]) == ("bert", str(1 << 30))
    assert json.loads(env("--json", "--workload", "default").out)["workload"] == "default"


def test_it_is_written_where_the_unit_looks_for_it(tune: Path, env: Env) -> None:
    decide(tune)
    path = tune / "plans" / "default.env"
    assert env("--write").out == f"Wrote {path}.\n"
    assert f'{SIZE}="{8 << 30}"\n' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    other = tune.parent / "x.env"
    env("--format", "docker", "--write", str(other))
    assert f"{SIZE}={8 << 30}\n" in other.read_text()


def test_without_a_daemon_it_is_written_to_the_users_own_place(tune: Path) -> None:
    (tune / "launches").rmdir()
    assert main(["env", "--write"]) == 0
    assert (tune.parent / "home/.local/state/tpuwatch/tune/plans/default.env").is_file()


def test_a_plan_that_cannot_be_trusted_is_said_and_done_without(tune: Path, env: Env) -> None:
    decide(tune)
    (tune / "plans" / "default.json").chmod(0o666)
    told = env()
    assert SIZE not in told.out
    assert "others can write to it" in told.err


def test_a_plan_of_another_configuration_is_said(tune: Path, env: Env) -> None:
    decide(tune)
    with open(tune.parent / "config.toml", "a") as file:
        file.write('overrides = {TPU_PREMAPPED_BUFFER_SIZE = "8192"}\n')
    told = env()
    assert f"export {SIZE}=8192;" in told.out
    assert "another state of the configuration" in told.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--workload", "../x"], 2, "cannot be a workload's name"),
        (["--format", "fish"], 2, "there is no 'fish'"),
        (["--config", "/nowhere.toml"], 2, "there is no configuration file"),
        (["--write", "/nowhere/x.env"], 3, "there is no directory /nowhere; make it first"),
    ],
    ids=["name", "format", "config", "place"],
)
def test_what_is_wrong_is_said(
    tune: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(["env", *words])
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == code
    assert said in capsys.readouterr().err
    assert not (tune / "plans").exists()


def test_what_is_for_a_closed_standard_error_is_not_evaluated(tune: Path) -> None:
    decide(tune)
    words = [sys.executable, "-m", "tpuwatch", "env"]
    script = ["sh", "-c", 'exec "$@" 2>&-', "-", *words]
    environ = {**os.environ, "TPU_MIN_LOG_LEVEL": "3"}  # which there is a note on
    done = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("tpuwatch:")] == []
