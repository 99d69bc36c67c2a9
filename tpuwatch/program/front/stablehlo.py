"""A module of StableHLO, as the compiler takes it."""

from __future__ import annotations

import re
from typing import Any

from .errors import StopError

_PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(?P<version>[0-9.]+)\0", re.DOTALL)  # the head of its bytecode


def parse(context: Any, module: Any) -> Any:
    """A module of StableHLO: text, bytecode, or the portable artifact that exporters write.

    Raises StopError for what is none, or has no `main` with static shapes.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    portable = isinstance(module, bytes) and _PORTABLE.match(module)
    try:
        parsed = stablehlo.deserialize_portable_artifact(context, module) if portable else ir.Module.parse(module)
    except Exception as error:
        if portable:
            said, known = portable["version"].decode(), stablehlo.get_current_version()
            message = f"the StableHLO {said} of this file is none that the JAX here can read (it has {known})"
        else:
            message = f"this is no StableHLO: {str(error).strip()[:300]}"
        raise StopError("usage", message) from error
    functions = [one for one in parsed.body.operations if one.operation.name == "func.func"]  # not a mesh, say
    main = [one for one in functions if one.name.value == "main"]
    if not main:
        raise StopError("usage", "this StableHLO has no function named main")
    if any("?" in str(one) for one in main[0].type.inputs):
        raise StopError(
            "usage", "a TPU needs static shapes: the main function of this StableHLO has an argument without"
        )
    _remove_copies(parsed.operation)
    return parsed


def _remove_copies(operation: Any) -> None:
    """Take `mhlo.copy` out, which TensorFlow leaves in its StableHLO and the compiler refuses: a value is its copy."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                if inner.operation.name == "mhlo.copy":
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()
                else:
                    _remove_copies(inner.operation)
