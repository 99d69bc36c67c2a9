"""The program that is compiled: of which kind it is, and what all kinds have."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from .arguments import Arguments
from .errors import StopError
from .jax_program import JaxProgram
from .keras_program import KerasProgram
from .named import named
from .stablehlo_program import StablehloProgram
from .tensorflow_program import TensorFlowProgram
from .torch_program import TorchProgram
from .torch_step import hide_frames, holds_torch, without_values

if TYPE_CHECKING:
    from .tpu import Tpu, Traced

_STABLEHLO = (".mlir", ".stablehlo", ".mlirbc")


class Traceable(Protocol):
    """A program for a TPU."""

    @property
    def sharded(self) -> bool:
        """Whether its arguments are spread over the devices; else it runs on one."""

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        """With a batch (None: its own), and with a change: a name of `change.py`.

        Raises StopError for what it cannot be, and what the user's code raises.
        """


def program_of(tpu: Tpu, request: dict[str, Any]) -> Traceable:
    """The program that is named, by what it is."""
    text = request["function"]
    if text.endswith(_STABLEHLO):
        return StablehloProgram(tpu, text)
    found = named(text)
    if inspect.isclass(found):
        raise StopError(
            "usage",
            f"{text} is a class, and a class computes nothing. Name a training step or a forward pass with its --args "
            "or --shape; or, of Keras and PyTorch, a function without parameters that makes the model",
        )
    arguments = Arguments(tpu, request)
    hide_frames()
    makes = inspect.isfunction(found) and not inspect.signature(found).parameters
    if makes:
        with without_values():
            found = found()  # it makes a model
    if holds_torch(found):
        return TorchProgram(tpu, found, arguments)
    if hasattr(found, "stateless_call"):
        return KerasProgram(tpu, found, arguments)
    if hasattr(found, "experimental_get_compiler_ir"):
        return TensorFlowProgram(tpu, found, arguments)
    if not callable(found):
        was = (
            "takes no arguments, so it was called to make a model, and made none"
            if makes
            else "is no function or model"
        )
        raise StopError(
            "usage",
            f"{text} {was}. Name a function that takes arrays and returns arrays, such as the training step, with its "
            "--args or --shape; or a function without parameters that returns a model of Keras or PyTorch",
        )
    if not arguments.given and _takes(found):
        raise StopError("usage", f"{text} takes {', '.join(_takes(found))}: give its arguments with --args or --shape")
    return JaxProgram(tpu, found, arguments, request["donate"])


def _takes(function: Any) -> list[str]:
    """The names of the arguments that it cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    each = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in each]
