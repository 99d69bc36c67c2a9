"""What the real compiler says, through the command as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

PYTHON = Path(os.environ.get("TPUWATCH_PREFLIGHT_PYTHON", ROOT / ".venv-preflight" / "bin" / "python"))
PROGRAMS = "tests.proof.preflight.programs"
SECONDS = 600
GIB = 1 << 30
# The HBM of a device that the compiler gives to programs.
AVAILABLE = {
    "v2-8": 7.48,
    "v3-8": 15.48,
    "v4-8": 30.75,
    "v5e-1": 15.75,
    "v5p-8": 95.73,
    "v6e-4": 31.24,
    "tpu7x-8": 94.74,
}

pytestmark = pytest.mark.skipif(not PYTHON.is_file(), reason=f"{PYTHON} is not there: make preflight makes it")


def preflight(*words: str) -> tuple[int, Any]:
    """Exit status and document of the command."""
    command = [sys.executable, "-m", "tpuwatch", "preflight", *words, "--python", str(PYTHON), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def only(document: Any) -> Any:
    (result,) = document["results"]
    return result


def test_a_product_needs_what_its_matrices_take() -> None:
    shapes = ["--shape", "f32[4096,4096]"] * 2
    status, document = preflight(f"{PROGRAMS}:times", *shapes, "--tpu", "v5e-1")
    trial = only(document)["trial"]
    assert (status, trial["fits"]) == (0, True)
    assert trial["arguments_bytes"] == 2 * 4096 * 4096 * 4
    assert 0 <= trial["needed_bytes"] - 3 * 4096 * 4096 * 4 < 64 << 20


def test_a_program_that_is_too_large_is_explained_by_its_largest_allocations() -> None:
    shapes = ["--shape", "f32[65536,65536]"] * 2
    status, document = preflight(f"{PROGRAMS}:times", *shapes, "--tpu", "v5e-1")
    result = only(document)
    assert (status, result["fits"]) == (1, False)
    (finding,) = result["findings"]
    assert finding["cause"] == "hbm_oom_compile"
    assert finding["details"]["limit_bytes"] == int(15.75 * GIB)
    assert finding["details"]["used_bytes"] == 3 * 65536 * 65536 * 4
    assert finding["details"]["allocations"][0]["size_bytes"] == 65536 * 65536 * 4
    assert finding["remedy"]


@pytest.mark.parametrize("name", AVAILABLE)
def test_each_generation_gives_programs_what_it_is_known_to(name: str) -> None:
    _, document = preflight(f"{PROGRAMS}:times", "--shape", "f32[8,8]", "--shape", "f32[8,8]", "--tpu", name)
    assert only(document)["trial"]["available_bytes"] == int(AVAILABLE[name] * GIB)


@pytest.mark.long
def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    program = (f"{PROGRAMS}:step", "--args", f"{PROGRAMS}:arguments", "--tpu", "v5e-1")
    status, document = preflight(*program, "--max-batch", "--batch-step", "64")
    result = only(document)
    assert (status, result["fits"]) == (0, True)
    tried = {trial["batch"]: trial["fits"] for trial in result["trials"]}
    assert tried[result["largest_batch"]]
    assert tried[result["largest_batch"] + 64] is False
    assert result["trial"]["needed_bytes"] <= result["trial"]["available_bytes"]


@pytest.mark.long
def test_a_batch_that_is_spread_over_the_devices_costs_each_its_part() -> None:
    program = (f"{PROGRAMS}:loss", "--tpu", "v6e-4", "--batch", "16")
    whole = only(preflight(*program, "--args", f"{PROGRAMS}:arguments")[1])
    spread = only(preflight(*program, "--args", f"{PROGRAMS}:sharded_arguments")[1])
    assert (whole["trial"]["sharded"], spread["trial"]["sharded"]) == (False, True)
    weights = 4 * 2048 * 2048 * 2
    assert (spread["trial"]["arguments_bytes"] - weights) * 4 == whole["trial"]["arguments_bytes"] - weights


def test_a_mistake_in_the_program_is_shown_with_its_line() -> None:
    status, document = preflight(f"{PROGRAMS}:wrong", "--args", f"{PROGRAMS}:arguments", "--tpu", "v5e-1")
    problem = only(document)["problem"]
    assert (status, problem["kind"]) == (1, "program")
    assert "KeyError: 'none'" in problem["message"]
    lines = Path(problem["place"]["file"]).read_text(encoding="utf-8").splitlines()
    assert 'weights["none"]' in lines[problem["place"]["line"] - 1]


@pytest.mark.long
def test_the_step_of_a_keras_model() -> None:
    status, document = preflight(f"{PROGRAMS}:model", "--tpu", "v5e-1", "--batch", "64")
    trial = only(document)["trial"]
    assert (status, trial["fits"]) == (0, True)
    assert trial["shared_bytes"] > 0, "the optimizer's state is given away"


def test_a_tf_function() -> None:
    status, document = preflight("tests.proof.preflight.tensorflow_program:step", "--tpu", "v5e-1")
    trial = only(document)["trial"]
    assert (status, trial["fits"]) == (0, True)
    assert trial["arguments_bytes"] >= (1024 * 4096 + 64 * 1024) * 4


def test_a_file_of_stablehlo(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(
        "module { func.func public @main(%a: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {\n"
        "  %0 = stablehlo.add %a, %a : tensor<1024x1024xf32>\n  return %0 : tensor<1024x1024xf32>\n} }\n"
    )
    status, document = preflight(str(path), "--tpu", "v6e-1")
    assert (status, only(document)["trial"]["arguments_bytes"]) == (0, 1024 * 1024 * 4)


def test_a_portable_artifact_of_stablehlo(tmp_path: Path) -> None:
    path = tmp_path / "program.mlirbc"
    code = f"""
