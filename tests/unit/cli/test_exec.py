"""The words of `tpuwatch exec`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.exec.running import Place
from tpuwatch.cli.main import main


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    return place


@pytest.mark.usefixtures("place")
def test_without_a_command_it_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["exec"], ["exec", "--"], ["exec", "--workload", "a"]):
        assert main(words) == 2
        assert "there is no command; give it after --" in capsys.readouterr().err


def test_a_dry_run_shows_what_would_be_set_and_runs_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    target = place.root / "made"
    assert main(["exec", "--workload", "job", "--dry-run", "--", "touch", str(target)]) == 0
    out = capsys.readouterr().out
    assert f"export TPU_LOG_DIR={place.logs}\n" in out
    assert "export TPUWATCH_WORKLOAD=job\n" in out
    assert out.endswith(f"touch {target}\n")
    assert not target.exists()
    assert not place.tune.exists()


@pytest.mark.usefixtures("place")
def test_the_kind_of_workload_is_given_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--kind", "serving", "--dry-run", "--", "vllm", "serve"]) == 0
    assert "export TPUWATCH_KIND=serving\n" in capsys.readouterr().out
    assert main(["exec", "--no-tune", "--kind", "interactive", "--dry-run", "--", "jupyter"]) == 0
    assert "export TPUWATCH_KIND=interactive\n" in capsys.readouterr().out
    assert main(["exec", "--dry-run", "--", "true"]) == 0
    assert "TPUWATCH_KIND" not in capsys.readouterr().out
    assert main(["exec", "--kind", "batch", "--", "true"]) == 2
    assert "training, serving, interactive" in capsys.readouterr().err.replace("'", "")


@pytest.mark.parametrize(
    ("named", "said"), [("serving", ""), ("", ""), ("batch", "TPUWATCH_KIND=batch is no kind of ")]
)
@pytest.mark.usefixtures("place")
def test_a_kind_of_the_environment_that_is_none_is_remarked(
    named: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TPUWATCH_KIND", named)
    assert main(["exec", "--dry-run", "--", "true"]) == 0
    error = capsys.readouterr().err
    assert said in error if said else error == ""


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (str(1 << 45), "is 32 TiB of pinned memory; this host has "),
        ("", "is empty: libtpu takes its own size"),
        (" +8192 ", ""),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_size_of_the_operators_own_is_remarked_where_it_is_wrong(
    size: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TPU_PREMAPPED_BUFFER_SIZE", size)
    assert main(["exec", "--dry-run", "--", "true"]) == 0
    error = capsys.readouterr().err
    assert said in error if said else error == ""


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "x" * 65])
def test_a_name_that_cannot_be_one_runs_nothing(place: Place, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", f"--workload={name}", "--", "touch", str(place.root / "made")]) == 2
    assert "cannot be a workload's name" in capsys.readouterr().err
    assert not (place.root / "made").exists()


def test_a_log_directory_that_is_not_followed_is_said_and_nothing_else_claimed(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = place.root / "daemon" / "tune" / "launches"
    box.mkdir(parents=True)  # there is a daemon
    text = place.config.read_text()
    place.config.write_text(text.replace(f'paths = ["{place.logs}"]', 'paths = ["/elsewhere"]'))
    assert main(["exec", "--dry-run", "--", "true"]) == 0
    assert capsys.readouterr().err == (
        f"tpuwatch: TPU_LOG_DIR is {place.logs}, where tpuwatch does not read: add it to paths under [logs], or set "
        "log_dir under [tune] to one of those.\n"
    )
    assert main(["env"]) == 0
    captured = capsys.readouterr()
    assert "tpuwatch reads there" not in captured.out
    assert "# TPU_LOG_DIR: libtpu makes it, but tpuwatch does not read there." in captured.out
    place.config.write_text(text)
    monkeypatch.setenv("TPU_LOG_DIR", str(place.root))
    assert main(["exec", "--dry-run", "--", "true"]) == 0
    assert f"TPU_LOG_DIR={place.root} is where tpuwatch's daemon does not read: add" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--no-tune"]], ids=["tuned", "untuned"])
def test_a_job_starts_though_the_configuration_cannot_be_used(place: Place, options: list[str]) -> None:
    place.config.write_text("[tune\n")
    done = place.run("sh", "-c", "echo it ran; exit 7", options=options)
    assert (done.returncode, done.stdout) == (7, b"it ran\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"tpuwatch: {place.config}: not TOML: ")
    assert line.endswith("The command runs all the same, by the plan that there is or by the defaults.")


def test_a_job_starts_though_the_configuration_cannot_be_read(place: Place) -> None:
    place.config.unlink()
    place.config.mkdir()  # which nobody can read as a file, root neither
    done = place.run("true")
    assert done.returncode == 0
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"tpuwatch: cannot read the configuration file {place.config}: Is a directory. The command")


def test_all_after_the_command_is_its_own(place: Place) -> None:
    code = "import sys; print(sys.argv[1:])"
    words = ["exec", "--workload", "a", "--", sys.executable, "-S", "-c", code, "--name", "--", "--json", "-h"]
    done = subprocess.run(
        [sys.executable, "-m", "tpuwatch", *words], env=place.environ, capture_output=True, timeout=60
    )
    assert done.stdout == b"['--name', '--', '--json', '-h']\n"
    without = ["exec", "--workload", "a", sys.executable, "-S", "-c", code, "--no-tune"]
    done = subprocess.run(
        [sys.executable, "-m", "tpuwatch", *without], env=place.environ, capture_output=True, timeout=60
    )
    assert done.stdout == b"['--no-tune']\n"


def test_little_is_loaded_before_the_command_starts() -> None:
    code = (
        "import sys, tpuwatch.cli.exec, tpuwatch.exec.preparation, tpuwatch.exec.command\n"
        "heavy = {'pydantic', 'hyperscan', 'prometheus_client', 'http', 'socket', 'asyncio', 'watchdog', 'grpc',\n"
        "         'secrets', 'shlex'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"[]\n"
