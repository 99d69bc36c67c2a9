"""`tpuwatch advise` and the counts that it rests on, with the real front ends and the real compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.paths import ROOT
from tests.proof.preflight import public
from tests.proof.preflight.test_preflight import PYTHON, SECONDS, only, preflight
from tpuwatch.program import Change, ChildLimits, Program, run_preflight, target

PUBLIC = "tests.proof.preflight.public"
PROGRAMS = "tests.proof.preflight.programs"
BATCHES = {"transformer": 8, "resnet": 8, "lstm": 64, "embedding": 4096, "unet": 4, "deep": 8}

pytestmark = pytest.mark.skipif(not PYTHON.is_file(), reason=f"{PYTHON} is not there: make preflight makes it")


def advised(*words: str, python: bool = True) -> tuple[int, Any]:
    """Exit status and document of the command."""
    command = [sys.executable, "-m", "tpuwatch", "advise", *words, "--json"]
    command += ["--python", str(PYTHON)] if python else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


LARGE = {"transformer", "resnet", "unet"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LARGE else name for name in BATCHES]
)
def test_flops_are_those_that_are_counted_by_hand(name: str) -> None:
    batch = BATCHES[name]
    program = (f"{PUBLIC}:{name}", "--args", f"{PUBLIC}:{name}_arguments", "--batch", str(batch), "--tpu", "v5e-1")
    trial = only(preflight(*program)[1])["trial"]
    assert trial["flops"]["matrix_flops"] == getattr(public, f"{name}_flops")(batch)
    assert trial["flops"]["not_counted"] == {}
    assert trial["roofline"]["seconds"] >= trial["roofline"]["compute_seconds"]


@pytest.mark.long
def test_each_change_of_a_step_is_compiled_and_most_take_less_memory() -> None:
    result = run_preflight(
        Program(f"{PUBLIC}:transformer", f"{PUBLIC}:transformer_arguments"),
        target("v5e-4"),
        batch=64,
        python=str(PYTHON),
        limits=ChildLimits(SECONDS, 8 << 30),
        environ={**os.environ, "PYTHONPATH": str(ROOT)},
        on_stage=lambda _: None,
        changes=lambda trial: [
            Change(name, trial.batch) for name in ("bfloat16", "remat", "spread-batch", "spread-all")
        ],
    )
    assert result.trial is not None, result.problem
    needed = {one.change: one.needed_bytes for one in result.changed if one.problem is None}
    assert set(needed) == {"bfloat16", "remat", "spread-batch", "spread-all"}, [one.problem for one in result.changed]
    whole = result.trial.needed_bytes
    assert whole is not None
    # To compute one block again saves nothing, which is a result too: another program was compiled.
    assert needed.pop("remat") != whole
    assert all(size is not None and size < whole for size in needed.values()), (whole, needed)


@pytest.mark.long
def test_a_keras_model_is_advised_on_by_its_parts() -> None:
    status, document = advised(f"{PROGRAMS}:model", "--tpu", "v5e-1", "--batch", "64", "--quick")
    result = only(document)
    assert status == 0
    assert {"weights", "optimizer", "inputs"} <= set(result["memory"])
    assert result["memory"]["inputs"] == 64 * (64 * 64 * 3 * 4 + 4)
    assert result["flops"]["matrix_flops"] > 2 * 64 * 62 * 62 * 27 * 32


def test_a_function_that_goes_back_to_python_is_told_with_its_op_and_its_line() -> None:
    name = "tests.proof.preflight.tensorflow_program:with_python"
    status, document = advised(name, "--tpu", "v5e-1", "--quick")
    found = {one["id"]: one for one in only(document)["findings"]}
    assert status == 1
    assert "PyFunc" in found["no_kernel"]["number"]
    place = found["host_python"]["place"]
    with open(place["file"], encoding="utf-8") as file:
        assert "numpy_function" in file.readlines()[place["line"] - 1]


def test_a_tf_function_that_is_well_has_no_such_finding() -> None:
    status, document = advised("tests.proof.preflight.tensorflow_program:step", "--tpu", "v5e-1", "--quick")
    assert status == 0
    assert "no_kernel" not in {one["id"] for one in only(document)["findings"]}


def test_gpt2_with_1024_tokens_is_refused_with_a_batch_of_24() -> None:
    gpt2 = "tests.proof.preflight.gpt2"
    refused = only(
        preflight(*(f"{gpt2}:step", "--args", f"{gpt2}:arguments", "--donate", "0", "--tpu", "v5e-1", "--batch", "24"))[
            1
        ]
    )
    assert refused["fits"] is False  # one of 16 fits, which takes minutes to compile
    assert refused["trial"]["needed_bytes"] > refused["trial"]["available_bytes"]


def test_flops_of_a_shard_map_are_those_of_all_devices() -> None:
    program = (f"{PROGRAMS}:split", "--args", f"{PROGRAMS}:split_arguments", "--tpu", "v5e-4", "--batch", "1024")
    trial = only(preflight(*program)[1])["trial"]
    assert trial["flops"]["matrix_flops"] == 2 * 1024 * 512 * 256
    assert trial["roofline"]["flops"] == 2 * 1024 * 512 * 256 / 4


def test_flops_of_a_ragged_dot_are_those_of_each_row_with_its_group() -> None:
    shapes = ("--shape", "bf16[1024,512]", "--shape", "bf16[8,512,256]", "--shape", "s32[8]")
    trial = only(preflight(f"{PROGRAMS}:grouped", *shapes, "--tpu", "v5e-1")[1])["trial"]
    assert trial["flops"]["matrix_flops"] == 2 * 1024 * 512 * 256


def test_a_kernel_is_not_counted_and_no_advice_rests_on_its_figures() -> None:
    shapes = ("--shape", "f32[256,512]", "--shape", "f32[512,256]")
    status, document = advised(f"{PROGRAMS}:by_kernel", *shapes, "--tpu", "v5e-1")
    result = only(document)
    assert status == 0
    assert (result["flops"]["matrix_flops"], result["roofline"]) == (None, None)
    assert result["flops"]["not_counted"] == {"custom_call tpu_custom_call": 1}
    assert not {"matrix_shape", "larger_batch", "input_rate"} & set(result["checked"])


def test_a_call_to_the_host_is_told() -> None:
    _, document = advised(f"{PROGRAMS}:with_a_callback", "--shape", "f32[8,128]", "--tpu", "v5e-1")
    assert "host_callback" in {one["id"] for one in only(document)["findings"]}


def test_parts_of_the_memory_are_nearly_those_of_the_compiler() -> None:
    program = Program(f"{PROGRAMS}:step", f"{PROGRAMS}:arguments")
    found = [
        run_preflight(
            program,
            target("v5e-1"),
            batch=256,
            code=code,
            python=str(PYTHON),
            limits=ChildLimits(SECONDS, 8 << 30),
            environ={**os.environ, "PYTHONPATH": str(ROOT)},
            on_stage=lambda _: None,
            changes=lambda _: [],
        ).trial
        for code in (True, False)
    ]
    whole, before = found
    assert whole is not None
    assert before is not None
    for name in ("arguments_bytes", "outputs_bytes", "shared_bytes", "temporaries_bytes"):
        assert getattr(before, name) == pytest.approx(getattr(whole, name), abs=16 << 20), name
