"""What commands print with `--json` stays what it is, byte by byte: golden files in documents/.

The daemon's own documents are in tests/unit/web/test_frozen.py.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.http_daemon import answering
from tests.unit.program.test_preflight import HEAD, REPORT
from tests.unit.program.test_probe import HEAD as PROBE_HEAD
from tests.unit.program.test_profiling import TRACE, step, tables
from tests.unit.web import samples
from tests.unit.web.test_frozen import DARK, VIEW
from tpuwatch.cli.main import main
from tpuwatch.doctor.check import Area, Check, ok, skipped, unknown, warn, wrong
from tpuwatch.exec.found import NOTHING
from tpuwatch.exec.preparation import PreparedRun
from tpuwatch.exec.recording import write_report
from tpuwatch.exec.run_result import RunResult
from tpuwatch.host.oom import OomKill, OomLimit
from tpuwatch.model.documents.logs import FindingDocument, LaunchDocument
from tpuwatch.model.signals import Holder
from tpuwatch.model.tune import SIZE, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.program.preflight import run_preflight
from tpuwatch.tune.environment import KeptVariable, LaunchEnvironment

GOLDEN = Path(__file__).with_name("documents")
ROW = {"op": "dot_general", "m": 4096, "n": 4096, "k": 96, "batch": 1, "passes": 3, "flops": 2 * 4096 * 4096 * 96}
ROW |= {"bytes": 100 << 20, "count": 2, "inputs": ["bf16[4096,96]"], "output": "bf16[4096,4096]"}
ROW |= {"place": {"file": "train.py", "line": 7}}
GRAPH = {"matrix_flops": 4 * 4096 * 4096 * 96, "vector_flops": 7, "moved_bytes": 200 << 20, "operations": [ROW]}
GRAPH |= {"broadcasts": [], "not_counted": {}, "host_calls": {"xla_python_cpu_callback": 2}}
TENSORS = [
    {"path": "['w']", "dtype": "float32", "bytes": 4 << 20, "shape": [1024, 100], "part": None, "batch_side": None},
    {"path": "x", "dtype": "bfloat16", "bytes": 1 << 20, "shape": [8, 96], "part": "inputs", "batch_side": 0},
]
# On v5e it fits, on v6e it does not, and for v5p the compiler dies.
COMPILER = (
    HEAD
    + f"""
kind = request["topology"].partition(":")[0]
log = open(os.environ["TPU_LOG_DIR"] + "/tpu_driver.h.u.log.INFO.20261123-100000.4711", "w", buffering=1)
ready()
report(kernels=dict(counts=dict(Where=2, Unique=1), without=["Unique"]))
for line in sys.stdin:
    wanted = json.loads(line)
    if kind == "v5p":
        print("Traceback of it", flush=True)
        report(error=dict(kind="program", stage="trace", message="KeyError: 'w'", place=dict(file="t.py", line=3)))
        sys.exit(1)
    found = dict(fits=kind == "v5e", batch=wanted["batch"], change=wanted.get("change"), devices=4, sharded=False,
        device_kind="TPU v5 lite", trace_seconds=0.125, compile_seconds=2.25, available_bytes=16 << 30,
        needed_bytes=12 << 30, graph={GRAPH!r}, tensors={TENSORS!r})
    if wanted.get("change") == "remat":
        found.update(fits=False, needed_bytes=None, problem="TypeError: no")
    elif found["fits"]:
        found.update(arguments_bytes=6 << 30, outputs_bytes=6 << 30, shared_bytes=5 << 30, temporaries_bytes=5 << 30,
            code_bytes=1 << 20)
    else:
        found.update(message="RESOURCE_EXHAUSTED", memory_space="hbm", needed_bytes=20 << 30)
        log.write({REPORT!r})
    report(trial=found)
"""
)
TRACER = f"""
import json, os, sys
tables = {tables(step(0), step(1, infeedTimeMs=110.0), device_idle_time_percent="12.5%", input_conclusion="It waits.")!r}
tables["categories"] = {{"picoseconds": {{"fusion": 31, "all-reduce": 9}}, "flops_share": 0.2}}
os.fdopen(json.loads(sys.argv[1])["report"], "w").write(json.dumps({{"tables": tables}}) + chr(10))
"""
PROBED = (
    PROBE_HEAD
    + """
