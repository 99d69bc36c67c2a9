"""A preflight against a stand-in for the compiler: a program that follows the same protocol."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.standins.machine import Machine
from tpuwatch.core import ConfigError
from tpuwatch.host import ProcFs
from tpuwatch.program import (
    Change,
    ChildLimits,
    Preflight,
    Program,
    memory_limit,
    preflight_document,
    run_preflight,
    target,
)
from tpuwatch.program.preflight import interpreter

HEAD = """
import json, os, sys
request = json.loads(sys.argv[1])
out = os.fdopen(request["report"], "w", buffering=1)
def report(**message): out.write(json.dumps(message) + "\\n")
def trial(batch, needed, available=16 << 30):
    report(trial=dict(fits=needed <= available, batch=batch, needed_bytes=needed, available_bytes=available, devices=4,
        device_kind="TPU v5 lite", sharded=False, trace_seconds=0.1, compile_seconds=2.0))
"""
ONE_GIB_EACH = HEAD + "for line in sys.stdin:\n    batch = json.loads(line)['batch']\n    trial(batch, batch << 30)\n"
REPORT = (
    "E1123 10:00:00.000001 4711 tpu_compiler.cc:33] Ran out of memory in memory space hbm. Used 19.46G of 15.75G hbm. "
    "Exceeded hbm capacity by 3.71G.\n"
)


def run(directory: Path, script: str, program: Program | None = None, **options: Any) -> Preflight:
    front = directory / "front.py"
    front.write_text(script)
    return run_preflight(
        program or Program("model:step"),
        target("v5e-4"),
        python=sys.executable,
        limits=ChildLimits(60.0, 1 << 34),
        environ={"PATH": os.environ["PATH"], "LIBTPU_INIT_ARGS": "--own=1", "TPU_LOG_DIR": "/own"},
        on_stage=options.pop("on_stage", lambda _: None),
        front=front,
        **options,
    )


def test_a_program_that_fits(tmp_path: Path) -> None:
    result = run(tmp_path, ONE_GIB_EACH, batch=8)
    assert (result.fits, result.problem, result.findings) == (True, None, ())
    assert result.trial is not None
    assert (result.trial.batch, result.trial.needed_bytes) == (8, 8 << 30)


def test_one_that_does_not_fit_has_the_findings_of_its_log_and_output(tmp_path: Path) -> None:
    script = (
        ONE_GIB_EACH
        + f"""
open(os.environ["TPU_LOG_DIR"] + "/tpu_driver.host.user.log.INFO.20261123-100000.4711", "w").write({REPORT!r})
"""
    )
    result = run(tmp_path, script, batch=20)
    assert result.fits is False
    assert [finding.cause.value for finding in result.findings] == ["hbm_oom_compile"]
    assert result.findings[0].details["limit_bytes"] == int(15.75 * (1 << 30))


def test_the_largest_batch_is_searched_for_in_one_process(tmp_path: Path) -> None:
    stages: list[str] = []
    result = run(tmp_path, ONE_GIB_EACH, up_to=1000, step=1, on_stage=stages.append)
    assert result.largest == 16
    assert result.trial is not None
    assert (result.trial.batch, result.fits) == (16, True)
    assert any("does not fit with batch" in stage for stage in stages)


def test_where_no_batch_fits_the_smallest_refusal_is_the_answer(tmp_path: Path) -> None:
    result = run(tmp_path, ONE_GIB_EACH, up_to=1000, step=32)
    assert (result.largest, result.fits) == (None, False)
    assert result.trial is not None
    assert result.trial.batch == 32


def test_the_compiler_touches_neither_a_job_that_runs_here_nor_the_metadata_server(tmp_path: Path) -> None:
    script = HEAD + "report(error=dict(kind='program', stage='x', message=json.dumps(dict(os.environ)), place=None))"
    result = run(tmp_path, script)
    assert result.problem is not None
    environ = json.loads(result.problem["message"])
    assert environ["TPU_SKIP_MDS_QUERY"] == environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert "tpuwatch-preflight-" in environ["TPU_LOG_DIR"]
    assert not Path(environ["TPU_LOG_DIR"]).exists(), "its logs do not stay"
    assert environ["LIBTPU_INIT_ARGS"].split() == ["--logbuflevel=-1", "--own=1"]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("report(stage='trace'); print('last words'); os.abort()", "died", "signal 6"),
        ("report(stage='import'); sys.exit(7)", "died", "exit status 7"),
        (
            "report(error=dict(kind='program', stage='trace', message='KeyError: 7', place=None))",
            "program",
            "KeyError: 7",
        ),
        ("out.write('garbage\\n'); sys.stdin.read()", "limit", "no report"),
    ],
)
def test_a_child_without_an_answer_is_said_so_with_its_last_words(
    tmp_path: Path, script: str, kind: str, words: str
) -> None:
    result = run(tmp_path, HEAD + script)
    assert (result.fits, result.trial) == (None, None)
    assert result.problem is not None
    assert result.problem["kind"] == kind
    assert words in result.problem["message"]
    document = preflight_document(Program("model:step"), [result], sys.executable)
    json.dumps(document)
    if "last words" in script:
        assert document["results"][0]["problem"]["output"] == "last words\n"


def test_a_search_that_breaks_off_is_no_answer(tmp_path: Path) -> None:
    result = run(tmp_path, ONE_GIB_EACH.replace("    trial(", "    if batch < 32: os.abort()\n    trial("), up_to=1000)
    assert result.trials
    assert (result.fits, result.largest) == (None, None)
    assert result.problem is not None
    assert result.problem["kind"] == "died"


def test_what_the_user_gave_wrongly_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no module"):
        run(tmp_path, HEAD + "report(error=dict(kind='usage', stage='x', message='no module', place=None))")
    with pytest.raises(ConfigError, match="--max-batch 7 is less than --batch-step 8"):
        run(tmp_path, ONE_GIB_EACH, up_to=7, step=8)


def test_too_little_memory_is_refused_before_anything_starts(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")
    with pytest.raises(ConfigError, match=r"1 GiB of memory is available on this machine; the compiler takes"):
        memory_limit(None, ProcFs(tmp_path / "proc"))
    with pytest.raises(ConfigError, match=r"--memory-limit"):
        memory_limit(1 << 20, ProcFs(tmp_path / "proc"))


def test_the_interpreter_of_the_active_environment_is_used(tmp_path: Path) -> None:
    own = tmp_path / "bin" / "python"
    own.parent.mkdir()
    own.symlink_to(sys.executable)
    assert interpreter(None, {"VIRTUAL_ENV": str(tmp_path)}) == str(own)
    assert interpreter(str(own), {}) == str(own)
    with pytest.raises(ConfigError, match="no program"):
        interpreter(str(tmp_path / "none"), {})


CHANGES = (
    HEAD
    + """
