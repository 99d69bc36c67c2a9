"""Writes a trace of a few steps on the CPU, by the framework and into the directory that the arguments name."""

from __future__ import annotations

import sys
from pathlib import Path
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


TPU_STEP_MS, TPU_FLOPS = 10, 0.15  # of each step, and of the peak


def tpu_steps(directory: str) -> None:
    """In the form that a TPU's trace has, made by hand: of each step 3 ms of products at half of the peak, 2 of copies,
    1 of an exchange, 1 of infeed, and 3 idle."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    millisecond, peak = 10**9, 197e12  # picoseconds; FLOPs a second
    space = xplane_pb2.XSpace(hostnames=["host"])
    plane = space.planes.add(id=1, name="/device:TPU:0")
    names: dict[str, int] = {}

    def stat(owner: Any, name: str, value: Any) -> None:
        number = names.setdefault(name, len(names) + 1)
        plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, name
        kind = {float: "double_value", int: "int64_value", str: "str_value"}[type(value)]
        owner.stats.add(metadata_id=number, **{kind: value})

    def event(line: Any, number: int, name: str, begin: float, length: float, **stats: Any) -> None:
        if number not in plane.event_metadata:
            plane.event_metadata[number].id, plane.event_metadata[number].name = number, name
            plane.event_metadata[number].display_name = name
            for key, value in stats.items():
                stat(plane.event_metadata[number], key, value)
        made = line.events.add(metadata_id=number, offset_ps=int(begin * millisecond))
        made.duration_ps = int(length * millisecond)
        stat(made, "group_id", int(begin // TPU_STEP_MS))

    stat(plane, "peak_teraflops_per_second", peak / 1e12)
    stat(plane, "device_type_string", "TPU v5 lite")
    steps, modules, operations = (
        plane.lines.add(id=number, name=name) for number, name in enumerate(("Steps", "XLA Modules", "XLA Ops"), 1)
    )
    kinds = (("fusion.1", "convolution fusion", 3), ("copy.2", "data formatting", 2))
    kinds += (("all-reduce.3", "all-reduce", 1), ("infeed.4", "infeed", 1))
    for step in range(STEPS):
        begin: float = step * TPU_STEP_MS
        event(steps, 100 + step, str(step), begin, TPU_STEP_MS)
        event(modules, 99, "jit_step(1)", begin, 7)
        for number, (name, kind, length) in enumerate(kinds, 1):
            flops = int(peak * length / 2000) if number == 1 else 0
            what = {"hlo_category": kind, "flops": flops, "tf_op": f"jit(step)/{name}", "bytes_accessed": 1 << 30}
            event(operations, number, name, begin, length, program_id=1, symbol_id=number, **what)
            begin += length
    Path(directory, "host.xplane.pb").write_bytes(space.SerializeToString())


if __name__ == "__main__":
    {"jax": jax_steps, "tensorflow": tensorflow_steps, "tpu": tpu_steps}[sys.argv[1]](sys.argv[2])
