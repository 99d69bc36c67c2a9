"""Changes of a program that are compiled to see what they would give: bfloat16, rematerialisation, sharding."""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BFLOAT16 = "bfloat16"
REMAT = "remat"
SPREAD_BATCH = "spread-batch"
SPREAD_ALL = "spread-all"
SPREAD = (SPREAD_BATCH, SPREAD_ALL)
_FLOAT = re.compile(r"\bf32\b|(?<=x)f32\b")
_HEX = re.compile(r"dense<0x([0-9A-Fa-f]{8})> : (tensor<[^>]*f32>)")
_switched: set[str] = set()


def prepare(jax: Any) -> None:
    """Before the user's code is imported: `grad` and `value_and_grad` rematerialise while that is switched on."""
    jax.grad = _rematerialising(jax, jax.grad)
    jax.value_and_grad = _rematerialising(jax, jax.value_and_grad)


@contextmanager
def switched_on(jax: Any, changed: str) -> Iterator[None]:
    """While it lasts, programs are traced with the change."""
    _switched.add(changed)
    jax.clear_caches()
    try:
        yield
    finally:
        _switched.discard(changed)
        jax.clear_caches()


def _rematerialising(jax: Any, original: Any) -> Any:
    """A gradient that keeps only the results of matrix products, and computes the rest again."""

    @functools.wraps(original)
    def transform(function: Any, argnums: Any = 0, *rest: Any, **options: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        def again(*given: Any, **named: Any) -> Any:
            def inner(*chosen: Any) -> Any:
                every = list(given)
                for number, value in zip(numbers, chosen, strict=True):
                    every[number] = value
                return function(*every, **named)

            policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
            return jax.checkpoint(inner, policy=policy)(*[given[number] for number in numbers])

        plain = original(function, argnums, *rest, **options)
        changed = original(again, argnums, *rest, **options)

        @functools.wraps(plain)
        def call(*given: Any, **named: Any) -> Any:
            return (changed if REMAT in _switched else plain)(*given, **named)

        return call

    return transform


def in_bfloat16(module: Any) -> bytes:
    """The module with bfloat16 in the place of float32, its arguments too: of it, the temporaries count."""
    text = module.get_asm(enable_debug_info=False, large_elements_limit=None)
    text = _HEX.sub(lambda found: f"dense<0x{found[1][:4]}> : {found[2]}", text)
    return _FLOAT.sub("bf16", text).encode()


def spread(jax: Any, mesh: Any, given: Any, other: Any, *, weights: bool) -> Any:
    """The shapes of `given` over all devices of a mesh with one axis: by the batch, the side by which `other` differs,
    and with `weights` what has no batch by its largest side that can be shared out.

    Raises ValueError where no batch is known, or none that can be shared out.
    """
    (axis,), count = mesh.axis_names, mesh.devices.size
    if other is None or count < 2:
        raise ValueError("the batch is not known, or there is one device")
    leaves, tree = jax.tree_util.tree_flatten(given)
    others = jax.tree_util.tree_leaves(other)
    placed, found = [], False
    for leaf, two in zip(leaves, others, strict=True):
        shape = tuple(getattr(leaf, "shape", ()))
        side = next((n for n, pair in enumerate(zip(shape, two.shape, strict=True)) if pair[0] != pair[1]), None)
        if side is not None:
            found = True
            if shape[side] % count:
                raise ValueError(f"a batch of {shape[side]} cannot be shared out to {count} devices")
        elif weights:
            sides = [n for n, length in enumerate(shape) if length % count == 0]
            side = max(sides, key=lambda n: shape[n], default=None)
        names = [axis if n == side else None for n in range(len(shape))]
        where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))
        placed.append(jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=where))
    if not found:
        raise ValueError("no argument changes with the batch")
    return jax.tree_util.tree_unflatten(tree, placed)
