"""The devices of a topology, and what the compiler does for them."""

from __future__ import annotations

from typing import Any

from . import change, memory, stablehlo
from .errors import StopError

_SIDE = 1 << 20  # of a matrix that no TPU has room for


class Traced:
    """A program ready to compile: its StableHLO, the function that compiles it, and its arguments, largest first."""

    def __init__(self, module: Any, compile_it: Any, tensors: list[dict[str, Any]], kernels: Any = None) -> None:
        self.module = module
        self.compile = compile_it
        self.tensors = sorted(tensors, key=lambda one: -one["bytes"])
        self.kernels = kernels  # of a TensorFlow graph: how often each op, and those that XLA has no kernel for


class Tpu:
    """The devices of a topology, and what the compiler does for them."""

    def __init__(self, jax: Any, topology: str, options: dict[str, Any]) -> None:
        from jax.experimental import topologies

        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
        except Exception as error:
            raise StopError("topology", str(error).strip().splitlines()[0]) from error
        self.jax = jax
        self.devices = found.devices
        self.mesh = jax.sharding.Mesh(self.devices, ("data",))
        self.one = jax.sharding.SingleDeviceSharding(self.devices[0])
        self.every = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())

    def abstract(self, tree: Any, placed: Any) -> Any:
        """The shapes of a tree of arrays, each where its own sharding says, or without one for this TPU as `placed`."""

        def of(leaf: Any) -> Any:
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                return leaf
            own = getattr(leaf, "sharding", None)
            where = own if own is not None and set(own.device_set) <= set(self.devices) else placed
            key = self.jax.dtypes.issubdtype(leaf.dtype, self.jax.dtypes.extended)  # of random numbers
            kind = leaf.dtype if key else self.jax.numpy.dtype(leaf.dtype)
            return self.jax.ShapeDtypeStruct(tuple(leaf.shape), kind, sharding=where)

        return self.jax.tree_util.tree_map(of, tree)

    def tensors(self, tree: Any, part: str | None = None, other: Any = None) -> list[dict[str, Any]]:
        """The arrays of a tree of shapes. `part` is what they are to the program; `other` the same tree of another
        batch: `batch_side` is the side that differs."""
        flat = self.jax.tree_util.tree_flatten_with_path(tree)[0]
        others = self.jax.tree_util.tree_leaves(other) if other is not None else []
        found = []
        for place, (path, leaf) in enumerate(flat):
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                continue
            shape, sharding = tuple(leaf.shape), getattr(leaf, "sharding", None)
            local = sharding.shard_shape(shape) if sharding is not None else shape
            size = leaf.dtype.itemsize
            for side in local:
                size *= side
            one = {"path": self.jax.tree_util.keystr(path), "dtype": str(leaf.dtype), "bytes": size}
            found.append({**one, "shape": list(local), "part": part, "batch_side": differs(leaf, others, place, flat)})
        return found

    def compiler(self, function: Any, positional: Any, named: Any) -> Any:
        """A traced function's StableHLO, and what compiles it and returns the compiler's figures."""
        if is_nnx(function):
            lowered = function.lower(*positional, **named).lowered
        else:
            lowered = function.trace(*positional, **named).lower(lowering_platforms=("tpu",))
        return lowered.compiler_ir("stablehlo").operation, lambda: lowered.compile().memory_analysis()

    def stablehlo_compiler(self, module: Any) -> Any:
        """The same for a module of StableHLO, text or bytecode, on one device.

        JAX has no public way for it; tests/proof/preflight holds this one.
        """
        import numpy as np
        from jax._src.compiler import get_compile_options
        from jax._src.interpreters.mlir import make_ir_context
        from jaxlib import _jax

        device = self.devices[0]
        with make_ir_context() as context:
            parsed = stablehlo.parse(context, module)
        options = get_compile_options(
            num_replicas=1, num_partitions=1, device_assignment=np.array([[device.id]], dtype=int)
        )
        client = device.client
        devices = _jax.DeviceList((device,))
        return parsed.operation, lambda: client.compile(parsed, devices, options).get_compiled_memory_stats()

    def traced(self, compiler: Any, tensors: Any, changed: str | None, kernels: Any = None) -> Traced:
        """A program as it is, or with bfloat16 in the place of float32, which is a change of its StableHLO."""
        module, compile_it = compiler
        if changed == change.BFLOAT16:
            module, compile_it = self.stablehlo_compiler(change.in_bfloat16(module))
        return Traced(module, compile_it, tensors, kernels)

    def available(self) -> int | None:
        """The HBM of a device that programs get, by asking the compiler for too much."""
        large = self.jax.ShapeDtypeStruct((_SIDE, _SIDE), self.jax.numpy.float32, sharding=self.one)
        try:
            self.compiler(self.jax.jit(lambda value: value + 1), (large,), {})[1]()
        except Exception as error:
            return memory.available_bytes(str(error))
        return None


def is_nnx(function: Any) -> bool:
    """Whether it is what `flax.nnx.jit` returns: it has no trace of its own, and returns what it changes in place."""
    return hasattr(function, "jitted_fn")


def differs(leaf: Any, others: list[Any], place: int, flat: list[Any]) -> int | None:
    """The side of a leaf that is another with another batch."""
    if len(others) != len(flat) or not hasattr(others[place], "shape"):
        return None
    pairs = list(zip(leaf.shape, others[place].shape, strict=False))
    return next((side for side, (one, two) in enumerate(pairs) if one != two), None)
