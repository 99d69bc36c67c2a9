"""The examples of docs/heartbeats.md with the real frameworks, in the environment that has them."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.standins.heartbeat_examples import EXAMPLES, FRAMEWORKS, heartbeats_of

PYTHON = os.environ.get("TPUWATCH_PREFLIGHT_PYTHON", "")
STEPS = {"jax": 100, "torch": 8, "keras": 16}

pytestmark = pytest.mark.skipif(not PYTHON, reason="TPUWATCH_PREFLIGHT_PYTHON names no environment with frameworks")


@pytest.mark.parametrize(
    "framework", [name if name == "jax" else pytest.param(name, marks=pytest.mark.long) for name in FRAMEWORKS]
)
def test_an_example_sends_its_last_step(framework: str) -> None:
    if subprocess.run([PYTHON, "-c", f"import {framework}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{framework} is not installed there")
    said = heartbeats_of(EXAMPLES[framework], PYTHON, JAX_PLATFORMS="cpu", KERAS_BACKEND="jax", TPU_SKIP_MDS_QUERY="1")
    assert max(message["step"] for message in said) == STEPS[framework]
    assert said[-1]["done"] is True
    assert any("loss" in message["numbers"] for message in said)
