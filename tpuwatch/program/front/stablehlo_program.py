"""A file of StableHLO, which any front end can have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import change, graph
from .errors import StopError

if TYPE_CHECKING:
    from .tpu import Tpu, Traced


class StablehloProgram:
    """A file of StableHLO."""

    sharded = False

    def __init__(self, tpu: Tpu, path: str) -> None:
        self._tpu = tpu
        try:
            with open(path, "rb") as file:
                self._module = file.read()
        except OSError as error:
            raise StopError("usage", f"{path}: {error.strerror}") from error

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if batch is not None:
            raise StopError("usage", "a StableHLO file has the shapes that it has: leave out --batch and --max-batch")
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a StableHLO file cannot be changed so")
        compiler = self._tpu.stablehlo_compiler(self._module)
        return self._tpu.traced(compiler, graph.arguments(compiler[0]), changed)
