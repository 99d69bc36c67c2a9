"""Traces that JAX and TensorFlow write, read by the real xprof through the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.proof.preflight import traces
from tests.proof.preflight.test_preflight import PYTHON

XPROF = Path(os.environ.get("TPUWATCH_PROFILE_PYTHON", ROOT / ".venv-profile" / "bin" / "python"))
SECONDS = 600

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (PYTHON.is_file() and XPROF.is_file()),
        reason=f"{PYTHON} or {XPROF} is not there: make preflight-all makes them",
    ),
]


def traced(framework: str, directory: Path) -> Path:
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    command = [str(PYTHON), traces.__file__, framework, str(directory)]
    subprocess.run(command, env=environ, check=True, timeout=SECONDS, capture_output=True)
    return directory


def profile(path: Path) -> tuple[int, Any, str]:
    """Exit status, document and standard error of the command."""
    command = [sys.executable, "-m", "tpuwatch", "profile", str(path), "--python", str(XPROF), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_the_steps_of_jax_are_read_and_nothing_is_written_beside_the_trace(tmp_path: Path) -> None:
    traced("jax", tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, document, err = profile(tmp_path)
    assert code in (0, 1), err
    figures = document["figures"]
    assert (figures["steps"], figures["hardware"], figures["idle_share"]) == (traces.STEPS, "CPU_ONLY", None)
    assert figures["step_seconds"] > 0
    shares = [figures[name] for name in ("input_share", "host_share", "compile_share", "other_share")]
    assert sum(shares) == pytest.approx(1.0, abs=0.05)
    assert sorted(tmp_path.rglob("*")) == before


def test_tensorflows_slow_pipeline_is_found_and_named(tmp_path: Path) -> None:
    code, document, err = profile(traced("tensorflow", tmp_path))
    assert code == 1, err
    finding = next(one for one in document["findings"] if one["name"] == "waits_for_input")
    assert finding["number"] >= 0.05
    assert "Map" in finding["summary"]


def test_a_tpus_idle_time_matrix_units_and_kinds_of_operations_are_read(tmp_path: Path) -> None:
    code, document, err = profile(traced("tpu", tmp_path))
    assert code == 1, err
    figures = document["figures"]
    assert (figures["hardware"], figures["steps"]) == ("TPU v5 lite", traces.STEPS)
    assert figures["step_seconds"] == pytest.approx(traces.TPU_STEP_MS / 1000)
    assert (figures["input_share"], figures["idle_share"]) == (pytest.approx(0.1), pytest.approx(0.3))
    assert figures["mxu_share"] == pytest.approx(traces.TPU_FLOPS, rel=0.01)
    assert dict(figures["categories"])["data formatting"] == pytest.approx(2 / 7)
    assert {one["name"] for one in document["findings"]} == {
        "low_mxu",
        "device_idle",
        "data_formatting",
        "waits_for_input",
    }


def test_advice_on_a_program_counts_what_its_profile_measured(tmp_path: Path) -> None:
    trace, program = traced("tpu", tmp_path), "tests.proof.preflight.programs"
    words = [f"{program}:step", "--args", f"{program}:arguments", "--batch", "1", "--tpu", "v5e-1", "--quick"]
    words += ["--python", str(PYTHON), "--profile", str(trace), "--profile-python", str(XPROF), "--json"]
    command = [sys.executable, "-m", "tpuwatch", "advise", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["corrected"][0].startswith("A step took 10 ms")
    gains = {one["id"]: one["gain"] for one in result["findings"]}
    assert gains["device_idle"] == pytest.approx(0.3)
    assert list(gains.values()) == sorted(gains.values(), reverse=True)


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    trace = next(traced("jax", tmp_path).rglob("*.xplane.pb"))
    trace.write_bytes(b"\xff" * 1000)
    code, document, err = profile(trace)
    assert code == 3
    assert "is no profile" in err
    assert "is no profile" in document["error"]
