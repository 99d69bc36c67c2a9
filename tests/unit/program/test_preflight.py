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
def ready(): report(stage="ready")
"""
ONE_GIB_EACH = (
    HEAD + "ready()\nfor line in sys.stdin:\n    batch = json.loads(line)['batch']\n    trial(batch, batch << 30)\n"
)
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
        limits=options.pop("limits", ChildLimits(60.0, 1 << 34)),
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
        HEAD
        + f"""
log = open(os.environ["TPU_LOG_DIR"] + "/tpu_driver.host.user.log.INFO.20261123-100000.4711", "w", buffering=1)
log.write({REPORT.replace("19.46G", "8.00T")!r})  # of what is compiled to know how much there is
ready()
log.write({REPORT!r} if sys.stdin.readline() else "")
trial(20, 20 << 30)
"""
    )
    result = run(tmp_path, script, batch=20)
    assert result.fits is False
    assert [finding.cause.value for finding in result.findings] == ["hbm_oom_compile"]
    assert result.findings[0].details["used_bytes"] == int(19.46 * (1 << 30))
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
    if "last words" in script:
        assert result.output == "last words\n"


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
ready()
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


@pytest.mark.parametrize("code", [True, False])
def test_a_program_that_needs_nothing_is_refused(tmp_path: Path, code: bool) -> None:
    with pytest.raises(ConfigError, match=r"model:step computes nothing.*--args MODULE:FACTORY, or --shape"):
        run(tmp_path, ONE_GIB_EACH, batch=0, code=code)


def test_memory_of_the_chip_itself_that_ran_out_is_no_figure_of_hbm(tmp_path: Path) -> None:
    script = (
        HEAD
        + """
log = open(os.environ["TPU_LOG_DIR"] + "/tpu_driver.h.u.log.INFO.20261123-100000.1", "w", buffering=1)
ready()
sys.stdin.readline()
log.write("I1123 10:00:00.000001 7 buffer_assignment.cc:3641] Assigning buffers to module jit_step\\n"
    "I1123 10:00:00.000002 7 buffer_assignment.cc:3861] BufferAssignment strategy (1, 4) "
    "exceeded memory limit for color 0 (4096 bytes vs limit of 14224981504 bytes).\\n")
report(trial=dict(fits=False, batch=8, needed_bytes=None, available_bytes=16 << 30, devices=4, sharded=False,
    memory_space="vmem", device_kind="TPU v5 lite", trace_seconds=0.1, compile_seconds=2.0))
"""
    )
    trial = run(tmp_path, script, batch=8).trial
    assert trial is not None
    assert (trial.memory_space, trial.needed_bytes) == ("vmem", None)


# Tells the parent, as libtpu does, that the memory suffices, and never ends to make the code; each child notes itself.
ENDLESS = (
    HEAD
    + """
open("{children}", "a").write("x")
log = open(os.environ["TPU_LOG_DIR"] + f"/tpu_driver.h.u.log.INFO.20261123-100000.{{os.getpid()}}", "w", buffering=1)
ready()
for line in sys.stdin:
    batch = json.loads(line)["batch"]
    report(compiling=dict(batch=batch, available_bytes=16 << 30, devices=1, device_kind="TPU", sharded=False,
        trace_seconds=0.1))
    log.write("I1123 10:00:00.000001 7 buffer_assignment.cc:3641] Assigning buffers to module jit_step\\n"
        "I1123 10:00:00.000002 7 buffer_assignment.cc:3861] BufferAssignment strategy (1, 4) "
        f"exceeded memory limit for color 0 ({{batch * batch << 26}} bytes vs limit of 14224981504 bytes).\\n")
    if batch > 16:
        report(trial=dict(fits=False, needed_bytes=None, available_bytes=16 << 30, compile_seconds=1.0))
    else:
        log.write("I1123 10:00:00.000003 8 deepsea_compiler_base.cc:1350] Global Core Count: 1 replica count: 1\\n")
        {then}
"""
)


def endless(directory: Path, then: str = "signal.pause()") -> str:
    return "import signal\n" + ENDLESS.format(children=directory / "children", then=then)


def test_what_fits_is_known_before_its_code_is_made(tmp_path: Path) -> None:
    stages: list[str] = []
    result = run(tmp_path, endless(tmp_path), batch=8, code=False, on_stage=stages.append)
    assert (result.fits, result.problem) == (True, None)
    assert result.trial is not None
    assert (result.trial.needed_bytes, result.trial.unfinished) == (4 << 30, "it was not asked for")
    assert any("4 GiB of HBM are assigned" in stage for stage in stages)


def test_a_search_makes_no_code_but_that_of_its_answer(tmp_path: Path) -> None:
    done = "report(trial=dict(fits=True, needed_bytes=1, compile_seconds=1)) if batch == 16 else signal.pause()"
    result = run(tmp_path, endless(tmp_path, done), up_to=1000, step=1)
    assert result.largest == 16
    assert result.trial is not None
    assert result.trial.unfinished is None
    assert len((tmp_path / "children").read_text()) == 1 + sum(bool(one.unfinished) for one in result.trials) > 1


def test_a_search_without_code(tmp_path: Path) -> None:
    result = run(tmp_path, endless(tmp_path), up_to=12, step=1, code=False)
    assert (result.largest, [trial.batch for trial in result.trials]) == (12, [12])


def test_what_is_too_slow_fits_where_its_memory_does(tmp_path: Path) -> None:
    result = run(
        tmp_path, endless(tmp_path, "raise SystemExit(open(0).read())"), batch=8, limits=ChildLimits(1.0, 1 << 34)
    )
    assert (result.fits, result.problem) == (True, None)
    assert result.trial is not None
    assert result.trial.unfinished == "it took longer than 1 s (--timeout)"


def test_what_a_refused_batch_needs_is_taken_from_the_log_where_the_message_has_it_rounded(tmp_path: Path) -> None:
    result = run(tmp_path, endless(tmp_path), batch=17)
    assert result.fits is False
    assert result.trial is not None
    assert result.trial.needed_bytes == 17 * 17 << 26


def test_half_of_the_batch_is_a_change_and_not_the_answer(tmp_path: Path) -> None:
    result = run(tmp_path, ONE_GIB_EACH, batch=8, changes=lambda _: [Change(None, 4)])
    assert result.trial is not None
    assert (result.trial.batch, [one.batch for one in result.changed]) == (8, [4])


def test_of_changes_no_code_is_made(tmp_path: Path) -> None:
    then = "report(trial=dict(fits=True, needed_bytes=1, compile_seconds=1)) if batch == 8 else signal.pause()"
    wanted = [Change("spread-all", 4), Change("remat", 6)]
    result = run(tmp_path, endless(tmp_path, then), batch=8, changes=lambda _: wanted)
    assert result.trial is not None
    assert result.trial.unfinished is None
    assert [(one.batch, one.needed_bytes, one.fits) for one in result.changed] == [
        (4, 4 * 4 << 26, True),
        (6, 6 * 6 << 26, True),
    ]
    assert all(one.unfinished for one in result.changed)
