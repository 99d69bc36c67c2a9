"""What a profile showed beside what was estimated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.advise.make import graph, placed, reads, row, subject, trial
from tpuwatch.advise import Advised, advise, code_advice
from tpuwatch.advise.measured import PASSAGES
from tpuwatch.model import ProfiledOperation, ProfileFigures
from tpuwatch.program import profile_findings

# Moves 3 times what it computes: at least 1.1 s a step.
BOUND = trial(2, counts=graph(reads("bf16[4096,4096]", row(8, 4096, 4096, count=20_000))))
WEIGHTS = placed("bf16[4096,4096]")
IMAGES = placed("f32[64,4096,4096,3]", "inputs")


def figures(**changed: Any) -> ProfileFigures:
    """Of a step of 10 s that waits for nothing."""
    usual: dict[str, Any] = {
        "hardware": "TPU v5 lite",
        "hosts": 1,
        "steps": 10,
        "step_seconds": 10.0,
        "slowest_seconds": 10.0,
        "input_share": 0.0,
        "host_share": None,
        "transfer_share": 0.0,
        "compile_share": 0.0,
        "other_share": 0.0,
        "idle_share": 0.01,
        "mxu_share": None,
        "operations": (ProfiledOperation("jit(step)/dot", "dot", "Device", 0.7),),
    }
    return ProfileFigures(**{**usual, **changed})


def advised(**changed: Any) -> Advised:
    return advise(subject(WEIGHTS, IMAGES, trial=BOUND, profile=figures(**changed)))


def ids(advice: Advised) -> set[str]:
    return {one.id for one in advice.found}


def test_a_profile_alone_is_advice_in_the_order_of_gain() -> None:
    found = advise(subject(profile=figures(idle_share=0.2, input_share=0.4, mxu_share=0.3), batch=None)).found
    assert [one.id for one in found] == ["waits_for_input", "device_idle", "low_mxu"]
    assert [one.gain for one in found] == pytest.approx([0.4, 0.2, 0.1])
    assert "jit(step)/dot 70%" in found[2].reason


def test_input_that_the_device_does_not_wait_for_is_left_out_and_said() -> None:
    assert "input_rate" in ids(advise(subject(WEIGHTS, IMAGES, trial=BOUND)))
    advice = advised()
    assert "input_rate" not in ids(advice)
    assert "input_rate is left out: the device waits for 1% of the time." in advice.corrected


def test_input_that_it_waits_for_has_the_measured_gain() -> None:
    (one,) = [one for one in advised(input_share=0.3).found if one.id == "input_rate"]
    assert one.gain == pytest.approx(0.31)


def test_gains_of_a_step_are_of_the_measured_one() -> None:
    before = {one.id: one.gain for one in advise(subject(WEIGHTS, IMAGES, trial=BOUND)).found}
    after = {one.id: one.gain for one in advised().found}
    assert after["larger_batch"] < before["larger_batch"] / 5


@pytest.mark.parametrize("changed", [{"step_seconds": 0.5}, {"mxu_share": 0.5}])
def test_a_limit_by_memory_that_the_step_contradicts_is_left_out(changed: dict[str, Any]) -> None:
    advice = advised(**changed)
    assert not ids(advice) & {"larger_batch", "memory_bound"}
    assert any(one.startswith("larger_batch is left out") for one in advice.corrected)


@pytest.mark.parametrize("changed", [{"hardware": "TPU v4"}, {"hardware": "CPU_ONLY", "idle_share": None}])
def test_a_profile_of_another_chip_corrects_nothing(changed: dict[str, Any]) -> None:
    advice = advised(**changed)
    assert {"larger_batch", "input_rate"} <= ids(advice)
    assert advice.corrected == [f"The profile is of {changed['hardware']}: estimates for v5e stand."]


def test_lines_of_code_are_held_against_it_too(tmp_path: Any) -> None:
    source = tmp_path / "train.py"
    source.write_text("import jax\nm.compile(optimizer='adam')\njax.pure_callback(f, s, x)\n")
    code = code_advice([source])
    calm = advise(subject(profile=figures(idle_share=0.0)), code)
    assert not ids(calm) & {"steps_per_execution", "callback"}
    assert {"steps_per_execution", "callback"} <= ids(advise(subject(profile=figures(other_share=0.3)), code)) | ids(
        advise(subject(profile=figures(transfer_share=0.3)), code)
    )


def test_each_finding_of_a_profile_has_its_passage() -> None:
    worst = figures(
        steps=9,
        slowest_seconds=90.0,
        input_share=0.3,
        transfer_share=0.3,
        compile_share=0.3,
        other_share=0.3,
        idle_share=0.2,
        mxu_share=0.1,
        categories=(("all-reduce", 0.5), ("copy", 0.5)),
    )
    found = {one.name for one in (*profile_findings(worst), *profile_findings(figures(steps=0)))}
    assert found == set(PASSAGES)
