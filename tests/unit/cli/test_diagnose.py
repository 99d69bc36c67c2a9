"""`tpuwatch diagnose`."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.daemon_process import ROOT, RULES
from tpuwatch.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

OOM = "E1120 13:44:20.000001  4242 tpu.cc:7] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.\n"
BUSY = (
    "RuntimeError: UNAVAILABLE: The TPU is already in use by process with pid 4711. Not attempting to load libtpu.so\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert isinstance(findings, list)
    return findings


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--exit-code"], 1)])
def test_the_exit_code_judges_when_it_is_asked_to(
    here: Path, flags: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bad").write_text(OOM)
    (here / "good").write_text("Everything is fine.\n")
    (here / "unknown").write_text("ValueError: too many cooks\n")
    assert main(["diagnose", *flags, "bad"]) == code
    assert main(["diagnose", *flags, "unknown"]) == 3 * code
    assert main(["diagnose", *flags, "unknown", "bad"]) == code
    assert main(["diagnose", *flags, "good"]) == 0
    assert "Nothing is wrong that tpuwatch knows of." in capsys.readouterr().out


def test_json_has_all_of_a_finding(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.log").write_text(f"all is well\n{OOM}")
    assert main(["diagnose", "--json", "a.log"]) == 0
    (finding,) = found(capsys)
    assert set(finding) >= {"cause", "count", "first", "details", "summary", "remedy"}
    assert set(finding["first"]) >= {"file", "line", "time", "text"}
    assert (finding["cause"], finding["first"]["file"], finding["first"]["line"]) == ("hbm_oom_compile", "a.log", 2)
    assert finding["details"]["used_bytes"] == 28 << 30
    assert all(set(step) == {"do", "source"} for step in finding["remedy"])


KILLS = """\
kern  :warn  : 2026-01-21T08:41:30,287197+00:00 oom_reaper: reaped process 345646 (vector), now anon-rss:0kB
kern  :warn  : 2026-01-21T08:44:30,287197+00:00 Out of memory: Kill process 456 (python) score 50 or sacrifice child
"""


def test_each_process_that_the_kernel_killed_has_its_own_number(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "dmesg.txt").write_text(KILLS)
    assert main(["diagnose", "--json", "dmesg.txt"]) == 0
    assert [(one["cause"], one["first"]["line"], one["count"], one["details"]) for one in found(capsys)] == [
        ("host_oom", 1, 1, {"killed_pid": 345646, "process": "vector"}),
        ("host_oom", 2, 1, {"killed_pid": 456, "process": "python"}),
    ]


def test_json_names_what_could_not_be_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.log").write_text(OOM)
    assert main(["diagnose", "--json", "/nope"]) == 2
    problem = "cannot read /nope: No such file or directory"
    document = json.loads(capsys.readouterr().out)
    assert document == {"findings": [], "launches": [], "unreadable": [{"file": "/nope", "problem": problem}]}
    assert main(["diagnose", "--json", "/nope", "a.log"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (len(document["findings"]), len(document["unreadable"])) == (1, 1)
    assert main(["diagnose", "--json", "a.log"]) == 0
    assert json.loads(capsys.readouterr().out)["unreadable"] == []


def test_a_launch_failed_of_what_the_findings_say(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job").write_text(
        "INFO:tensorflow:Finished initializing TPU system.\nResourceExhaustedError: "
        "OOM when allocating tensor with shape[8,8] and type uint8 on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:BatchDatasetV2]\n"
    )
    assert main(["diagnose", "--json", "job"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [finding["cause"] for finding in document["findings"]] == ["host_oom"]
    assert [launch["failed_after_start"] for launch in document["launches"]] == ["host_oom"]


def test_a_start_on_the_console_is_one_launch(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job").write_text(
        "I0604 12:45:24.926233   62136 tpu_hal.cc:214] Starting premapped memory manager initialization...\n"
        "I0604 12:45:30.411244   61600 tfrt_tpu_system_state.cc:216] CreateTpuSystemState: TPU initialization is "
        "successful and it took 5.58s\n"
        "I0604 12:45:30.411267   61600 tfrt_tpu_system_state.cc:220] CreateTpuSystemState: using TPU host premapped "
        "buffer of size: 4294967296\n"
    )
    assert main(["diagnose", "--json", "job"]) == 0
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    assert (launch["outcome"], launch["init_seconds"], launch["premapped_bytes"]) == ("ok", 5.58, 4 << 30)


def test_a_file_that_is_named_twice_and_cannot_be_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(here / "none"), str(here / "none")]) == 2
    assert capsys.readouterr() == ("", f"tpuwatch: cannot read {here / 'none'}: No such file or directory\n")


def test_several_files_are_one_diagnosis(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tpu_driver.vm.me.log.INFO.20261120-134414.7", "tpu_driver.vm.me.log.ERROR.20261120-134414.7"):
        (here / name).write_text(f"Log file created at: 2026/11/20 13:44:14\n{OOM}")
    (here / "job.gz").write_bytes(gzip.compress(BUSY.encode()))
    assert main(["diagnose", "--json", *sorted(path.name for path in here.iterdir())]) == 0
    assert [(one["cause"], one["count"]) for one in found(capsys)] == [("hbm_oom_compile", 1), ("tpu_in_use", 1)]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.log").write_text(OOM)
    assert main(["diagnose", "none", "a.log", "."]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("1. hbm_oom_compile\n")
    assert printed.err.splitlines() == [
        "tpuwatch: cannot read none: No such file or directory",
        "tpuwatch: cannot read .: it is a directory; name the files in it",
    ]


def test_unread_files_are_not_reported_as_good(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(here / "none")]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [["-"], []])
def test_standard_input(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tpuwatch", "diagnose", "--json", *arguments],
        input=BUSY.encode("utf-16"),
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["cause"], finding["first"]["file"]) == ("tpu_in_use", "<stdin>")
    assert done.stderr == b""  # no bar and no invitation: neither is a terminal


def test_own_rules(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "rules").mkdir()
    (here / "rules" / "own.toml").write_text(RULES)
    (here / "a.log").write_text("TESTEVENT 7\n")
    assert main(["diagnose", "--json", "--rules", "rules", "a.log"]) == 0
    assert [one["details"] for one in found(capsys)] == [{"number_count": 7}]
    (here / "rules" / "own.toml").write_text(RULES.replace("summary", "sumary"))
    assert main(["diagnose", "--rules", "rules", "a.log"]) == 2
    assert "own.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "rubbish",
    [b"\r" * 100_000, b"\x1b[" * 50_000],
    ids=["returns", "escapes"],
)
def test_rubbish_is_no_finding(here: Path, rubbish: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("job.log", "tpu_driver.vm.me.log.INFO.20261120-134414.7"):
        (here / name).write_bytes(rubbish)
        assert main(["diagnose", "--json", name]) == 0
        assert found(capsys) == []


def test_of_an_empty_text_nothing_is_known(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").touch()
    (here / "warnings").touch()
    (here / "good").write_text("Everything is fine.\n")
    assert main(["diagnose", "empty", "warnings"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert [line.partition(" is ")[0] for line in printed.err.splitlines()] == ["tpuwatch: empty", "tpuwatch: warnings"]
    assert main(["diagnose", "empty", "--json"]) == 3
    assert [one["file"] for one in json.loads(capsys.readouterr().out)["unreadable"]] == ["empty"]
    assert main(["diagnose", "empty", "good"]) == 0  # libtpu makes one for warnings, too


@pytest.mark.parametrize("data", [bytes(100_000), os.urandom(1 << 20)], ids=["zeros", "random"])
def test_of_what_is_no_text_nothing_is_known(here: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a").write_bytes(data)
    (here / "good").write_text("Everything is fine.\n")
    assert main(["diagnose", "a"]) == 3
    assert capsys.readouterr().out == ""
    assert main(["diagnose", "good", "a"]) == 3
    printed = capsys.readouterr()
    assert printed.out == "Nothing was found in what could be read.\n"
    assert printed.err.startswith("tpuwatch: cannot read a: it is ")


def test_what_was_read_before_the_damage_is_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "job.xz").write_bytes(lzma.compress(b"begin\n" + BUSY.encode()) + b"rubbish")
    assert main(["diagnose", "job.xz"]) == 3
    printed = capsys.readouterr()
    assert printed.out.startswith("1. tpu_in_use\n")
    assert printed.err == "tpuwatch: cannot read all of job.xz: it is damaged (Input format not supported by decoder)\n"


MEASURE = """
import re, sys
from pathlib import Path
from tpuwatch.cli.main import main
code = main(["diagnose", "--json", sys.argv[1]])
peak = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())  # ru_maxrss would begin with pytest's own
print(int(peak[1]) // 1024, file=sys.stderr)
sys.exit(code)
"""


def test_a_line_of_100_megabytes_takes_little_memory(here: Path) -> None:
    with open(here / "a.log", "wb") as file:
        for _ in range(100):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + BUSY.encode())
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, "a.log"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["cause"], finding["first"]["line"]) == ("tpu_in_use", 2)
    assert int(done.stderr) < 120


def test_text_of_others_cannot_steer_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J\u202e.log"
    (here / name).write_text(BUSY.replace("in use", "in use \x1b]0;owned\x07\x9b31m\u202e"))
    assert main(["diagnose", name]) == 0
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\x07\x9b\u202e\r")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_read_shows_a_bar_on_a_terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.log").write_bytes(b"nothing to see here\n" * 2_000_000)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("tpuwatch.cli.diagnose._BAR_SECONDS", 0.0)
    assert main(["diagnose", "a.log"]) == 0
    shown = terminal.getvalue()
    assert "█" in shown
    assert "100%" in shown
    assert shown.endswith("\r\x1b[K")  # nothing of it stays
    assert max(map(len, shown.split("\r"))) < 80
    capsys.readouterr()


NONSENSE = "9" * 400


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f"Error allocating device buffer: Attempting to allocate {NONSENSE}G. That was not possible.",
            "hbm_oom_runtime",
        ),
        (f"TPU premapped buffer enabled. Size: {NONSENSE}", None),
        (f"Ran out of memory in memory space hbm.\n  1. Size: {NONSENSE}\n     Unpadded size: 1B", "hbm_oom_compile"),
        (f"TPU initialization is successful and it took {NONSENSE}s", None),
        (f"TPU initialization is taking more than {NONSENSE}.5 seconds", "slow_init"),
    ],
)
def test_forged_numbers_do_not_suppress_other_findings(
    here: Path, text: str, cause: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tpu_driver.vm.me.log.INFO.20261120-134414.7"
    forged = f"E1120 13:44:19.000001  4242 tpu.cc:7] {text}\n"
    (here / name).write_text(f"Log file created at: 2026/11/20 13:44:14\n{forged}{OOM}")
    causes = {cause, "hbm_oom_compile"} - {None}
    assert main(["diagnose", name]) == 0
    printed = capsys.readouterr().out
    assert all(f". {one}" in printed for one in causes)
    assert main(["diagnose", "--json", name]) == 0
    findings = found(capsys)
    assert {one["cause"] for one in findings} == causes
    assert "999" not in json.dumps([(one["details"], one["summary"]) for one in findings])


def test_what_a_person_writes_counts_in_a_short_text_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "On my TPU the training hangs after the first epoch.\n"
    for name, lines in (("question", 10), ("log", 10_000)):
        (here / name).write_text(sentence + "a line of some other words\n" * lines)
        assert main(["diagnose", "--json", name]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0")]
    assert [[finding["cause"] for finding in document["findings"]] for document in documents] == [["hang"], []]


def test_only_what_a_text_needs_is_loaded(here: Path) -> None:
    (here / "job.log").write_text(
        "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 544.00M. That "
        "was not possible. There are 288.00M free.\n"
    )
    code = (
        "import sys; from tpuwatch.cli.main import main; main(['diagnose', 'job.log'])\n"
        "heavy = {'pydantic', 'prometheus_client', 'http', 'sqlite3', 'logging', 'statistics', 'secrets', 'difflib',\n"
        "         'tpuwatch.restart', 'tpuwatch.store', 'tpuwatch.tune.planner', 'tpuwatch.model.status'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert (b"premapped" in done.stdout, done.stderr) == (True, b"[]\n")


def test_what_was_written_for_something_else_reports_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "change.md").write_text(f"This PR makes room.\n\n```\n{OOM}```\n")
    (here / "report.md").write_text(f"I get this:\n\n```\n{OOM}```\n")
    assert main(["diagnose", "--exit-code", "change.md"]) == 0
    assert "change.md" in capsys.readouterr().err
    assert main(["diagnose", "--exit-code", "report.md"]) == 1
    assert capsys.readouterr().err == ""
