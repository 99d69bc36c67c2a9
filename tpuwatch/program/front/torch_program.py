"""A program of PyTorch, by torchax."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import change, torch_step
from .errors import StopError
from .tpu import differs

if TYPE_CHECKING:
    from .arguments import Arguments
    from .tpu import Tpu, Traced


class TorchProgram:
    """A module of PyTorch, or a function that is called with modules, optimizers and tensors, on one device."""

    sharded = False

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments) -> None:
        if find_spec("torchax") is None:
            raise StopError(
                "interpreter",
                f"{sys.executable} has PyTorch without torchax, by which it is compiled here: install torchax there, "
                "or export the program to StableHLO and give the file",
            )
        self._tpu, self._function, self._arguments = tpu, function, arguments

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a program of PyTorch cannot be changed so")
        tpu, jax = self._tpu, self._tpu.jax
        other = self._arguments.of_another(batch)
        try:
            step = torch_step.TorchStep(self._function, self._arguments.of(batch))
        except torch_step.ValueNeededError as error:
            raise StopError("program", str(error)) from error
        given = torch_step.tensors_of(step.given)
        others = [] if other is None else torch_step.tensors_of(other)
        sides = {id(one): differs(one, others, place, given) for place, one in enumerate(given)}
        shapes = [torch_step.shape_of(jax, one.tensor, tpu.one) for one in step.lifted]
        tensors = [
            {**tpu.tensors(shape, one.part)[0], "path": one.path, "batch_side": sides.get(id(one.tensor))}
            for one, shape in zip(step.lifted, shapes, strict=True)
        ]
        jitted = jax.jit(step, donate_argnums=step.donated)
        return tpu.traced(tpu.compiler(jitted, shapes, {}), tensors, changed)