def changed(wanted):
    if wanted["change"] == "remat": os.abort()
    problem = "TypeError: no" if wanted["change"] == "spread-batch" else None
    report(trial=dict(fits=True, batch=wanted["batch"], change=wanted["change"], problem=problem, needed_bytes=1 << 30,
        available_bytes=16 << 30, devices=1, device_kind="TPU", sharded=False, trace_seconds=0, compile_seconds=0))
for line in sys.stdin:
    wanted = json.loads(line)
    changed(wanted) if wanted.get("change") else trial(wanted["batch"], wanted["batch"] << 30)
"""
)


def test_changes_of_the_program_are_compiled_after_it_and_are_no_answer_of_their_own(tmp_path: Path) -> None:
    wanted = [Change("bfloat16", 8), Change("spread-batch", 8)]
    result = run(tmp_path, CHANGES, batch=8, changes=lambda trial: wanted if trial.needed_bytes == 8 << 30 else [])
    assert (result.fits, len(result.trials), result.problem) == (True, 1, None)
    assert [(one.change, one.problem) for one in result.changed] == [
        ("bfloat16", None),
        ("spread-batch", "TypeError: no"),
    ]


def test_a_change_that_ends_the_child_leaves_the_answer(tmp_path: Path) -> None:
    wanted = [Change("bfloat16", 8), Change("remat", 8), Change("spread-batch", 8)]
    result = run(tmp_path, CHANGES, batch=8, changes=lambda _: wanted)
    assert (result.fits, result.problem) == (True, None)
    assert [one.change for one in result.changed] == ["bfloat16"]


def test_flops_and_the_least_time_are_in_the_document(tmp_path: Path) -> None:
    row = {"op": "dot_general", "m": 4096, "n": 4096, "k": 4096, "passes": 1}
    row |= {"flops": 2 * 4096**3, "bytes": 100 << 20, "count": 2}
    graph = {"matrix_flops": 4 * 4096**3, "vector_flops": 7, "moved_bytes": 200 << 20, "operations": [row]}
    graph["unknown_loops"] = 1
    graph["unknown_kernels"] = {"tpu_custom_call": 3}
    script = HEAD.replace("compile_seconds=2.0", f"compile_seconds=2.0, graph={graph!r}") + ONE_GIB_EACH[len(HEAD) :]
    result = run(tmp_path, script, batch=8)
    (document,) = preflight_document(Program("model:step"), [result], sys.executable)["results"]
    trial = document["trial"]
    assert trial["flops"] == {
        "matrix_flops": 4 * 4096**3,
        "vector_flops": 7,
        "unknown_loops": 1,
        "unknown_kernels": {"tpu_custom_call": 3},
    }
    assert trial["roofline"]["compute_seconds"] == pytest.approx(4 * 4096**3 / 197e12)
    assert "operations" not in json.dumps(document)
