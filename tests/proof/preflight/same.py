"""One training step in each front end: dense layers, mean squared error, gradient descent."""

from __future__ import annotations

from typing import Any

WIDTH, LAYERS, RATE = 4096, 4, 0.01


def jax_arguments(batch: int = 8) -> Any:
    import jax.numpy as jnp

    params = [(jnp.zeros((WIDTH, WIDTH)), jnp.zeros((WIDTH,))) for _ in range(LAYERS)]
    return params, jnp.zeros((batch, WIDTH)), jnp.zeros((batch, WIDTH))


def jax_step() -> Any:
    """The step, jitted: the weights are given away."""
    import jax

    def loss(params: Any, x: Any, y: Any) -> Any:
        for weight, bias in params:
            x = jax.nn.relu(x @ weight + bias)
        return ((x - y) ** 2).mean()

    def step(params: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        return jax.tree_util.tree_map(lambda old, slope: old - RATE * slope, params, gradients), value

    return jax.jit(step, donate_argnums=0)


def stablehlo(batch: int) -> str:
    """The module of the same."""
    import jax

    text: str = jax_step().lower(*jax.eval_shape(lambda: jax_arguments(batch))).as_text()
    return text


def keras_model() -> Any:
    import keras

    layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss="mse")
    return model


def tensorflow_arguments(batch: int = 8) -> Any:
    import jax

    return jax.ShapeDtypeStruct((batch, WIDTH), "float32"), jax.ShapeDtypeStruct((batch, WIDTH), "float32")


def tensorflow_step() -> Any:
    """A tf.function, with the weights as its variables."""
    import tensorflow as tf

    params = [(tf.Variable(tf.zeros((WIDTH, WIDTH))), tf.Variable(tf.zeros((WIDTH,)))) for _ in range(LAYERS)]
    flat = [one for pair in params for one in pair]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for weight, bias in params:
                x = tf.nn.relu(x @ weight + bias)
            loss = tf.reduce_mean((x - y) ** 2)
        for variable, slope in zip(flat, tape.gradient(loss, flat), strict=True):
            variable.assign_sub(RATE * slope)
        return loss

    return step
