"""What stands in for compilers, frameworks, xprof and the machine under the commands about programs, and `doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.program.test_preflight import HEAD, REPORT
from tests.unit.program.test_probe import HEAD as PROBE_HEAD
from tests.unit.program.test_profiling import TRACE, step, tables
from tpuwatch.core.clock import ManualClock
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.model.signals import Holder
from tpuwatch.program.preflight import run_preflight

_OWN = ("--python", sys.executable)
_TARGETS = ("--tpu", "v5e-4", "--tpu", "v6e-1", "--tpu", "v5p-8")
_OTHERS = ("--tpu", "v4-8", "--tpu", "v3-8", "--tpu", "v2-8")
PROFILE = ("profile", "a.xplane.pb", *_OWN)
PREFLIGHT = ("preflight", "train:step", "--batch", "8", *_OWN, *_TARGETS, *_OTHERS)
LARGEST = ("preflight", "train:step", *_OWN, "--tpu", "v5e-4")
_TRACE = ("--profile", "a.xplane.pb", "--profile-python", sys.executable)
ADVISE = ("advise", "train:step", "--batch", "8", *_OWN, *_TARGETS, *_TRACE)
PROBE = ("probe", *_OWN)
ROW = {"op": "dot_general", "m": 4096, "n": 4096, "k": 96, "batch": 1, "passes": 3, "flops": 2 * 4096 * 4096 * 96}
ROW |= {"bytes": 100 << 20, "count": 2, "inputs": ["bf16[4096,96]"], "output": "bf16[4096,4096]"}
ROW |= {"place": {"file": "train.py", "line": 7}}
GRAPH = {"matrix_flops": 4 * 4096 * 4096 * 96, "vector_flops": 7, "moved_bytes": 200 << 20, "operations": [ROW]}
GRAPH |= {"broadcasts": [], "not_counted": {}, "host_calls": {"xla_python_cpu_callback": 2}}
TENSORS = [
    {"path": "['w']", "dtype": "float32", "bytes": 4 << 20, "shape": [1024, 100], "part": None, "batch_side": None},
    {"path": "x", "dtype": "bfloat16", "bytes": 1 << 20, "shape": [8, 96], "part": "inputs", "batch_side": 0},
]
# On v5e a batch of 16 fits, on v3 its code is not made; on v6e HBM is too small, on v4 the chip's own memory; for v5p
# the program is wrong, for v2 the compiler dies.
COMPILER = (
    HEAD
    + f"""
kind = request["topology"].partition(":")[0]
log = open(os.environ["TPU_LOG_DIR"] + "/tpu_driver.h.u.log.INFO.20261123-100000.4711", "w", buffering=1)
ready()
report(kernels=dict(counts=dict(Where=2, Unique=1), without=["Unique"]))
for line in sys.stdin:
    wanted = json.loads(line)
    if kind == "v2":
        print("/" + "x" * 1500, flush=True)
        os.abort()
    if kind == "v5p":
        print("Traceback of it", flush=True)
        report(error=dict(kind="program", stage="trace", message="KeyError: 'w'", place=dict(file="t.py", line=3)))
        sys.exit(1)
    fits = kind in ("v3", "v5e") and wanted["batch"] <= 16
    found = dict(fits=fits, batch=wanted["batch"], change=wanted.get("change"), devices=4, sharded=False,
        device_kind="TPU v5 lite", trace_seconds=0.125, compile_seconds=2.25, available_bytes=16 << 30,
        needed_bytes=12 << 30, graph={GRAPH!r}, tensors={TENSORS!r})
    if wanted.get("change") == "remat":
        found.update(fits=False, needed_bytes=None, problem="TypeError: no")
    elif found["fits"] and kind == "v3":
        found.update(unfinished="it took longer than 60 s (--timeout)")
    elif kind == "v4":
        found.update(message="RESOURCE_EXHAUSTED", memory_space="vmem", needed_bytes=None, available_bytes=None)
    elif found["fits"]:
        found.update(arguments_bytes=6 << 30, outputs_bytes=6 << 30, shared_bytes=5 << 30, temporaries_bytes=5 << 30,
            code_bytes=1 << 20)
    else:
        found.update(message="RESOURCE_EXHAUSTED", memory_space="hbm", needed_bytes=20 << 30)
        log.write({REPORT!r})
    report(trial=found)
"""
)
TRACED = tables(step(0), step(1, infeedTimeMs=110.0), device_idle_time_percent="12.5%", input_conclusion="It waits.")
TRACER = f"""
import json, os, sys
tables = {TRACED!r}
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
RESULTS = {
    "config_file": [warn("Take care.", "do y", "page"), ok("Fine.")],
    "api": [wrong("It is\x1b broken.", "do \x07z", "book"), unknown("Who knows?", "sudo x"), skipped("No.")],
    "clock": [ok("Fine as well.")],
    "nodes": [skipped("None.")],
}


def check(name: str, results: Iterable[Result]) -> Check:
    area = Area.CONFIGURATION if name == "config_file" else Area.CLOUD
    return Check(name, f"the {name}", area, lambda _: results, essential=True)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them; the commands run in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    for name, script in (("front", COMPILER), ("tracer", TRACER), ("child", PROBED)):
        (tmp_path / f"{name}.py").write_text(script)
    (tmp_path / "a.xplane.pb").write_bytes(TRACE)
    monkeypatch.setitem(run_preflight.__kwdefaults__, "front", tmp_path / "front.py")
    monkeypatch.setattr("tpuwatch.program.profile_command", lambda python: (python, str(tmp_path / "tracer.py")))
    monkeypatch.setattr("tpuwatch.program.probe_command", lambda python: (python, str(tmp_path / "child.py")))
    (tmp_path / "c.toml").write_text(f'[state]\ndir = "{tmp_path}"\n')
    monkeypatch.setenv("TPUWATCH_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setattr("tpuwatch.program.probe.changeable_by_others", lambda _: "")
    monkeypatch.setattr("tpuwatch.program.probe.tpu_devices", lambda _: ["/dev/accel0"])
    monkeypatch.setattr("tpuwatch.program.attempt.SystemClock", ManualClock)
    held = iter([(), (Holder(7, "bob", "python3 train.py", None, ("/dev/accel0",)),), (), ()])
    monkeypatch.setattr("tpuwatch.program.probe.find_holders", lambda _: next(held))
    monkeypatch.setattr("tpuwatch.doctor.CHECKS", [check(*one) for one in RESULTS.items()])
