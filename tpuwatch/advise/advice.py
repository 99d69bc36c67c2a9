"""A piece of advice: a number, the reason, the change to make, and where that is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


class Gain(Enum):
    """What a change is good for; those before others come first, however much they gain."""

    RUNS = "the program runs at all"
    HBM = "HBM"
    TIME = "step time"
    HOST = "host memory"
    INPUT = "input"
    ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class Passage:
    """A guide, by its key in GUIDES, and its section."""

    guide: str
    section: str

    @property
    def title(self) -> str:
        return f"{GUIDES[self.guide][0]}, {self.section!r}"

    @property
    def url(self) -> str:
        return GUIDES[self.guide][1]


@dataclass(frozen=True, slots=True)
class ProgramAdvice:
    """`gain` is a share of what `of` names: of the HBM that is there, of the least time of a step. 0: not known."""

    id: str
    of: Gain
    gain: float
    number: str
    reason: str
    change: str
    source: Passage
    place: Mapping[str, Any] | None = None  # file and line of the user's code
    figures: Mapping[str, Any] = field(default_factory=dict)


def in_order(found: Iterable[ProgramAdvice]) -> list[ProgramAdvice]:
    """First what keeps a program from running, then by gain, and what has no number last."""
    return sorted(found, key=lambda one: (one.of is not Gain.RUNS, -one.gain, list(Gain).index(one.of), one.id))
