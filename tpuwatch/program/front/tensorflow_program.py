"""A function of TensorFlow, by the StableHLO that it makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import change
from .errors import StopError

if TYPE_CHECKING:
    from .arguments import Arguments
    from .tpu import Tpu, Traced

_XLA = "XLA_CPU_JIT"


class TensorFlowProgram:
    """A tf.function with static shapes, on one device."""

    sharded = False

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments) -> None:
        import tensorflow as tf

        self._tpu, self._arguments = tpu, arguments
        self._signature = function.input_signature
        self._function = tf.function(
            function.python_function, jit_compile=True, input_signature=self._signature, autograph=True
        )
        self._tensorflow = tf

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a tf.function cannot be changed so")
        given = self._arguments.of(batch) if self._arguments.given else self._signature
        if given is None:
            raise StopError(
                "usage", "this tf.function has no input_signature: give its arguments with --args or --shape"
            )
        specs = [self._tensorflow.TensorSpec(one.shape, one.dtype) for one in given]
        if any(None in tuple(spec.shape) for spec in specs):
            raise StopError("usage", "a TPU needs static shapes: give all sides with --args or --shape")
        concrete = self._function.get_concrete_function(*specs).graph
        _require_static(concrete.variables)
        tensors = [self._tensor(variable.name, variable, "weights") for variable in concrete.variables]
        tensors += [self._tensor(spec.name or "", spec, "inputs") for spec in specs]
        try:
            module = self._function.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
        except Exception as error:
            kernels = _kernels(concrete)
            lacking = ", ".join(kernels["without"])
            if not lacking:
                raise
            raise StopError("program", f"XLA has no kernel for {lacking}: {str(error)[:1000]}", kernels) from error
        kernels = _kernels(concrete)
        return self._tpu.traced(self._tpu.stablehlo_compiler(module), tensors, changed, kernels)

    def _tensor(self, path: str, spec: Any, part: str) -> dict[str, Any]:
        sides = [int(side) for side in spec.shape]
        size = spec.dtype.size
        for side in sides:
            size *= side
        one = {"path": path, "dtype": spec.dtype.name, "bytes": size, "shape": sides}
        return {**one, "part": part, "batch_side": None}


def _require_static(variables: Any) -> None:
    """Raises StopError for a variable whose shape may change: each new shape would be another program."""
    for one in variables:
        if not one.shape.is_fully_defined():
            raise StopError(
                "program",
                f"a TPU needs static shapes: the variable {one.name} has the shape {one.shape} (validate_shape=False, "
                "or shape= with None). Give it all sides, as large as they become, and mask what does not count",
            )


def _kernels(concrete: Any) -> dict[str, Any]:
    """The ops of a TensorFlow graph and its functions by their number, and those for which XLA has no kernel.

    The stock wheel registers none for TPUs; those for XLA on a CPU are of the same ops, and are registered when
    something is compiled for the first time.
    """
    from tensorflow.python.framework import kernels

    definition = concrete.as_graph_def()
    nodes = [*definition.node, *(node for body in definition.library.function for node in body.node_def)]
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op] = counts.get(node.op, 0) + 1
    without = []
    for name in sorted(counts):
        registered = kernels.get_registered_kernels_for_op(name).kernel
        if registered and name != "Placeholder" and all(one.device_type != _XLA for one in registered):
            without.append(name)
    return {"counts": counts, "without": without}
