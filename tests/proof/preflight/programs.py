"""Programs to compile, as users write them."""

from __future__ import annotations

from typing import Any

WIDTH, LENGTH, LAYERS = 2048, 1024, 4


def arguments(batch: int = 8) -> Any:
    """Weights and inputs of a stack of dense layers."""
    import jax.numpy as jnp

    weights = {f"w{number}": jnp.zeros((WIDTH, WIDTH), jnp.bfloat16) for number in range(LAYERS)}
    return weights, jnp.zeros((batch, LENGTH, WIDTH), jnp.bfloat16)


def sharded_arguments(mesh: Any, batch: int = 8) -> Any:
    """The same, with the batch spread over all devices."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    weights, inputs = jax.eval_shape(lambda: arguments(batch))
    spread = NamedSharding(mesh, PartitionSpec("data"))
    return weights, jax.ShapeDtypeStruct(inputs.shape, inputs.dtype, sharding=spread)


def step(weights: Any, inputs: Any) -> Any:
    """A step of gradient descent."""
    import jax

    gradients = jax.grad(loss)(weights, inputs)
    return jax.tree_util.tree_map(lambda weight, gradient: weight - 0.01 * gradient, weights, gradients)


def wrong(weights: Any, inputs: Any) -> Any:
    """A program with a mistake: there is no such weight."""
    return weights["none"] @ inputs


def times(left: Any, right: Any) -> Any:
    """A product."""
    return left @ right


def named(activation: str, key: Any, inputs: Any) -> Any:
    """A layer that is told its activation by name, and has random numbers."""
    import jax

    return activation, getattr(jax.nn, activation)(inputs + jax.random.normal(key, inputs.shape))


def named_arguments() -> Any:
    import jax
    import jax.numpy as jnp

    return "gelu", jax.random.key(0), jnp.zeros((8, 128))


def model() -> Any:
    """A small Keras classifier."""
    import keras

    made = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(32, 3),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return made


def loss(weights: Any, inputs: Any) -> Any:
    import jax

    for weight in weights.values():
        inputs = jax.nn.relu(inputs @ weight)
    return inputs.astype("float32").mean()


_MESH: list[Any] = []


def split_arguments(mesh: Any, batch: int = 1024) -> Any:
    """Inputs spread over the devices, and weights on each."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    _MESH[:] = [mesh]
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*names)) for names in (["data"], []))
    inputs = jax.ShapeDtypeStruct((batch, 512), "bfloat16", sharding=spread)
    return inputs, jax.ShapeDtypeStruct((512, 256), "bfloat16", sharding=everywhere)


def split(inputs: Any, weights: Any) -> Any:
    """A product by `shard_map`: each device has its own rows."""
    import jax
    from jax.sharding import PartitionSpec

    rows = PartitionSpec("data")
    return jax.shard_map(times, mesh=_MESH[0], in_specs=(rows, PartitionSpec()), out_specs=rows)(inputs, weights)


def grouped(inputs: Any, weights: Any, sizes: Any) -> Any:
    """A product of each group of rows with its own weights, as a mixture of experts has it."""
    import jax

    return jax.lax.ragged_dot(inputs, weights, sizes)


def by_kernel(inputs: Any, weights: Any) -> Any:
    """A product in a kernel of Pallas, with operands that are in the memory of the chip as a whole."""
    import jax
    from jax.experimental import pallas

    def kernel(left: Any, right: Any, out: Any) -> None:
        out[...] = jax.numpy.dot(left[...], right[...])

    result = jax.ShapeDtypeStruct((inputs.shape[0], weights.shape[1]), inputs.dtype)
    return pallas.pallas_call(kernel, out_shape=result)(inputs, weights)


def with_a_callback(inputs: Any) -> Any:
    """A step that asks the host."""
    import jax

    return jax.pure_callback(lambda value: value, jax.ShapeDtypeStruct(inputs.shape, inputs.dtype), inputs)


def nothing(name: str = "run") -> None:
    """A function of no arrays."""


class Trainer:
    """A class of no framework."""
