"""Writes a trace of a few steps on the CPU, by the framework and into the directory that the arguments name."""

from __future__ import annotations

import sys
from typing import Any

STEPS = 6


def jax_steps(directory: str) -> None:
    import jax
    import jax.numpy as jnp

    run = jax.jit(lambda value: jnp.tanh(value @ value).sum())
    value = jnp.ones((256, 256))
    run(value).block_until_ready()
    with jax.profiler.trace(directory):
        for number in range(STEPS):
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                run(value).block_until_ready()


def tensorflow_steps(directory: str) -> None:
    """With a pipeline that works slowly: a loop for each batch."""
    import tensorflow as tf

    def slowly(number: Any) -> Any:
        turns = tf.while_loop(lambda turn: turn < 20_000, lambda turn: turn + 1, [tf.constant(0)])[0]
        return tf.ones((64, 64)) * tf.cast(turns + tf.cast(number, tf.int32), tf.float32)

    run = tf.function(lambda value: tf.reduce_sum(tf.tanh(value @ value)))
    one_by_one = tf.data.Options()  # else it works ahead while the machine is slow to trace
    one_by_one.autotune.enabled = False
    one_by_one.experimental_optimization.apply_default_optimizations = False
    batches = iter(tf.data.Dataset.range(100).map(slowly).with_options(one_by_one))
    run(next(batches))
    tf.profiler.experimental.start(directory)
    for number in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            run(next(batches))
    tf.profiler.experimental.stop()


if __name__ == "__main__":
    {"jax": jax_steps, "tensorflow": tensorflow_steps}[sys.argv[1]](sys.argv[2])
