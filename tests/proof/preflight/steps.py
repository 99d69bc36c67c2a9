"""Steps of a user's, for probes with the real frameworks."""

from __future__ import annotations

import os
import signal
from typing import Any


def loss() -> Any:
    """In JAX: a dict of a number, an array and what is no number."""
    import jax.numpy as jnp

    values = jnp.arange(8.0)
    return {"loss": values.sum(), "logits": [values, values / 0.0]}


def tensors() -> Any:
    """The same in TensorFlow, as a tf.function may have it."""
    import tensorflow as tf

    values = tf.range(8.0)
    return {"loss": tf.reduce_sum(values), "logits": [values, values / 0.0]}


def fails() -> Any:
    raise KeyError("weights")


def aborts() -> Any:
    os.abort()


def hangs() -> Any:
    signal.pause()


def words() -> Any:
    return "done"


def torch_loss() -> Any:
    """In PyTorch."""
    import torch

    return {"loss": torch.arange(8.0).sum()}
