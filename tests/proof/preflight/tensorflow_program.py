"""A training step as a tf.function."""

from __future__ import annotations

import tensorflow as tf

WEIGHTS = tf.Variable(tf.zeros((1024, 4096)))


@tf.function(input_signature=[tf.TensorSpec((64, 1024))])  # type: ignore[untyped-decorator]
def step(inputs: tf.Tensor) -> tf.Tensor:
    """A step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.relu(inputs @ WEIGHTS) ** 2)
    WEIGHTS.assign_sub(0.1 * tape.gradient(loss, WEIGHTS))
    return loss


@tf.function(input_signature=[tf.TensorSpec((64, 1024))])  # type: ignore[untyped-decorator]
def with_python(inputs: tf.Tensor) -> tf.Tensor:
    """A step that goes back to Python, which no TPU can."""
    (doubled,) = tf.numpy_function(lambda values: [values * 2], [inputs], [tf.float32])
    doubled.set_shape((64, 1024))
    return doubled @ WEIGHTS
