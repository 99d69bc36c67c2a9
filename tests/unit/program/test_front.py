"""What the user's interpreter runs: without JAX, or with one that is held up."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.program import front
from tpuwatch.program.preflight import FRONT

PARENT = """
import json, subprocess, sys
request, front, report = sys.argv[1:]
child = subprocess.Popen([sys.executable, front, request], pass_fds=[int(report)], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def test_it_ends_with_the_process_that_started_it_however_that_ends(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    (tmp_path / "jax.py").write_text(f"open({str(held)!r}).read()\n")
    reader, writer = os.pipe()
    command = [sys.executable, "-c", PARENT, json.dumps({"report": writer}), str(FRONT), str(writer)]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen(command, pass_fds=[writer], stdout=subprocess.PIPE, text=True, env=environ)
    os.close(writer)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    with open(reader) as reports:
        assert json.loads(reports.readline()) == {"stage": "import"}  # from here on it waits in the import of JAX
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([child], [], [], 60)
    os.close(child)
    parent.stdout.close()
    assert ended, "it goes on without anybody"


def asked(directory: Path, **request: Any) -> list[Any]:
    """What it reports, with the modules of a directory."""
    reader, writer = os.pipe()
    command = [sys.executable, str(FRONT), json.dumps({"report": writer, **request})]
    environ = {**os.environ, "PYTHONPATH": str(directory)}
    subprocess.run(command, pass_fds=[writer], env=environ, stdin=subprocess.DEVNULL, timeout=60, check=False)
    os.close(writer)
    with open(reader) as reports:
        return [json.loads(line) for line in reports]


@pytest.mark.parametrize("has_torch", [True, False])
def test_an_interpreter_without_jax_is_told_what_pytorch_takes(tmp_path: Path, has_torch: bool) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('no JAX')\n")
    if has_torch:
        (tmp_path / "torch.py").touch()
    error = asked(tmp_path)[-1]["error"]
    assert error["kind"] == "interpreter"
    assert ("torchax" in error["message"]) == has_torch


def test_a_module_of_pytorch_takes_torchax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_has", lambda module: module != "torchax")
    with pytest.raises(front.StopError, match="PyTorch without torchax") as stopped:
        front.TorchProgram(None, None, None)  # type: ignore[arg-type]
    assert stopped.value.kind == "interpreter"


def test_the_users_line_is_that_of_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile("\n\nraise KeyError(7)", str(tmp_path / "train.py"), "exec")
    try:
        try:
            exec(program)  # noqa: S102 (it is this text)
        except KeyError as error:
            raise front.StopError("program", "in other words") from error
    except front.StopError:
        assert front._users_line() == {"file": str(tmp_path / "train.py"), "line": 3}
