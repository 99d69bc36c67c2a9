"""`tpuwatch advise` as a process: a profile as a package in xprof's place reads it, wrong use, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pid_fifo import PAUSES, SECONDS, has_ended, process_of

# What xprof says of a TPU's steps, a third of which it is idle.
COLUMNS = {"stepnum": "1", "tcComputeTimeMs": 6.0, "tcInfeedTimeMs": 1.0, "tcIdleTimeMs": 3.0}
XPROF = f"""
import json
ROW = {COLUMNS!r}
def table(row, **properties):
    cells = [{{"v": value}} for value in row.values()]
    return {{"p": properties, "cols": [{{"id": name}} for name in row], "rows": [{{"c": cells}}]}}
def xspace_to_tool_data(files, tool, options):
    everywhere = {{"device_core_count": "1", "hardware_type": "TPU", "device_type": "TPU v5 lite"}}
    everywhere.update(device_idle_time_percent="30.0%", mxu_utilization_percent="50%")
    operation = {{"host_or_device": "Device", "type": "dot", "operation": "dot", "device_total_self_time_percent": 1.0}}
    made = {{
        "overview_page": [table({{}}, **everywhere), table(ROW)],
        "input_pipeline_analyzer": [table({{}})],
        "framework_op_stats": [table(operation)],
        "op_profile": {{"byProgram": {{"children": []}}}},
    }}
    return json.dumps(made[tool]), "application/json"
"""
TRAIN = "import tensorflow as tf\nds = tf.data.Dataset.range(9)\nds = ds.batch(8)\nmodel.compile(optimizer='adam')\n"


def advise(directory: Path, *words: str) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{directory}/packages", "PID_FIFO": f"{directory}/pid"}
    return subprocess.Popen(
        [sys.executable, "-m", "tpuwatch", "advise", *words],
        env=environ,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(directory: Path, *words: str) -> tuple[int, Any, str]:
    """Exit status, document and standard error."""
    with advise(directory, *words, "--json") as process:
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, json.loads(out), err


# An XSpace of one plane of one line of one event.
TRACE = b"\x0a\x06\x1a\x04\x22\x02\x08\x01"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    package = tmp_path / "packages" / "xprof" / "convert"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "raw_to_tool_data.py").write_text(XPROF)
    (tmp_path / "train.py").write_text(TRAIN)
    trace = tmp_path / "trace" / "host.xplane.pb"
    trace.parent.mkdir()
    trace.write_bytes(TRACE)
    return trace.parent


def test_a_profile_and_a_source_are_advised_on_together(tmp_path: Path, profile: Path) -> None:
    words = ("--profile", str(profile), "--profile-python", sys.executable, "--source", "train.py")
    status, document, err = answer(tmp_path, *words, "--html", "page.html")
    assert status == 0, err
    (result,) = document["results"]
    gains = {one["id"]: one["gain"] for one in result["findings"]}
    assert gains["device_idle"] == 0.3
    assert gains["waits_for_input"] == 0.1
    assert gains["prefetch"] == pytest.approx(0.4)  # what the device waits, in infeed and idle
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert (result["tpu"], result["profile"]["hardware"]) == ("v5e-1", "TPU v5 lite")
    page = (tmp_path / "page.html").read_text()
    assert "The device is idle for 30% of the time" in page


def test_a_profile_that_nobody_can_read_is_said_before_anything_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "a.xplane.pb").write_bytes(TRACE)
    words = ("train:step", "--tpu", "v5e-1", "--profile", "a.xplane.pb", "--profile-python", sys.executable)
    status, document, err = answer(tmp_path, *words)
    assert status == 3
    assert "cannot import xprof" in document["error"]
    assert "--profile-python" in err


def test_what_is_no_option_is_refused(tmp_path: Path) -> None:
    with advise(tmp_path, "--shapes", "f32[8]") as process:
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "--shape" in err


def test_ctrl_c_leaves_no_compiler_behind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "jax.py").write_text(PAUSES)
    words = ("train:step", "--tpu", "v5e-1", "--python", sys.executable, "--memory-limit", "2GiB")
    with advise(tmp_path, *words) as process:
        child = process_of(tmp_path / "pid", process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert has_ended(child), "the compiler goes on"
