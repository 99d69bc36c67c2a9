"""A model of Keras on JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import change
from .errors import StopError

if TYPE_CHECKING:
    from .arguments import Arguments
    from .tpu import Tpu, Traced


class KerasProgram:
    """A Keras model: the training step that `fit` runs if it is compiled, else the forward pass."""

    sharded = False

    def __init__(self, tpu: Tpu, model: Any, arguments: Arguments) -> None:
        import keras

        if keras.backend.backend() != "jax":
            raise StopError(
                "usage", f"Keras runs on {keras.backend.backend()} here: only on JAX it can be compiled without a TPU"
            )
        self._tpu, self._model, self._arguments = tpu, model, arguments

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        jax, model, place = self._tpu.jax, self._model, self._tpu.one
        if changed in change.SPREAD:
            raise StopError("usage", "a Keras model is compiled for one device")
        data = self._data(batch)
        trained = getattr(model, "optimizer", None) is not None
        if trained:
            model._symbolic_build(data_batch=data)  # noqa: SLF001 (as fit does; held by tests/proof/preflight)
            state = [model.trainable_variables, model.non_trainable_variables]
            state += [model.optimizer.variables, model.metrics_variables]
            step, given = model.train_step, (state, data)
        else:
            state = [model.trainable_variables, model.non_trainable_variables]
            step, given = model.stateless_call, (*state, data[0])
        jitted = jax.jit(step, donate_argnums=0 if trained else ())
        tensors = self._tpu.tensors(data if trained else data[0], "inputs")
        for part, variables in zip(("weights", "state", "optimizer", "state"), state, strict=False):
            tensors += [
                {**one, "path": variable.path} for one, variable in _named_variables(self._tpu, variables, part)
            ]
        given = self._tpu.abstract(given, place)
        return self._tpu.traced(self._tpu.compiler(jitted, given, {}), tensors, changed)

    def _data(self, batch: int | None) -> Any:
        """Inputs, and targets where there is a loss: as the user gives them, or as the model's own shapes say."""
        jax = self._tpu.jax
        if self._arguments.given:
            return tuple(self._tpu.abstract(self._arguments.of(batch), self._tpu.one))
        inputs = getattr(self._model, "inputs", None)
        if not inputs:
            raise StopError(
                "usage", "this model has no shapes of its own: name a function with --args that returns (x, y)"
            )

        def shape(tensor: Any) -> Any:
            sides = [(batch or 1) if place == 0 else side for place, side in enumerate(tensor.shape)]
            if None in sides:
                open_shape = f"the shape {tuple(tensor.shape)} is open: give the model all sides but the batch, or name"
                raise StopError("usage", f"{open_shape} a function with --args that returns (x, y)")
            return jax.ShapeDtypeStruct(tuple(sides), jax.numpy.dtype(tensor.dtype))

        x = [shape(tensor) for tensor in inputs]
        y = [shape(tensor) for tensor in self._model.outputs]
        if "sparse" in str(getattr(self._model, "loss", "")).lower():
            y = [jax.ShapeDtypeStruct(one.shape[:-1], jax.numpy.dtype("int32")) for one in y]
        return (x[0] if len(x) == 1 else x, y[0] if len(y) == 1 else y)


def _named_variables(tpu: Tpu, variables: Any, part: str) -> list[tuple[dict[str, Any], Any]]:
    found = [(tpu.tensors(tpu.jax.ShapeDtypeStruct(tuple(one.shape), one.dtype), part), one) for one in variables]
    return [(tensors[0], one) for tensors, one in found if tensors]
