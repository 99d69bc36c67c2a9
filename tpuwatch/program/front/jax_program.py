"""A function of JAX, or of what is built on it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import change
from .torch_program import TorchProgram
from .torch_step import holds_torch
from .tpu import is_nnx

if TYPE_CHECKING:
    from .arguments import Arguments
    from .tpu import Tpu, Traced


class JaxProgram:
    """A function, jitted or not."""

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments, donate: list[int]) -> None:
        self._tpu = tpu
        self._function, self._donate = function, tuple(donate)
        self._is_jitted = is_nnx(function) or callable(getattr(function, "trace", None))
        self._arguments = arguments

    @property
    def sharded(self) -> bool:
        return self._arguments.sharded

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        tpu = self._tpu
        given, other = self._arguments.of(batch), self._arguments.of_another(batch)
        if holds_torch(given):
            return TorchProgram(tpu, self._function, self._arguments).traced(batch, changed)
        placed = tpu.every if self._arguments.sharded else tpu.one
        if changed in change.SPREAD:
            given = change.spread(tpu.jax, tpu.mesh, given, other, weights=changed == change.SPREAD_ALL)
        given = tpu.abstract(given, placed)
        function = self._function
        if not self._is_jitted:
            given, function = self._jitted(given)
        positional, named = ((), given) if isinstance(given, dict) else (tuple(given), {})
        return tpu.traced(tpu.compiler(function, positional, named), tpu.tensors(given, None, other), changed)

    def _jitted(self, given: Any) -> Any:
        """Those of its arguments that `jax.jit` takes, and the function of them, jitted: what is no array, such as the
        name of a layer's activation, is fixed, and not returned."""
        tree_map, plain = self._tpu.jax.tree_util.tree_map, self._function
        taken = tree_map(lambda leaf: leaf if _is_array(leaf) else None, given)
        fixed = tree_map(lambda leaf: None if _is_array(leaf) else leaf, given)

        @functools.wraps(plain)  # JAX looks for its signature, name and place
        def call(*positional: Any, **named: Any) -> Any:
            arrays = named or (list(positional) if isinstance(given, list) else positional)
            whole = tree_map(lambda a, b: b if a is None else a, arrays, fixed, is_leaf=lambda leaf: leaf is None)
            made = plain(**whole) if named else plain(*whole)
            return tree_map(lambda leaf: leaf if _is_array(leaf) else None, made)

        return taken, self._tpu.jax.jit(call, donate_argnums=self._donate)


def _is_array(leaf: Any) -> bool:
    """Whether `jax.jit` takes it."""
    return isinstance(leaf, (bool, int, float, complex)) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
