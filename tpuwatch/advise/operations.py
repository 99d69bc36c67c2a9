"""Operations that a TPU does not run, runs on the host, or runs at a cost that the source does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.advise.advice import passage
from tpuwatch.core import format_size
from tpuwatch.model import Gain, ProgramAdvice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.advise.subject import Subject

_HOST_OPS: Final = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "AsString", "GeneratorDataset", "PrintV2", "StringJoin"}
_DYNAMIC_OPS: Final = {"Where", "Unique", "UniqueV2", "DynamicPartition"}
_WIDE: Final = ("f64[", "s64[", "u64[", "c128[")


def kernels(subject: Subject) -> Iterator[ProgramAdvice]:
    """Of a TensorFlow graph: ops that XLA has no kernel for."""
    known = subject.kernels or {"counts": {}, "without": ()}
    for name in known["without"]:
        host = name in _HOST_OPS
        yield ProgramAdvice(
            "no_kernel",
            0.0,
            Gain.RUNS,
            f"{name}, {known['counts'][name]} times in the graph",
            "A TPU has no kernel for it" + (": it runs Python or works on text, which is the host's." if host else "."),
            "Do it in the input pipeline, before the step" + ("." if host else ", or write it with other ops."),
            passage("troubleshooting", "Unavailable TensorFlow ops"),
            figures={"op": name, "count": known["counts"][name]},
        )
    for name in sorted(_DYNAMIC_OPS & set(known["counts"]) - set(known["without"])):
        compiled = subject.graph is not None and subject.problem is None
        yield ProgramAdvice(
            "dynamic_op",
            0.0,
            Gain.TIME if compiled else Gain.RUNS,
            f"{name}, {known['counts'][name]} times in the graph",
            "The shape of its result depends on values. It was compiled with the largest that it may have, so what is "
            "left out is computed too."
            if compiled
            else "The shape of its result depends on values; a TPU's programs have the shapes that they were compiled "
            "with.",
            "Keep the shape and mask: tf.where with three arguments, tf.math.unsorted_segment_sum, padding to a fixed "
            "length.",
            passage("troubleshooting", "Dynamic shapes"),
            figures={"op": name},
        )


def callbacks(subject: Subject) -> Iterator[ProgramAdvice]:
    """Calls that go back to the host at each step."""
    for name, count in (subject.graph or {"host_calls": {}})["host_calls"].items():
        yield ProgramAdvice(
            "host_callback",
            0.0,
            Gain.TIME,
            f"{name}, {count} times a step",
            "The device waits while the host's Python runs.",
            "Compute it on the device, or once in many steps; take values out with the step's results.",
            passage("jax", "performance"),
            figures={"target": name, "count": count},
        )


def broadcasts(subject: Subject) -> Iterator[ProgramAdvice]:
    """Broadcasts that are written to memory, for what uses them needs them there."""
    for one in (subject.graph or {"broadcasts": ()})["broadcasts"]:
        yield ProgramAdvice(
            "broadcast",
            one["bytes"] / subject.available,
            Gain.HBM,
            f"{one['from']} becomes {one['to']}, {format_size(one['bytes'])}",
            f"It is an operand of {', '.join(one['for'])}, which reads it from memory: all copies are written.",
            "Broadcast after that operation, or use one that takes the small operand (einsum, dot_general without the "
            "side, grouped attention).",
            passage("tensorflow performance", "tf.broadcast_to, tf.tile"),
            one["place"],
            {"bytes": one["bytes"], "from": one["from"], "to": one["to"]},
        )


def types(subject: Subject) -> Iterator[ProgramAdvice]:
    """Numbers of 64 bits, which the hardware has not."""
    wide = [one for one in subject.tensors if str(one.layout.tensor).startswith(_WIDE)]
    if wide:
        size = sum(one.layout.bytes * one.count for one in wide)
        yield ProgramAdvice(
            "wide_types",
            size / 2 / subject.available,
            Gain.HBM,
            f"{len(wide)} tensors of 64 bits, {format_size(size)}, the first {wide[0].layout.tensor} ({wide[0].name})",
            "A TPU computes with 32 bits and less; 64 bits are put together from them, at several times the cost.",
            "Use float32, bfloat16 and int32 (in JAX leave jax_enable_x64 off).",
            passage("troubleshooting", "Unsupported data type"),
            figures={"bytes": size},
        )


def problem(subject: Subject) -> Iterator[ProgramAdvice]:
    """What the program raised when it was traced or compiled, where it is one of a TPU's own limits."""
    said: dict[str, Any] = dict(subject.problem or {})
    text = str(said.get("message", ""))
    shapes = ("NonConcreteBooleanIndex", "ConcretizationTypeError", "dynamic", "static shapes", "shape must be known")
    if said.get("kind") == "program" and any(word in text for word in shapes):
        yield ProgramAdvice(
            "dynamic_shape",
            0.0,
            Gain.RUNS,
            text.splitlines()[0][:200],
            "A shape depends on values, and a TPU's programs have the shapes that they were compiled with.",
            "Keep the shape and mask what does not count: where with three arguments, nonzero and unique with size.",
            passage("troubleshooting", "Dynamic shapes"),
            said.get("place"),
        )
