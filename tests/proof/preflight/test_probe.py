"""Probes with the real JAX and TensorFlow, on a machine without a TPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.proof.preflight.test_preflight import PYTHON
from tests.standins.machine import Machine
from tpuwatch.program import ChildLimits
from tpuwatch.program.attempt import CHILD, ProbeAttempt, attempt

STEPS = "tests.proof.preflight.steps"
LIMITS = ChildLimits(600.0, 1 << 40)
STAGES = ["start", "import", "initialise", "compile", "compute"]

pytestmark = pytest.mark.skipif(not PYTHON.is_file(), reason=f"{PYTHON} is not there: make preflight makes it")


def probe(directory: Path, *words: str) -> tuple[int, Any]:
    """Exit status and document of the command, on a machine where no process holds a TPU."""
    machine = Machine(directory / "machine")
    elsewhere = [sys.executable, "-m", "tests.e2e.probe_elsewhere", str(machine.root)]
    command = [*elsewhere, *words, "--python", str(PYTHON), "--json"]
    environ = {**os.environ, "XDG_STATE_HOME": str(directory), "TPU_SKIP_MDS_QUERY": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def on_cpu(framework: str, step: str | None = None, **more: Any) -> ProbeAttempt:
    return attempt(
        "cpu",
        command=[str(PYTHON), str(CHILD)],
        framework=framework,
        step=step and f"{STEPS}:{step}",
        limits=LIMITS,
        environ={**os.environ, "TPU_SKIP_MDS_QUERY": "1", "PYTHONPATH": str(ROOT)},
        **{"on_stage": lambda _: None, **more},
    )


def test_jax_finds_no_tpu_here_and_the_cpu_computes(tmp_path: Path) -> None:
    code, document = probe(tmp_path)
    assert (code, document["verdict"], document["framework"]) == (1, "no_tpu", "jax")
    tpu, cpu = document["attempts"]
    assert [finding["cause"] for finding in tpu["findings"]] == ["no_tpu_found"]
    assert (cpu["problem"], [stage["name"] for stage in cpu["stages"]]) == (None, STAGES)


def test_the_stock_tensorflow_is_a_wrong_build_and_no_fault_of_the_tpu(tmp_path: Path) -> None:
    code, document = probe(tmp_path, "--framework", "tensorflow")
    assert (code, document["verdict"]) == (1, "wrong_build")
    (tpu,) = document["attempts"]
    assert [stage["name"] for stage in tpu["stages"]] == ["start", "import", "connect", "initialise"]
    assert "ConfigureDistributedTPU" in tpu["problem"]["message"]


@pytest.mark.parametrize(("framework", "step"), [("jax", "loss"), ("tensorflow", "tensors")])
def test_a_step_runs_after_the_known_value_and_its_numbers_are_reported(framework: str, step: str) -> None:
    done = on_cpu(framework, step)
    assert (done.kind, [one.name for one in done.stages]) == ("", [*STAGES, "step"]), done
    found = {one["place"]: one["values"] for one in done.facts["results"]}
    assert found["result['loss']"] == [28.0]
    assert found["result['logits'][0]"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert found["result['logits'][1]"] == ["nan", *["inf"] * 7]


@pytest.mark.parametrize(
    ("step", "kind", "words"),
    [
        ("fails", "error", "weights"),
        ("aborts", "died", "SIGABRT"),
        ("words", "usage", "str"),
        ("none", "usage", "none"),
    ],
)
def test_a_step_that_fails_does_so_in_its_own_stage(step: str, kind: str, words: str) -> None:
    done = on_cpu("jax", step)
    assert (done.kind, done.stage) == (kind, "step"), done
    assert done.problem is not None
    assert words in done.problem["message"]


def test_a_step_that_hangs_is_ended() -> None:
    class Clock:
        """It stands still until the step runs."""

        now = 0.0
        runs = False

        def on_stage(self, stage: str) -> None:
            self.runs = stage == "cpu: step"

        def monotonic(self) -> float:
            self.now += 100.0 if self.runs else 0.0
            return self.now

    clock = Clock()
    done = on_cpu("jax", "hangs", clock=clock, on_stage=clock.on_stage)
    assert (done.kind, done.stage, done.ended) == ("timeout", "step", True)
