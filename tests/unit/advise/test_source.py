"""Which lines of the user's sources a step reaches, and which are a pipeline's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.advise import code_advice
from tpuwatch.advise.source import read_all

HEAD = "import tensorflow as tf\nimport jax\nimport jax.numpy as jnp\nfrom functools import partial\nimport keras\n"
DOT = "    return tf.boolean_mask(x, x > 0)\n"


def reached(directory: Path, text: str, *steps: str) -> bool:
    """Whether a step reaches the call of boolean_mask."""
    path = directory / "train.py"
    path.write_text(HEAD + text)
    (file,) = read_all([path], steps)
    (call,) = [one for one in file.calls if one.last == "boolean_mask"]
    return file.in_step(call)


@pytest.mark.parametrize(
    "text",
    [
        "@tf.function\ndef f(x):\n" + DOT,
        "@partial(jax.jit, static_argnums=0)\ndef f(x):\n" + DOT,
        "def f(x):\n" + DOT + "g = jax.value_and_grad(f)\n",
        "def f(x):\n" + DOT + "strategy.run(f, args=(1,))\n",
        "def f(x):\n" + DOT + "@jax.jit\ndef g(x):\n    return f(x)\n",
        "class A(keras.layers.Layer):\n  def call(self, x):\n    return self.f(x)\n  def f(self, x):\n" + DOT,
        "@tf.function\ndef g(x):\n  def f(x):\n" + DOT,
    ],
)
def test_a_step_reaches_what_is_compiled_and_what_that_calls(tmp_path: Path, text: str) -> None:
    assert reached(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n" + DOT + "ds = ds.map(f)\n",
        "class Tokens(keras.layers.Layer):\n  def call(self, x):\n" + DOT,
        "class A:\n  def f(self, x):\n" + DOT + "@tf.function\ndef g(x):\n    return other.f(x)\n",
        "x = tf.boolean_mask(x, x > 0)\n",
    ],
)
def test_a_step_does_not_reach_what_prepares_its_input(tmp_path: Path, text: str) -> None:
    assert not reached(tmp_path, text)


def test_the_function_that_is_named_is_a_step(tmp_path: Path) -> None:
    text = "def f(x):\n" + DOT
    assert not reached(tmp_path, text)
    assert reached(tmp_path, text, "f")


def test_a_step_reaches_into_the_files_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "model.py").write_text(HEAD + "def forward(x):\n" + DOT)
    (tmp_path / "train.py").write_text(
        "import jax\nfrom net.model import forward\n@jax.jit\ndef step(x):\n    return forward(x)\n"
    )
    files = read_all([tmp_path / "train.py", tmp_path / "net" / "model.py"])
    assert [file.in_step(call) for file in files for call in file.calls if call.last == "boolean_mask"] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "ds.batch(8, drop_remainder=False).prefetch(1)",  # who says so means it
        "ds.repeat().batch(8).prefetch(1)",
        "ds.batch(2)",
        "ds.unbatch().batch(64)",
        "pool.map(decode)",
        "tf.data.TFRecordDataset(path)",
        "def evaluate():\n    return ds.batch(64).prefetch(1)",
    ],
)
def test_lines_that_look_alike_have_no_finding(tmp_path: Path, line: str) -> None:
    path = tmp_path / "input.py"
    path.write_text(f"{HEAD}ds = tf.data.Dataset.range(9)\n{line}\n")
    assert code_advice([path]).found == ()


def test_a_rule_is_one_finding_with_all_places(tmp_path: Path) -> None:
    path = tmp_path / "input.py"
    path.write_text(HEAD + "tf.data.Dataset.from_generator(f, s)\n" * 6)
    (one,) = code_advice([path]).found
    assert one.number.endswith("input.py:6, input.py:7, input.py:8, input.py:9 and 2 more")
    assert [place["line"] for place in one.figures["places"]] == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(
    "text",
    [
        "records = tf.data.TFRecordDataset('gs://b/file')\nrecords = records.batch(64)\n",
        "def f(files):\n    a = tf.data.TFRecordDataset(files)\n    b = a\n    return b.batch(64)\n",
        "def make(p):\n    return tf.data.TFRecordDataset(p)\ntrain = make('gs://b/file')\nx = train.batch(64)\n",
        "records: object = tf.data.Dataset.range(9)\ndef f():\n    return records.batch(64)\n",
    ],
)
def test_a_pipeline_is_known_by_what_it_is_assigned_from(tmp_path: Path, text: str) -> None:
    path = tmp_path / "input.py"
    path.write_text(HEAD + text)
    assert {"prefetch", "drop_remainder"} <= {one.id for one in code_advice([path]).found}


def test_a_variable_of_another_function_is_no_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "input.py"
    path.write_text(
        HEAD + "def f():\n    x = tf.data.Dataset.range(9)\n    return x\ndef g(x):\n    return x.batch(64)\n"
    )
    assert not {"prefetch", "drop_remainder"} & {one.id for one in code_advice([path]).found}
