"""Each item of the guides that concerns a program: what triggers its finding, and what looks alike and does not.

docs/guides.md has a row for each.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.unit.advise.make import GIB, graph, placed, row, subject, trial
from tpuwatch.advise import advice_on_code, advise
from tpuwatch.model.events import Cause

WELL = graph(row(8192, 4096, 4096), row(8192, 4096, 4096))
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
    "memory_spread_batch": (
        subject(trial=trial(12), changed=(trial(5, change="spread-batch"),)),
        subject(trial=trial(12), changed=(trial(12, change="spread-batch"),)),
    ),
    "memory_spread_all": (
        subject(trial=trial(12), changed=(trial(2, change="spread-all"),)),
        subject(trial=trial(12), changed=(trial(12, change="spread-all"),)),
    ),
    "larger_batch": (
        subject(trial=trial(2, counts=graph(row(8, 4096, 4096)))),
        subject(trial=trial(14, counts=graph(row(8, 4096, 4096)))),
    ),
    # The host: 1 MB an example and 4,096 examples are 4 GB.
    "global_batch": (
        subject(placed("u8[512,1024,1024]", "inputs", batch_side=0), batch=512),
        subject(placed("u8[32,1024,1024]", "inputs", batch_side=0), batch=32),
    ),
    "input_rate": (
        subject(placed("f32[64,1024,1024]", "inputs"), trial=trial(counts=graph(row(64, 4096, 4096)))),
        subject(placed("s32[64,1024]", "inputs"), trial=trial(counts=WELL)),
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
        subject(trial=trial(counts=graph(row(8, 8, 8), unknown_kernels=CALLBACK))),
        subject(trial=trial(counts=graph(row(8, 8, 8), unknown_kernels={"tpu_custom_call": 1}))),
    ),
    "broadcast": (
        subject(trial=trial(counts=graph(row(8, 8, 8), broadcasts=[BROADCAST]))),
        subject(trial=trial(counts=graph(row(8, 8, 8)))),
    ),
}
TF = "import tensorflow as tf\nds = tf.data.Dataset.list_files('gs://b/*')\n"
JAX = "import jax\nimport jax.numpy as jnp\n"
# Each: a line with its finding, and one without.
CODE: dict[str, tuple[str, str]] = {
    "host_python": (TF + "tf.numpy_function(f, [x], tf.float32)", "import numpy as tf\ntf.numpy_function(f)"),
    "text_op": (TF + "tf.strings.as_string(x)", TF + "tf.cast(x, tf.int32)"),
    "callback": (JAX + "jax.pure_callback(f, s, x)", "pure_callback(f, s, x)"),
    "dynamic_shape": (TF + "tf.where(x)", TF + "tf.where(x, y, z)"),
    "drop_remainder": (TF + "ds.batch(8)", TF + "ds.batch(8, drop_remainder=True)"),
    "parallel_calls": (TF + "ds.map(f)", TF + "ds.map(f, num_parallel_calls=8)"),
    "parallel_reads": (TF + "tf.data.TFRecordDataset(n)", TF + "tf.data.TFRecordDataset(n, num_parallel_reads=8)"),
    "prefetch": (TF + "ds.batch(8, True)", TF + "ds.batch(8, True).prefetch(2)"),
    "cache": (TF + "ds.map(f, num_parallel_calls=8)", TF + "ds.map(f, num_parallel_calls=8).cache()"),
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
    "materialised_broadcast": (JAX + "jnp.tile(x, (8, 1))", JAX + "jnp.add(x, y)"),
    "batch_norm": (
        "import keras\nkeras.layers.BatchNormalization()",
        "import keras\nkeras.layers.BatchNormalization(synchronized=True)",
    ),
}


def found_in(text: str, directory: Path, *, batch: int = 16) -> set[str]:
    path = directory / "train.py"
    path.write_text(text + "\n", encoding="utf-8")
    return {one.id for one in advice_on_code([path], batch=batch, devices=8)}


@pytest.mark.parametrize("name", VALUES)
def test_the_figures_of_a_program_have_the_finding_or_not(name: str) -> None:
    triggering, alike = VALUES[name]
    assert name in {one.id for one in advise(triggering)}
    assert name not in {one.id for one in advise(alike)}


@pytest.mark.parametrize("name", CODE)
def test_a_line_of_code_has_the_finding_or_not(name: str, tmp_path: Path) -> None:
    triggering, alike = CODE[name]
    assert name in found_in(triggering, tmp_path)
    assert name not in found_in(alike, tmp_path)


def test_batch_norm_over_enough_examples_is_well(tmp_path: Path) -> None:
    assert found_in(CODE["batch_norm"][0], tmp_path, batch=32) == set()


def test_each_row_of_the_guides_names_what_there_is() -> None:
    text = (ROOT / "docs" / "guides.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ") and "`" in line]
    named = {name for cells in rows for name in re.findall(r"`([a-z_0-9]+)`", cells[3])}
    known = {*VALUES, *CODE}
    diagnosed = {cause.value for cause in Cause}
    assert known <= named, f"without a row: {known - named}"
    assert named <= known | diagnosed, f"in no test: {named - known - diagnosed}"
    for cells in rows:
        for path in re.findall(r"`(tests/[^`]+)`", cells[4]):
            assert (ROOT / path).is_file(), path
