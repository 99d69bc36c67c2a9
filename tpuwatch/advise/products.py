"""What the matrix units can make of a program's products and convolutions, by their shapes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.advise.advice import passage
from tpuwatch.advise.memory import larger_batch
from tpuwatch.model import Gain, ProgramAdvice
from tpuwatch.program import mxu_bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.advise.subject import Subject
    from tpuwatch.model import Roofline

_FULL: Final = 0.8  # of the matrix unit; above it nothing is said
_LEAST_SHARE: Final = 0.005  # of the step
_LEAST_PART: Final = 0.01  # of the FLOPs
_MOST: Final = 6
_NAMED: Final = 3
_LEAST_GAIN: Final = 0.1  # of the time
_NARROW_LAYER: Final = 128
_NARROW_DENSE: Final = 512
_PASSES: Final = {3: "HIGH", 6: "HIGHEST"}
_GRADIENT_WINDOW: Final = 64  # positions: a larger window is the gradient of a kernel, which slides over an image


def products(subject: Subject) -> Iterator[ProgramAdvice]:
    """Products that leave much of the matrix unit empty, but for the first layer and the last."""
    line, graph = subject.roofline, subject.graph
    if line is None or graph is None or not line.flops:
        return
    rows = [row for row in graph["operations"] if row["flops"]]
    free = _free_sides(rows) | _batches(subject)
    found = []
    for row in rows:
        bound = mxu_bound(row, subject.matrix_side)
        seconds = row["flops"] * row["count"] * row["passes"] / line.peak_flops
        gain = seconds * (1 / bound - 1) / line.seconds if line.seconds else 0.0
        narrow = [side for side in _sides(row) if side % subject.matrix_side and side not in free]
        if not _depthwise(row) and bound < _FULL and gain > _LEAST_SHARE and narrow:
            found.append((gain, bound, row, min(narrow)))
    for gain, bound, row, side in sorted(found, key=lambda one: -one[0])[:_MOST]:
        unit = subject.matrix_side
        up = -(-side // unit) * unit
        kind = "features" if side < _NARROW_LAYER else "a side"
        yield ProgramAdvice(
            "matrix_shape",
            min(1.0, gain),
            Gain.TIME,
            f"{_text(row)}: at most {bound:.0%} of the matrix unit, which is {unit} by {unit}",
            f"With {kind} of {side} the rest of the unit multiplies zeros.",
            f"Make the side of {side} a multiple of {unit} ({up} is the nearest), put several narrow products "
            "together into one, or give the sides that are the batch to one product.",
            passage("performance", "Tensor dimensions; Matrix units"),
            row["place"],
            {"m": row["m"], "n": row["n"], "k": row["k"], "bound": bound, "flops": row["flops"] * row["count"]},
        )


def depthwise(subject: Subject) -> Iterator[ProgramAdvice]:
    """Convolutions of single features, which are no product at all."""
    line, graph = subject.roofline, subject.graph
    rows = [row for row in (graph or {"operations": ()})["operations"] if row["flops"] and _depthwise(row)]
    if line is None or not rows:
        return
    seconds = sum(row["flops"] * row["count"] / mxu_bound(row, subject.matrix_side) for row in rows) / line.peak_flops
    most = max(rows, key=lambda row: row["flops"] * row["count"])
    yield ProgramAdvice(
        "depthwise",
        min(1.0, seconds / line.seconds),
        Gain.TIME,
        f"{sum(row['count'] for row in rows)} convolutions of single features, the largest to {most['output']}",
        "A depthwise convolution sums over no features, so the matrix units have next to nothing to multiply; "
        "it is work for the vector units, and mostly for the memory.",
        "Take whole convolutions where they cost little more, as fused MBConv blocks do, first of all in early blocks.",
        passage("tensorflow performance", "tf.nn.depthwise_conv2d, tf.nn.separable_conv2d"),
        most["place"],
        {"count": sum(row["count"] for row in rows)},
    )


def _depthwise(row: Mapping[str, Any]) -> bool:
    return bool(row["op"] == "convolution" and row["batch"] > 1 and row["features"][0] == 1)


def narrow_dense(subject: Subject) -> Iterator[ProgramAdvice]:
    """Layers with fewer than 128 features, dense ones with fewer than 512, that take a part of the step."""
    if subject.graph is None or subject.roofline is None:  # the whole is not known, of which a layer is a part
        return
    rows = [row for row in subject.graph["operations"] if row["flops"]]
    whole = sum(row["flops"] * row["count"] for row in rows)
    free = _free_sides(rows) | _batches(subject)
    sides: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        limit = _NARROW_DENSE if row["op"] == "dot_general" else _NARROW_LAYER
        for side in _sides(row):
            counts = row["flops"] * row["count"] > _LEAST_PART * whole
            if counts and row["batch"] == 1 and 1 < side < limit and side not in free:
                sides.setdefault(side, row)
    if sides:
        least, row = min(sides.items(), key=lambda one: one[0])
        dense = row["op"] == "dot_general"
        yield ProgramAdvice(
            "narrow_layers",
            0.0,
            Gain.TIME,
            f"layers of {', '.join(map(str, sorted(sides)))} features",
            f"Below {_NARROW_LAYER} features a layer cannot fill a matrix unit, and a dense layer below "
            f"{_NARROW_DENSE} moves more than it computes.",
            f"Give {'dense layers 512 features or more' if dense else 'layers 128 features or more'}, "
            f"or fewer and wider layers; begin with that of {least}.",
            passage("performance", "Tensor dimensions"),
            row["place"],
            {"features": sorted(sides)},
        )


def precision(subject: Subject) -> Iterator[ProgramAdvice]:
    """Products of float32 that go several times over the matrix unit."""
    line = subject.roofline
    rows = [row for row in (subject.graph or {"operations": ()})["operations"] if row.get("passes", 1) > 1]
    if line is None or not rows:
        return
    extra = sum(row["flops"] * row["count"] * (row["passes"] - 1) for row in rows) / line.peak_flops
    most = max(rows, key=lambda row: row["flops"] * row["count"])
    yield ProgramAdvice(
        "precision",
        min(1.0, extra / line.seconds),
        Gain.TIME,
        f"{sum(row['count'] for row in rows)} products with precision {_PASSES[most['passes']]}",
        f"The matrix unit multiplies bfloat16: so it goes {most['passes']} times over operands of float32.",
        "Keep it for the few products that need it, and leave the others at the default precision.",
        passage("performance", "Matrix units"),
        most["place"],
        {"passes": most["passes"]},
    )


def bound(subject: Subject) -> Iterator[ProgramAdvice]:
    """A program that moves more than it computes, where a larger batch alone does not change that."""
    line = subject.roofline
    if line is None or line.bound == "compute" or not line.flops or any(larger_batch(subject)):
        return
    gain = 1 - line.compute_seconds / line.seconds
    if gain < _LEAST_GAIN:
        return
    waiting = sorted(
        ((_waits(row, line), row) for row in (subject.graph or {"operations": ()})["operations"]),
        key=lambda one: -one[0],
    )
    named = [f"{_text(row)} {seconds / line.seconds:.0%}" for seconds, row in waiting[:_NAMED] if seconds > 0]
    yield ProgramAdvice(
        "memory_bound",
        gain,
        Gain.TIME,
        f"{line.intensity:.0f} FLOPs for each byte; from {line.ridge:.0f} on the matrix units are what counts",
        "By this estimate the HBM's bandwidth limits a step, and the matrix units wait"
        + (f", most for: {'; '.join(named)} of the time." if named else "."),
        "Compute more on what is read: bfloat16 in the place of float32, fused attention, wider layers, jax.checkpoint "
        "where a loop keeps each layer's values; a profile (--profile) tells how much of it is so.",
        passage("performance", "Batch size"),
        next((row["place"] for seconds, row in waiting[:1] if seconds > 0), None),
        figures={"intensity": line.intensity, "ridge": line.ridge},
    )


def _waits(row: Mapping[str, Any], line: Roofline) -> float:
    """By how many seconds moving its operands takes longer than computing with them."""
    computes: float = row["flops"] * row["count"] * row.get("passes", 1) / line.peak_flops
    return float(row["bytes"] * row["count"] / line.hbm_bytes_per_second - computes)


def _free_sides(rows: list[Mapping[str, Any]]) -> set[int]:
    """Sides that one layer alone has: those of the data, and of the answer. Hidden sides are two layers'.

    And the batch, with its positions: it is m of a layer and k of the gradient of its weights, and never n.
    """
    layers = defaultdict(set)
    for row in rows:
        if _kernel_gradient(row):  # its features are the batch's
            continue
        features = tuple(row.get("features", ()))
        for side in {row["m"], row["n"], row["k"], *features}:
            # Of a convolution the gradient of its input has the same features, the other way round.
            layers[side].add((row["op"], row["batch"], *sorted(features or (row["m"], row["n"], row["k"]))))
    shared = {side for row in rows if row["batch"] > 1 for side in (row["m"], row["n"], row["k"])}
    answers = {row["n"] for row in rows} | {side for row in rows for side in row.get("features", ())}
    alone = {side for side, of in layers.items() if len(of) == 1 and len(rows) > 1}
    return (alone | {side for side in layers if side not in answers}) - shared


def _batches(subject: Subject) -> set[int]:
    """Sides that are the batch: it is summed over in the gradients of weights."""
    found = {subject.batch, subject.trial.batch if subject.trial is not None else None}
    return {side for side in found if side is not None}


def _sides(row: Mapping[str, Any]) -> tuple[int, ...]:
    """The sides that a layer's features are."""
    if row["op"] == "convolution":
        return () if _kernel_gradient(row) else tuple(row["features"])
    return (row["m"], row["n"], row["k"]) if row["batch"] > 1 else (row["n"], row["k"])


def _kernel_gradient(row: Mapping[str, Any]) -> bool:
    return bool(row["op"] == "convolution" and row["window"] > _GRADIENT_WINDOW)


def _text(row: Mapping[str, Any]) -> str:
    if not row["flops"]:
        return f"{row['op']} to {row['output']}"
    times = f" x {row['count']}" if row["count"] > 1 else ""
    many = f"{row['batch']} of " if row["batch"] > 1 else ""
    if row["op"] == "convolution":
        inputs, outputs = row["features"]
        return f"convolution of {inputs} to {outputs} features, {many or ''}{row['output']}{times}"
    return f"product of {many}{row['m']}x{row['k']} and {row['k']}x{row['n']}{times}"
