"""The command line as a whole: words, exit codes, and what a shell may do to it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon_process import ROOT, SECONDS, wait_for
from tpuwatch import __version__
from tpuwatch.cli.main import COMMANDS, main

OOM = "E1120 13:44:20.000001  4242 żółw.cc:7] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.\n"


def shell(command: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which `tpuwatch` is ours."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **environ}
    command = command.replace("tpuwatch", f"{sys.executable} -m tpuwatch")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],  # noqa: S607 (found on PATH)
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=60,
        check=False,
    )


def exits(*arguments: str) -> int:
    """The exit code of a command that argparse may end."""
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_help_names_every_command_and_what_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    help_text = capsys.readouterr().out
    assert exits("--help") == 0
    assert capsys.readouterr().out == help_text
    assert all(re.search(rf"\n    {name}\s", help_text) for name in COMMANDS)
    assert "3 could not find out" in " ".join(help_text.split())
    assert max(map(len, help_text.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_that_fits(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(command, "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: tpuwatch {command} ")
    assert max(map(len, text.splitlines())) <= 80


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exits("--version") == 0
    assert capsys.readouterr().out == f"tpuwatch {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["statsu"], "there is no command 'statsu'; did you mean 'status'?"),
        (["xyz"], "there is no command 'xyz'; there are run, diagnose, status"),
        (
            ["diagnose", "--jsno"],
            "tpuwatch diagnose: there is no option '--jsno'; did you mean '--json'?\nusage: tpuwatch diag",
        ),
        (["config"], "the following arguments are required: ACTION"),
        (["config", "chek"], "tpuwatch config: argument ACTION: there is no 'chek'; did you mean 'check'?"),
        (["config", "check", "--jsn"], "tpuwatch config check: there is no option '--jsn'; did you mean '--json'?"),
        (["nodes", "-o", "jsn"], "tpuwatch nodes: argument -o/--output: there is no 'jsn'; did you mean 'json'?"),
        (["env", "--format", "x"], "there is no 'x'; there are shell, systemd, json, docker"),
        (["events", "--cause", "hagn"], "there is no cause 'hagn'; did you mean 'hang'?"),
        (["events", "--cause", "hbm_oom"], "no cause 'hbm_oom'; did you mean 'hbm_oom_compile' or 'hbm_oom_runtime'?"),
        (["events", "--since", "yesterday"], "'yesterday' is no time: write 2h, 30m, 2026-11-20T13:00:00Z"),
        (["events", "--limit", "0"], "'0' is not a number from 1 to 100000"),
        (["run", "now"], "tpuwatch run: 'now' is one word too many\nusage: tpuwatch run [-h] [--config FILE]\nTry"),
    ],
)
def test_wrong_words_are_answered(arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(*arguments) == 2
    printed = capsys.readouterr()
    assert answer in printed.err
    assert "--help" in printed.err
    assert printed.out == ""


TYPOS = {
    "status": ("stat", "stauts", "staus", "statuss"),
    "nodes": ("node", "nods", "noeds"),
    "events": ("event", "evnts", "evens"),
    "restarts": ("restars", "restrats"),
    "restart": ("restrt", "restat"),
    "diagnose": ("diagnoze", "diagnos", "dignose"),
    "doctor": ("docter", "doctr"),
    "config": ("conf", "cofnig", "configure"),
    "tune": ("tun", "tuen"),
    "exec": ("exe", "exce"),
    "env": ("enf", "envs"),
    "demo": ("dmeo", "demos"),
}


@pytest.mark.parametrize(("right", "wrong"), [(right, wrong) for right, words in TYPOS.items() for wrong in words])
def test_a_misspelt_command_is_answered_with_the_right_one(
    right: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits(wrong) == 2
    assert f"there is no command {wrong!r}; did you mean {right!r}?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["status"], ["events"], ["config", "check"]])
def test_a_wrong_configuration_is_wrong_for_every_command(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[http]\nlistn = "127.0.0.1:1"\n[logs]\npoll_seconds = "often"\n')
    assert exits(*command, "--config", str(file)) == 2
    printed = capsys.readouterr().err
    assert "http.listn is not a key of tpuwatch; did you mean http.listen?" in printed
    assert 'logs.poll_seconds cannot be "often"; give a number of seconds' in printed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["config", "check", "--config", "c.toml"], 2, "http.listn is not a key"),
        (["status", "--config", "missing.toml"], 2, "there is no configuration file missing.toml"),
        (["nodes", "--no-such-option"], 2, "there is no option '--no-such-option'"),
        (["events"], 3, "there is no store"),
    ],
)
def test_where_json_is_asked_for_an_error_is_json_too(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text('[http]\nlistn = "127.0.0.1:1"\n')
    assert exits(*arguments, "--json") == code
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["exit_code"] == code
    assert said in document["error"]
    assert said in printed.err
    assert exits(*arguments) == code
    assert capsys.readouterr().out == ""


def test_an_argument_of_a_command_that_is_run_asks_for_no_json(tmp_path: Path) -> None:
    done = shell(f"tpuwatch exec --config {tmp_path}/none.toml no-such-program --json", tmp_path)
    assert done.stdout == ""


def test_a_reader_who_has_seen_enough(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(OOM.replace(".000001", f".{n:06}") for n in range(2000)))
    done = shell("tpuwatch diagnose a.log a.log | head -n 1", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1. hbm_oom_compile, 2000 times\n", "")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(OOM)
    done = shell("tpuwatch diagnose a.log > /dev/full", tmp_path)
    assert done.returncode == 3
    assert done.stderr == "tpuwatch: cannot write to standard output: No space left on device\n"
    assert "Traceback" not in done.stderr


def test_an_error_for_a_disk_that_is_full(tmp_path: Path) -> None:
    done = shell("tpuwatch events --json --config none.toml > /dev/full", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.startswith("tpuwatch: there is no configuration file none.toml")


def test_a_value_that_is_none_is_answered_with_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "x"]) == 2
    assert "argument --interval: 'x' is no number of seconds from 0.5 to 3600\n" in capsys.readouterr().err


def test_no_standard_output(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(OOM)
    done = shell("tpuwatch diagnose --exit-code a.log >&-", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    done = shell("tpuwatch diagnose b.log >&-", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_a_terminal_that_lacks_letters(tmp_path: Path) -> None:
    (tmp_path / "żółw.log").write_text(OOM)
    done = shell("tpuwatch diagnose żółw.log", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert r"Seen in \u017c\xf3\u0142w.log" in done.stdout


def test_no_standard_input(tmp_path: Path) -> None:
    done = shell("tpuwatch diagnose <&-", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "tpuwatch: cannot read standard input: it is closed\n"


@pytest.mark.slow
@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(tmp_path: Path, environ: dict[str, str], coloured: bool) -> None:
    (tmp_path / "a.log").write_text(OOM)
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "tpuwatch", "diagnose", "a.log"],
            stdout=theirs,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "TERM": "xterm", **environ},
            timeout=60,
            check=True,
        )
        text = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (b"\x1b[1;31m1. hbm_oom_compile" in text) is coloured
    assert (b"\x1b" in text) is coloured


def test_control_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-m", "tpuwatch", "diagnose", "pipe"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    with process, open(tmp_path / "pipe", "wb") as pipe:  # it has opened the other end: it reads
        pipe.write(b"x\n")
        pipe.flush()
        wait_for(lambda: Path(f"/proc/{process.pid}/wchan").read_text().startswith(("pipe", "anon_pipe")), "reading")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_help_and_version_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, option in ((["help"], ["--help"]), (["help", "tune"], ["tune", "--help"]), (["version"], ["--version"])):
        printed = []
        for arguments in (words, option):
            with pytest.raises(SystemExit, match="0"):
                main(arguments)
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1] != ""


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose"],
        ["profile"],
        ["preflight", "--tpu", "v6e-4"],
        ["advise", "--tpu", "v6e-4"],
        ["advise", "--profile"],
        ["advise", "--source"],
        ["sim", "--dir", "sim"],
        ["status", "--config"],
        ["config", "check"],
        ["config", "show"],
        ["restart", "train-1", "--config"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["none.mlir", "file/none.mlir"])
def test_a_file_that_is_not_there_is_wrong_use(
    words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main([*words, name]) == 2