def differ(value): report(fact=dict(version="0.8", python="3.12")); well(result(value), result(2.0, place="x"))
if request["step"]: differ(1.0 if tpu else 90.0)
stages("import", "initialise")
print("E1123 10:00:00.000001 4711 a.cc:1] The TPU is already in use by process with pid 7.", file=sys.stderr)
fail("error", "in use")
"""
)

Show = Callable[..., str]


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs a command, which ends with `code`, and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, code: int) -> str:
        assert main([*words, "--json"]) == code
        return capsys.readouterr().out

    return run


def holds(name: str, text: str, tmp_path: Path) -> None:
    """That is what is in the file of that name, but for what differs from one run to the next."""
    text = text.replace(sys.executable, "python3").replace(str(tmp_path), "/home/alice")
    text = re.sub(r'"((?:began|ended)_epoch)": [\d.]+', r'"\1": 0.5', text) if name.startswith("probe") else text
    text = re.sub(r'"seconds": \d+\.\d{1,3}(?!\d)', '"seconds": 0.5', text)
    file = GOLDEN / f"{name}.json"
    if os.environ.get("TPUWATCH_UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), "if this change is meant, run this test with TPUWATCH_UPDATE_GOLDEN=1"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    front = tmp_path / "front.py"
    front.write_text(COMPILER)
    monkeypatch.setitem(run_preflight.__kwdefaults__, "front", front)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile, and in the place of xprof what reads it."""
    (tmp_path / "tracer.py").write_text(TRACER)
    monkeypatch.setattr("tpuwatch.program.profile_command", lambda python: (python, str(tmp_path / "tracer.py")))
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(TRACE)
    return path


def test_profile(show: Show, trace: Path, tmp_path: Path) -> None:
    holds("profile", show("profile", str(trace), "--python", sys.executable, code=1), tmp_path)


@pytest.mark.usefixtures("compiler")
def test_preflight(show: Show, tmp_path: Path) -> None:
    words = ["preflight", "train:step", "--batch", "8", "--python", sys.executable]
    words += ["--tpu", "v5e-4", "--tpu", "v6e-1", "--tpu", "v5p-8"]
    holds("preflight", show(*words, code=1), tmp_path)


@pytest.mark.usefixtures("compiler")
def test_advise(show: Show, trace: Path, tmp_path: Path) -> None:
    words = ["advise", "train:step", "--batch", "8", "--python", sys.executable, "--profile-python", sys.executable]
    words += ["--tpu", "v5e-4", "--tpu", "v6e-1", "--tpu", "v5p-8", "--profile", str(trace)]
    holds("advise", show(*words, code=1), tmp_path)
    holds("advise-shapes", show("advise", "--shape", "bf16[20,30,5]", "--tpu", "v6e-4", code=0), tmp_path)


def test_probe(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    (tmp_path / "child.py").write_text(PROBED)
    monkeypatch.setattr("tpuwatch.program.probe_command", lambda python: (python, str(tmp_path / "child.py")))
    monkeypatch.setattr("tpuwatch.program.probe.changeable_by_others", lambda _: "")
    monkeypatch.setattr("tpuwatch.program.probe.tpu_devices", lambda _: ["/dev/accel0"])
    holder = Holder(7, "bob", "python3 train.py", None, ("/dev/accel0",))
    held = iter([(), (holder,), ()])
    monkeypatch.setattr("tpuwatch.program.probe.find_holders", lambda _: next(held))
    words = ["probe", "--python", sys.executable]
    holds("probe", show(*words, code=3), tmp_path)
    holds("probe-step", show(*words, "--step", "model:step", code=1), tmp_path)


def test_doctor(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "config_file": [warn("Take care.", "do y", "page"), ok("Fine.")],
        "api": [wrong("It is\x1b broken.", "do \x07z", "book"), unknown("Who knows?", "sudo x"), skipped("No.")],
    }
    checks = [
        Check(name, f"the {name}", area, lambda _, results=results: results, essential=True)
        for (name, results), area in zip(found.items(), (Area.CONFIGURATION, Area.CLOUD), strict=True)
    ]
    monkeypatch.setattr("tpuwatch.doctor.CHECKS", checks)
    holds("doctor", show("doctor", code=1), tmp_path)


def test_top(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(VIEW, tmp_path, monkeypatch) as first, answering(DARK, tmp_path, monkeypatch) as second:
        text = show("top", first, second, "127.0.0.1:9", code=3)
    holds("top", text.replace(first, "10.0.0.1:9478").replace(second, "10.0.0.2:9478"), tmp_path)


def test_report_of_exec(tmp_path: Path) -> None:
    settings = (VariableSetting(SIZE, "4096", "It was too small."),)
    plan = TunePlan("job", 0.0, settings, SizeDecision(SizeStep.GROW, None, None, ("It was too small.",)))
    given = LaunchEnvironment({"TPU_X": "1"}, kept=[KeptVariable("TPU_Y", "2", "3")])
    prepared = PreparedRun("a1b2", "job", {"TPU_X": "1", "TPU_Y": "2"}, given, plan, tmp_path, True, ())
    findings = (FindingDocument.of(samples.finding()),)
    found = replace(NOTHING, findings=findings, launches=(LaunchDocument.of(samples.launch()),), unread_bytes=5)
    kill = OomKill(OomLimit.CGROUP, "/sys/fs/cgroup/train/memory.events", 1, "/train", "/train", 1 << 30)
    for name, end, decided in (
        ("exec", RunResult(1, 100.5, 200.25, 137, kill, found), plan),
        ("exec-unread", RunResult(1, 100.0, 200.0, 0, None, None), None),
    ):
        write_report(tmp_path / "report.json", prepared, end, decided)
        holds(name, (tmp_path / "report.json").read_text(), tmp_path)
