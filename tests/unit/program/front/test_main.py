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


def installed(directory: Path, **modules: str) -> None:
    """Modules with these texts, where `asked` has them found."""
    (directory / "lib").mkdir()
    for name, text in modules.items():
        (directory / "lib" / f"{name}.py").write_text(text)


def asked(directory: Path, **request: Any) -> list[Any]:
    """What it reports in a directory, with the modules of its `lib` and no tpuwatch."""
    reader, writer = os.pipe()
    command = [sys.executable, "-S", str(FRONT), json.dumps({"report": writer, **request})]
    environ = {**os.environ, "PYTHONPATH": str(directory / "lib")}
    stdin = subprocess.DEVNULL
    subprocess.run(command, pass_fds=[writer], env=environ, cwd=directory, stdin=stdin, timeout=60, check=False)
    os.close(writer)
    with open(reader) as reports:
        return [json.loads(line) for line in reports]


@pytest.mark.parametrize("has_torch", [True, False])
def test_an_interpreter_without_jax_is_told_what_pytorch_takes(tmp_path: Path, has_torch: bool) -> None:
    installed(tmp_path, jax="raise ImportError('no JAX')\n", **({"torch": ""} if has_torch else {}))
    error = asked(tmp_path)[-1]["error"]
    assert error["kind"] == "interpreter"
    assert ("torchax" in error["message"]) == has_torch


JAX = """
import sys, types
class Any:  # its attributes, its items and what it returns are itself
    def __getattr__(self, name): return self
    def __call__(self, *given, **named): return self
    def __getitem__(self, key): return self
jax = Any()
jax.__spec__ = jax.__path__ = None
jax.experimental = types.ModuleType("jax.experimental")
jax.experimental.topologies = jax
sys.modules.update({name: getattr(jax, "x") for name in ("jax", "jax.extend", "jax.extend.source_info_util")})
sys.modules["jax.experimental"] = jax.experimental
"""
OWN = sorted({path.stem for path in FRONT.parent.glob("[a-z]*.py")})
TRAIN = f"""
import {", ".join(OWN)}
assert all(module.of_the_user for module in ({", ".join(OWN)}))
raise RuntimeError("all are mine")
"""


@pytest.mark.parametrize("safe", ["", "1"])
def test_the_users_modules_may_have_the_names_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: str
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", safe)
    installed(tmp_path, jax=JAX, **dict.fromkeys(OWN, "of_the_user = True\n"))
    (tmp_path / "train.py").write_text(TRAIN)
    request = {"topology": "v5e:2x2", "options": {}, "function": "train:step", "arguments": None, "shapes": []}
    error = asked(tmp_path, **request)[-1]["error"]
    assert error["message"] == "RuntimeError: all are mine"
    assert error["place"] == {"file": str(tmp_path / "train.py"), "line": 4}
