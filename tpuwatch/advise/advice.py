"""The guides that advice rests on, and its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.model import Gain, Passage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import ProgramAdvice

_DOCS: Final = "https://docs.cloud.google.com/tpu/docs"
GUIDES: Final = {
    "performance": ("Cloud TPU performance guide", f"{_DOCS}/performance-guide"),
    "tensorflow performance": ("Profile TensorFlow workloads", f"{_DOCS}/tensorflow-performance-guide"),
    "troubleshooting": ("Troubleshooting TensorFlow - TPU", f"{_DOCS}/troubleshooting/trouble-tf"),
    "layout": ("XLA: tiled layout", "https://openxla.org/xla/tiled_layout"),
    "jax": ("JAX: pure_callback and io_callback", "https://docs.jax.dev/en/latest/external-callbacks.html"),
    "checkpoint": ("JAX: jax.checkpoint", "https://docs.jax.dev/en/latest/gradient-checkpointing.html"),
    "profiling": ("JAX: profiling", "https://docs.jax.dev/en/latest/profiling.html"),
    "sharding": ("JAX: sharded computation", "https://docs.jax.dev/en/latest/sharded-computation.html"),
    "tf.data": ("tf.data: better performance", "https://www.tensorflow.org/guide/data_performance"),
}


def passage(guide: str, section: str) -> Passage:
    """A section of a guide, which is named by its key in GUIDES."""
    title, url = GUIDES[guide]
    return Passage(f"{title}, {section!r}", url)


def in_order(found: Iterable[ProgramAdvice]) -> list[ProgramAdvice]:
    """First what keeps a program from running, then by gain, and what has no number last."""
    return sorted(found, key=lambda one: (one.of is not Gain.RUNS, -one.gain, list(Gain).index(one.of), one.id))
