"""Each item of the guides that concerns a program: what triggers its finding, and what looks alike and does not.

deploy/guides/items.toml has an item for each finding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.advise.make import GIB, graph, placed, reads, row, subject, trial
from tpuwatch.advise import advise, code_advice

WELL = graph(row(8192, 4096, 4096), row(8192, 4096, 4096))
WEIGHTS = placed("bf16[4096,4096]")
IMAGES = placed("u8[64,1024]", "inputs")
WEIGHTS_READ = reads("bf16[4096,4096]", row(8, 4096, 4096, count=200))
CALLBACK = {"xla_ffi_python_cpu_callback": 1}
BROADCAST = {"from": "f32[8]", "to": "f32[8192,8]", "bytes": GIB, "for": ["dot_general"], "place": None}
DEPTHWISE = {"op": "convolution", "features": [1, 1], "window": 9, "images": 8}
VALUES: dict[str, tuple[Any, Any]] = {
    # Tiles: 8 by 128 numbers of 32 bits, 16 by 128 of bfloat16, 32 by 128 of int8.
    "padding": (subject(placed("f32[65536,100,20]")), subject(placed("f32[65536,104,128]"))),
    "batch_multiple": (subject(batch=12), subject(batch=8)),
    "matrix_shape": (
        subject(trial=trial(counts=graph(row(8192, 48, 48, count=999), row(8192, 48, 96)))),
        subject(trial=trial(counts=WELL)),
    ),
    "narrow_layers": (
        subject(trial=trial(counts=graph(row(8192, 300, 784), row(8192, 10, 300)))),  # 784 and 10 are the data's own
        subject(trial=trial(counts=graph(row(8192, 512, 784), row(8192, 10, 512)))),
    ),
    "depthwise": (
        subject(trial=trial(counts=graph({**row(8192, 1, 9, batch=96), **DEPTHWISE}))),
        subject(trial=trial(counts=graph({**row(8192, 96, 9 * 96), **DEPTHWISE, "features": [96, 96]}))),
    ),
    "precision": (
        subject(trial=trial(counts=graph(row(4096, 4096, 4096, passes=6)))),
        subject(trial=trial(counts=graph(row(4096, 4096, 4096)))),
    ),
    "memory_bound": (subject(trial=trial(counts=graph(row(8, 4096, 4096)))), subject(trial=trial(counts=WELL))),
    # HBM.
    "memory_bfloat16": (
        subject(trial=trial(12), changed=(trial(7, change="bfloat16"),)),
        subject(trial=trial(12), changed=(trial(12, change="bfloat16"),)),
    ),
    "memory_remat": (
        subject(trial=trial(20), changed=(trial(9, change="remat"),)),
        subject(trial=trial(20), changed=(trial(9, change="remat", problem="TypeError"),)),
    ),
    "memory_batch": (
        subject(trial=trial(20), changed=(trial(11, batch=32),)),
        subject(trial=trial(20), changed=(trial(20, batch=32),)),
    ),
    "no_batch_fits": (
        subject(placed("f32[65536,131072]"), IMAGES, trial=trial(40)),
        subject(placed("f32[16384,65536]"), IMAGES, trial=trial(40)),
    ),
    "memory_spread_batch": (
        subject(trial=trial(12), changed=(trial(5, change="spread-batch"),)),
        subject(trial=trial(12), changed=(trial(12, change="spread-batch"),)),
    ),
    "memory_spread_all": (
        subject(trial=trial(12), changed=(trial(2, change="spread-all"),)),
        subject(trial=trial(12), changed=(trial(12, change="spread-all"),)),
    ),
    "larger_batch": (
        subject(
            placed("bf16[4096,4096]"),
            trial=trial(2, counts=graph(reads("bf16[4096,4096]", row(8, 4096, 4096, count=200)))),
        ),
        subject(
            placed("bf16[64,64]"), trial=trial(2, counts=graph(reads("bf16[8,4096]", row(8, 4096, 4096, count=200))))
        ),
    ),
    # The host: 1 MB an example and 4,096 examples are 4 GB.
    "global_batch": (
        subject(placed("u8[512,1024,1024]", "inputs", batch_side=0), batch=512),
        subject(placed("u8[32,1024,1024]", "inputs", batch_side=0), batch=32),
    ),
    "input_rate": (
        subject(WEIGHTS, placed("f32[64,1024,1024,3]", "inputs"), trial=trial(counts=graph(row(64, 4096, 4096)))),
        subject(WEIGHTS, placed("bf16[64,1024,1024]", "inputs"), trial=trial(counts=graph(row(64, 4096, 4096)))),
    ),
    # Operations.
    "no_kernel": (
        subject(kernels={"counts": {"EagerPyFunc": 1, "MatMul": 2}, "without": ["EagerPyFunc"]}),
        subject(kernels={"counts": {"MatMul": 2}, "without": []}),
    ),
    "dynamic_op": (
        subject(kernels={"counts": {"Where": 1}, "without": []}),
        subject(kernels={"counts": {"SelectV2": 1}, "without": []}),
    ),
    "host_callback": (
        subject(trial=trial(counts=graph(row(8, 8, 8), host_calls=CALLBACK))),
        subject(trial=trial(counts=graph(row(8, 8, 8), not_counted={"custom_call tpu_custom_call": 1}))),
    ),
    "broadcast": (
        subject(trial=trial(counts=graph(row(8, 8, 8), broadcasts=[BROADCAST]))),
        subject(trial=trial(counts=graph(row(8, 8, 8)))),
    ),
}
TF = "import tensorflow as tf\nds = tf.data.Dataset.list_files('gs://b/*')\n"
STEP = TF + "@tf.function\ndef step(x):\n"
MAP = TF + "ds = ds.map(lambda x: f(x), num_parallel_calls=8)\ndef f(x):\n"
JAX = "import jax\nimport jax.numpy as jnp\n"
# Each: a line with its finding, and one without.
CODE: dict[str, tuple[str, str]] = {
    # Each op of these where a step reaches it, and where it prepares the input.
    "host_python": (STEP + "  return tf.numpy_function(f, [x], tf.float32)", MAP + "  tf.numpy_function(g, [x], 1)"),
    "text_op": (STEP + "  return tf.strings.as_string(x)", MAP + "  return tf.strings.split(x)"),
    "dynamic_shape": (STEP + "  return tf.where(x)", STEP + "  return tf.where(x, y, z)"),
    "python_input": (MAP + "  return tf.py_function(g, [x], 1)", STEP + "  return tf.py_function(g, [x], 1)"),
    "callback": (JAX + "jax.pure_callback(f, s, x)", "pure_callback(f, s, x)"),
    "drop_remainder": (TF + "ds.batch(8)", TF + "ds.batch(8, drop_remainder=True)"),
    "parallel_calls": (TF + "ds.map(decode)", TF + "ds.map(lambda x: {'x': x})"),
    "parallel_reads": (TF + "tf.data.TFRecordDataset(n)", TF + "ds.interleave(lambda n: tf.data.TFRecordDataset(n))"),
    "prefetch": (TF + "ds.batch(8, True)", TF + "ds.batch(8, True).prefetch(2)"),
    "cache": (MAP + "  return tf.io.decode_jpeg(x)", MAP + "  return tf.io.decode_jpeg(x)\nds = ds.cache()"),
    "local_files": (TF + "tf.data.TFRecordDataset('/d/a')", TF + "tf.data.TFRecordDataset('gs://d/a')"),
    "global_input": (
        TF + "s.experimental_distribute_dataset(ds)",
        TF + "s.distribute_datasets_from_function(f)",
    ),
    "steps_per_execution": (
        "m.compile(optimizer='adam')",
        "import re\nre.compile('a')\nm.compile(optimizer='adam', steps_per_execution=50)",
    ),
    "wide_types": (JAX + "jax.config.update('jax_enable_x64', True)", JAX + "jax.config.update('jax_log', True)"),
    "initialisation": (JAX + "jax.random.PRNGKey(jax.process_index())", JAX + "jax.random.PRNGKey(0)"),
    "loss_reduction": (JAX + "jax.lax.psum(grads, 'data')", JAX + "jax.lax.pmean(grads, 'data')"),
    "batch_norm": (
        "import keras\nkeras.layers.BatchNormalization()",
        "import keras\nkeras.layers.BatchNormalization(synchronized=True)",
    ),
}


def found_in(text: str, directory: Path, *, batch: int = 16) -> set[str]:
    path = directory / "train.py"
    path.write_text(text + "\n", encoding="utf-8")
    return {one.id for one in code_advice([path], batch=batch, devices=8).found}


@pytest.mark.parametrize("name", VALUES)
def test_the_figures_of_a_program_have_the_finding_or_not(name: str) -> None:
    triggering, alike = VALUES[name]
    assert name in {one.id for one in advise(triggering).found}
    assert name not in {one.id for one in advise(alike).found}


@pytest.mark.parametrize("name", CODE)
def test_a_line_of_code_has_the_finding_or_not(name: str, tmp_path: Path) -> None:
    triggering, alike = CODE[name]
    assert name in found_in(triggering, tmp_path)
    assert name not in found_in(alike, tmp_path)


def test_batch_norm_over_enough_examples_is_well(tmp_path: Path) -> None:
    assert found_in(CODE["batch_norm"][0], tmp_path, batch=32) == set()
