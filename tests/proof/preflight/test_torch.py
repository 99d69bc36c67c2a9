"""Preflight, probe and heartbeats with the real PyTorch and torchax, and a torch_xla that plays its part."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.proof.preflight.test_preflight import PYTHON, only, preflight
from tests.proof.preflight.test_probe import probe
from tpuwatch.progress.receiver import Receiver
from tpuwatch.workload import SOCKET_VARIABLE

PROGRAMS = "tests.proof.preflight.torch_programs"
SECONDS = 300
XLA = 'def get_xla_supported_devices(): return ["cpu:0"]\n'  # a TPU that is the CPU


def _has_torch() -> bool:
    command = [str(PYTHON), "-c", "import torch; from importlib.metadata import version; version('torchax')"]
    return PYTHON.is_file() and subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not _has_torch(), reason=f"{PYTHON} has no PyTorch for a CPU with torchax"),
]


def torch_xla(directory: Path, init: str = "def sync(): pass\n") -> str:
    """A package of that name; returns where it is."""
    (directory / "torch_xla" / "core").mkdir(parents=True)
    (directory / "torch_xla" / "__init__.py").write_text(init)
    (directory / "torch_xla" / "core" / "xla_model.py").write_text(XLA)
    return str(directory)


@pytest.mark.parametrize("name", ["of_words", "of_images"])
def test_a_step_in_jax_computes_what_pytorch_does(name: str) -> None:
    command = [str(PYTHON), "-m", "tests.proof.preflight.torch_values", name]
    environ = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=SECONDS, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 8
    assert {path: value for path, value in found.items() if value > 1e-2} == {}


def test_a_training_step_gives_its_weights_and_the_optimizers_state_away() -> None:
    program = (f"{PROGRAMS}:step", "--args", f"{PROGRAMS}:of_images", "--tpu", "v5e-1")
    status, document = preflight(*program, "--batch", "64")
    trial = only(document)["trial"]
    assert (status, trial["fits"]) == (0, True)
    assert 0 < trial["shared_bytes"] <= trial["outputs_bytes"]
    assert trial["flops"]["matrix_flops"] > 3 * 64 * 16 * 16 * 16 * 27 * 2, "the backward pass too"


def test_a_module_is_compiled_as_its_forward_pass_with_shapes_or_a_factory() -> None:
    program = (f"{PROGRAMS}:images", "--tpu", "v5e-1")
    by_shape = only(preflight(*program, "--shape", "f32[16,3,32,32]")[1])["trial"]
    by_factory = only(preflight(*program, "--args", f"{PROGRAMS}:pictures", "--batch", "16")[1])["trial"]
    assert by_shape["fits"]
    assert by_shape["arguments_bytes"] == by_factory["arguments_bytes"]


def test_a_module_that_is_larger_than_the_machine_and_the_tpu() -> None:
    program = (f"{PROGRAMS}:wide", "--args", f"{PROGRAMS}:wide_input", "--tpu", "v5e-1")
    status, document = preflight(*program, "--memory-limit", "8GiB")
    (finding,) = only(document)["findings"]
    assert (status, finding["cause"]) == (1, "hbm_oom_compile")
    assert finding["details"]["allocations"][0]["size_bytes"] == 4 << 34


def test_a_step_that_looks_at_a_value_is_shown_with_its_line() -> None:
    program = (f"{PROGRAMS}:looks_at_its_loss", "--args", f"{PROGRAMS}:of_images", "--tpu", "v5e-1")
    status, document = preflight(*program)
    problem = only(document)["problem"]
    assert (status, problem["kind"]) == (1, "program")
    lines = Path(problem["place"]["file"]).read_text(encoding="utf-8").splitlines()
    assert ".item()" in lines[problem["place"]["line"] - 1]


def test_a_probe_of_pytorch_alone_with_torchax_and_of_packages_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, document = probe(tmp_path, "--framework", "torch")
    assert (code, document["verdict"]) == (3, "inconclusive")
    assert "--framework jax" in document["summary"]
    broken = torch_xla(tmp_path / "broken", "raise ImportError('_XLAC.so: undefined symbol: _ZN5torch')\n")
    monkeypatch.setenv("PYTHONPATH", broken)
    code, document = probe(tmp_path, "--framework", "torch")
    assert (code, document["verdict"]) == (1, "stack_fault")
    assert "undefined symbol" in document["summary"]


def test_a_probe_goes_through_all_stages_with_torch_xla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{torch_xla(tmp_path / 'own')}:{ROOT}")
    code, document = probe(tmp_path, "--framework", "torch", "--step", "tests.proof.preflight.steps:torch_loss")
    assert (code, document["verdict"]) == (0, "works")
    stages = ["start", "import", "initialise", "compile", "compute", "step"]
    assert [[stage["name"] for stage in one["stages"]] for one in document["attempts"]] == [stages, stages]


LOOP = """
import torch
from tpuwatch.workload import heartbeat, steps

class Waits(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, number): return torch.ones(4)

if __name__ == "__main__":
    if DISTRIBUTED:
        torch.distributed.init_process_group("gloo")
    heartbeat(0, name="before")  # the workers are forked when there is a loop
    model = torch.nn.Linear(4, 1)
    model = torch.nn.parallel.DistributedDataParallel(model) if DISTRIBUTED else model
    loop = steps(torch.utils.data.DataLoader(Waits(), batch_size=8, num_workers=2))
    for number, batch in enumerate(loop):
        loss = model(batch).square().mean()
        loss.backward()
        loop.note(loss=float("nan") if number == 2 else loss.item(), tensor=loss)
"""


def heartbeats(*command: str) -> dict[int, list[dict[str, Any]]]:
    """What a program says, by process."""
    with tempfile.TemporaryDirectory() as directory:
        receiver = Receiver(Path(directory) / "socket")
        environ = {**os.environ, "PYTHONPATH": str(ROOT), SOCKET_VARIABLE: str(receiver.path)}
        subprocess.run([str(PYTHON), *command], env=environ, timeout=SECONDS, check=True)
        said: dict[int, list[dict[str, Any]]] = {}
        for one in receiver.take(1000):
            said.setdefault(one.pid, []).append(json.loads(one.message))
        receiver.close()
    return said


def test_the_workers_of_a_loader_send_nothing(tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(f"DISTRIBUTED = False\n{LOOP}")
    ((_, said),) = heartbeats(str(program)).items()
    assert (said[-1]["step"], said[-1]["done"]) == (4, True)
    assert said[-1]["input_seconds"] > 0
    assert [one["nan"] for one in said if one["nan"]] == [["loss"]]
    assert all("tensor" not in one["numbers"] for one in said)


def test_each_process_of_torchrun_is_a_loop(tmp_path: Path) -> None:
    program = tmp_path / "loop.py"
    program.write_text(f"DISTRIBUTED = True\n{LOOP}")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d")
    said = heartbeats(*launcher, "--rdzv-endpoint", "127.0.0.1:0", str(program))
    assert [one[-1]["step"] for one in said.values()] == [4, 4]
