"""A program of PyTorch, where there is none; tests/proof/preflight compiles real ones."""

from __future__ import annotations

import pytest

from tpuwatch.program.front import torch_program
from tpuwatch.program.front.errors import StopError


def test_a_module_of_pytorch_takes_torchax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_program, "find_spec", lambda _: None)
    with pytest.raises(StopError, match="PyTorch without torchax") as stopped:
        torch_program.TorchProgram(None, None, None)  # type: ignore[arg-type]
    assert stopped.value.kind == "interpreter"