import jax
from jax import export
exported = export.export(jax.jit(lambda x: x + 1), platforms=["tpu"])(jax.ShapeDtypeStruct((1024, 1024), "float32"))
open({str(path)!r}, "wb").write(exported.mlir_module_serialized)
"""
    subprocess.run([PYTHON, "-c", code], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}, timeout=SECONDS)
    status, document = preflight(str(path), "--tpu", "v6e-1")
    assert (status, only(document)["trial"]["arguments_bytes"]) == (0, 1024 * 1024 * 4)


@pytest.mark.long
def test_what_is_said_before_the_code_is_made_is_what_it_needs_without_it() -> None:
    program = (f"{PROGRAMS}:step", "--args", f"{PROGRAMS}:arguments", "--tpu", "v5e-1", "--batch", "64")
    whole = only(preflight(*program)[1])["trial"]
    assert whole["unfinished"] is None
    before = only(preflight(*program, "--no-code")[1])["trial"]
    assert before["fits"]
    if before["unfinished"] is not None:  # else it was made in less time than it takes to look
        assert abs(before["needed_bytes"] - (whole["needed_bytes"] - whole["code_bytes"])) < 4 << 20


def test_arguments_that_are_no_arrays_are_fixed() -> None:
    status, document = preflight(f"{PROGRAMS}:named", "--args", f"{PROGRAMS}:named_arguments", "--tpu", "v5e-1")
    trial = only(document)["trial"]
    assert (status, trial["fits"]) == (0, True)
    assert trial["arguments_bytes"] < 1 << 20


def test_two_at_a_time_and_no_lock_of_a_job_is_touched() -> None:
    lock = Path("/tmp/libtpu_lockfile")  # noqa: S108 (libtpu's own)
    before = lock.stat() if lock.exists() else None
    command = [sys.executable, "-m", "tpuwatch", "preflight", f"{PROGRAMS}:times", "--tpu", "v5e-1", "--json"]
    command += ["--shape", "f32[8,8]", "--shape", "f32[8,8]", "--python", str(PYTHON)]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait(SECONDS) for one in both] == [0, 0]
    after = lock.stat() if lock.exists() else None
    assert before == after


@pytest.mark.parametrize("name", ["Trainer", "nothing"])
def test_what_computes_nothing_is_refused(name: str) -> None:
    command = [sys.executable, "-m", "tpuwatch", "preflight", f"{PROGRAMS}:{name}", "--tpu", "v5e-1"]
    command += ["--python", str(PYTHON)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert "computes nothing" in done.stderr
    assert "--shape" in done.stderr


def test_memory_of_the_chip_itself_is_no_hbm() -> None:
    shapes = ("--shape", "f32[8192,8192]", "--shape", "f32[8192,128]")
    status, document = preflight(f"{PROGRAMS}:by_kernel", *shapes, "--tpu", "v5e-1")
    trial = only(document)["trial"]
    assert (status, trial["fits"], trial["memory_space"]) == (1, False, "vmem")
    assert (trial["needed_bytes"], trial["available_bytes"]) == (None, None)
