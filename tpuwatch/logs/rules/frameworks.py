"""Words in remedies that are another framework's for each program: what to install or update, and names of functions.

A step of a remedy has `{packages}`, or `[[ {install}]]` for what has no general form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# The marks by which a text shows them, and the words.
FRAMEWORKS: Final[Mapping[str, Mapping[str, str]]] = {
    "jax": {
        "packages": "jax, jaxlib and libtpu",
        "install": "`pip install -U 'jax[tpu]'`",
        "find_nan": "jax_debug_nans",
        "own_data": "jax.make_array_from_process_local_data",
        "devices": "jax.device_count()",
        "compile": "jax.jit",
    },
    "torch_xla": {
        "packages": "torch, torch_xla and libtpu",
        "install": "`pip install -U torch 'torch_xla[tpu]'`",
        "find_nan": "torch.autograd.set_detect_anomaly",
        "own_data": "torch.utils.data.DistributedSampler",
        "devices": "torch_xla.runtime.global_runtime_device_count()",
        "compile": "torch_xla.compile",
    },
    "tensorflow": {
        "packages": "tensorflow-tpu and libtpu",
        "install": "`pip install -U tensorflow-tpu`",
        "find_nan": "tf.debugging.enable_check_numerics off the TPU",
        "own_data": "distribute_datasets_from_function, per-replica batch",
        "devices": "len(tf.config.list_logical_devices('TPU'))",
        "compile": "tf.function",
    },
}
_GENERAL: Final[Mapping[str, str]] = {"packages": "the framework and libtpu"}


def framework_of(marks: Collection[str]) -> str | None:
    """Return the one framework that a text with these marks shows; None with none or several.

    JAX and PyTorch/XLA programs often read their data by TensorFlow.
    """
    shown = [name for name in FRAMEWORKS if name in marks]
    certain = [name for name in shown if name != "tensorflow"] or shown
    return certain[0] if len(certain) == 1 else None


def words(marks: Collection[str]) -> Mapping[str, str]:
    """Return the words for a text with these marks: general ones unless it shows one framework."""
    framework = framework_of(marks)
    return _GENERAL if framework is None else FRAMEWORKS[framework]
