"""What fills the HBM, and what would take less of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.advise.advice import passage
from tpuwatch.advise.subject import arguments
from tpuwatch.core import format_size
from tpuwatch.model import Gain, Passage, ProgramAdvice
from tpuwatch.program import HBM, Change, laid_out, parse_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.advise.subject import Placed, Subject
    from tpuwatch.model import Roofline
    from tpuwatch.program import Trial

_TIGHT: Final = 0.5  # of the HBM: from there on changes are worth their compilation
_LOW: Final = 0.4
_LEAST: Final = 0.02  # of the HBM: what a change has to give
_ROWS: Final = 8
_LEAST_GAIN: Final = 0.1  # of the time
_MATRIX: Final = 2  # sides
_FLOAT32: Final = ("float32", "f32")
_RESIDENT: Final = ("weights", "optimizer", "state")

_WHAT: Final = {
    "bfloat16": (
        "activations in bfloat16, weights as they are",
        "Values between the weights take half of the memory; weights stay in float32 and are cast where they are used.",
        "Cast inputs and weights to bfloat16 inside the loss function; in Keras set_global_policy('mixed_bfloat16').",
        passage("troubleshooting", "Reduce memory usage"),
    ),
    "remat": (
        "rematerialisation of all but matrix products",
        "What the backward pass needs is kept from the forward pass; most of it is computed again faster than it is "
        "kept.",
        "Wrap the loss function, or each of its blocks, in jax.checkpoint with a policy such as "
        "dots_with_no_batch_dims_saveable.",
        passage("checkpoint", "policies"),
    ),
    "spread-batch": (
        "the batch spread over all devices, weights on each",
        "Each device takes its share of the batch.",
        "Put the inputs on a mesh with a NamedSharding by their batch.",
        passage("performance", "Batch size"),
    ),
    "spread-all": (
        "batch, weights and optimizer spread over all devices",
        "Each device holds its share of the weights and of the optimizer's state, and fetches the others' when they "
        "are used.",
        "Give weights and optimizer's state a NamedSharding by their largest side (fully sharded data parallel).",
        passage("troubleshooting", "Reduce memory usage"),
    ),
}


def changes(trial: Trial) -> Iterator[Change]:
    """The changes that are worth compiling: where the program does not fit, or takes half of the HBM and more."""
    needed, available = trial.needed_bytes, trial.available_bytes
    if trial.memory_space not in (None, HBM):  # none of them takes less of the chip's own memory
        return
    if trial.fits and needed and available and needed < _TIGHT * available:
        return
    if not trial.sharded:
        yield Change("bfloat16", trial.batch)
    yield Change("remat", trial.batch)
    held = sum(_resident(arguments(trial.tensors)).values())
    if trial.batch is not None and trial.batch >= 2 * _ROWS and (available is None or held <= available):
        yield Change(None, trial.batch // 2)
    if trial.devices > 1 and not trial.sharded:
        yield Change("spread-batch", trial.batch)
        yield Change("spread-all", trial.batch)


def no_batch_fits(subject: Subject) -> Iterator[ProgramAdvice]:
    """What a device holds whatever the batch is more than there is."""
    trial = subject.trial
    if trial is None or trial.fits or trial.memory_space not in (None, HBM):
        return
    resident = _resident(subject.tensors)
    held = sum(resident.values())
    if held <= subject.available:
        return
    yield ProgramAdvice(
        "no_batch_fits",
        (held - subject.available) / subject.available,
        Gain.RUNS,
        f"{_parts_text(resident)} take {format_size(held)} on each device, of {format_size(subject.available)}: "
        "no batch fits",
        "A device holds them whatever the batch is. A smaller batch makes only activations and inputs smaller.",
        "Spread them over several devices (sharding, fully sharded data parallel); or take fewer or smaller layers, an "
        "optimizer with less state (SGD, Adafactor), weights in bfloat16, or a TPU with more HBM.",
        passage("troubleshooting", "Reduce memory usage"),
        figures={"held_bytes": held, "available_bytes": subject.available, **resident},
    )


def _resident(tensors: Iterable[Placed]) -> dict[str, int]:
    """The bytes of the arguments that do not depend on the batch, by their part. None where no argument is known as
    an input: then any may be one."""
    tensors = tuple(tensors)
    found = dict.fromkeys(_RESIDENT, 0)
    for one in tensors if any(one.part == "inputs" for one in tensors) else ():
        if one.part in found:
            found[one.part] += one.layout.bytes * one.count
    return found


def memory(subject: Subject) -> Iterator[ProgramAdvice]:
    """Each change that was compiled and takes less."""
    trial = subject.trial
    if trial is None or trial.needed_bytes is None:
        return
    parts = composition(subject)
    too_large = any(no_batch_fits(subject))
    for one in subject.changed:
        needed = _with_change(trial, one)
        if needed is None or trial.needed_bytes - needed < _LEAST * subject.available:
            continue
        saved = trial.needed_bytes - needed
        fits = needed <= subject.available
        name, reason, do, source = _WHAT.get(one.change or "", _half(one, subject))
        if one.change is None and too_large:
            continue
        runs = not trial.fits and fits
        yield ProgramAdvice(
            f"memory_{(one.change or 'batch').replace('-', '_')}",
            saved / subject.available,
            Gain.RUNS if runs else Gain.HBM,
            f"{name}: {format_size(needed)} in the place of {format_size(trial.needed_bytes)} of "
            f"{format_size(subject.available)}{', and it fits' if runs else '' if fits else ', and does not fit yet'}",
            f"{reason} Now: {_parts_text(parts)}." if parts else reason,
            do,
            source,
            figures={"needed_bytes": needed, "now_bytes": trial.needed_bytes, "saved_bytes": saved},
        )


def larger_batch(subject: Subject) -> Iterator[ProgramAdvice]:
    """Memory and throughput both low: the batch can grow."""
    trial, line = subject.trial, subject.roofline
    if trial is None or line is None or not trial.fits or not trial.needed_bytes or subject.batch is None:
        return
    use = trial.needed_bytes / subject.available
    gain = _read_for_each_batch(subject, line)
    if use > _LOW or line.bound == "compute" or gain < _LEAST_GAIN:
        return
    yield ProgramAdvice(
        "larger_batch",
        gain,
        Gain.TIME,
        f"{use:.0%} of the HBM is used with a batch of {subject.batch} a core, and {gain:.0%} of the time weights move",
        "There is room, and the HBM's bandwidth is the limit: weights are read once for each batch, however large it "
        "is.",
        "Take a larger batch (tpuwatch preflight --max-batch finds the largest), and tune the learning rate and its "
        "warm-up again: it goes with the batch.",
        passage("troubleshooting", "Improve training speed"),
        figures={"use": use},
    )


def _read_for_each_batch(subject: Subject, line: Roofline) -> float:
    """The share of the least time in which weights, their gradients and the optimizer's state move and the matrix units
    wait: it does not grow with the batch. Of a loop over layers, a layer has a slice of them."""
    weights = [one.layout.tensor for one in subject.tensors if one.part in ("weights", "optimizer")]
    sides = {tuple(sorted(one.sides)) for one in weights}
    sides |= {tuple(sorted(one.sides[1:])) for one in weights if len(one.sides) > _MATRIX}
    moved = sum(2 * one.layout.bytes * one.count for one in subject.tensors if one.part in ("weights", "optimizer"))
    for row in (subject.graph or {"operations": ()})["operations"]:
        of_weights = [parse_tensor(text)[0] for text in (*row["inputs"], row["output"])] if row["flops"] else []
        size = sum(laid_out(one).bytes for one in of_weights if tuple(sorted(one.sides)) in sides)
        moved += size * row["count"]
    saved: float = min(moved / line.hbm_bytes_per_second, line.seconds - line.compute_seconds)
    return saved / line.seconds if line.seconds else 0.0


def composition(subject: Subject) -> dict[str, int]:
    """The bytes of weights, optimizer, gradients and activations; the last two are an estimate.

    A program that returns weights trains: its gradients take as much as these, and the other temporaries are
    activations.
    """
    trial = subject.trial
    if trial is None:
        return {}
    parts = subject.parts()
    temporaries = trial.temporaries_bytes
    if temporaries is None:  # it did not fit: of what it needs, all but the arguments
        temporaries = max(0, (trial.needed_bytes or 0) - sum(parts.values()))
    outputs = trial.outputs_bytes or 0
    weights = parts.get("weights", 0)
    trains = trial.outputs_bytes is None or (weights and outputs >= weights)
    gradients = min(weights, temporaries) if trains and weights else 0
    return {**parts, "gradients": gradients, "activations": temporaries - gradients}


def _with_change(trial: Trial, one: Trial) -> int | None:
    """What the changed program needs; with bfloat16 only its temporaries count, the arguments stay as they are."""
    if one.problem is not None or one.needed_bytes is None:
        return None
    if one.change != "bfloat16":
        return one.needed_bytes
    if one.temporaries_bytes is not None and trial.temporaries_bytes is not None:
        return (trial.needed_bytes or 0) - max(0, trial.temporaries_bytes - one.temporaries_bytes)
    # One of them does not fit, or its code was not made: bfloat16 took away half of what arguments and results have in
    # float32, which stays.
    kept = sum(tensor["bytes"] for tensor in trial.tensors)
    whole = kept
    if trial.arguments_bytes is not None:
        whole = trial.arguments_bytes + (trial.outputs_bytes or 0) - (trial.shared_bytes or 0)
    wide = sum(tensor["bytes"] for tensor in trial.tensors if tensor["dtype"] in _FLOAT32)
    halved = whole * wide // (2 * kept) if kept else 0
    return min(trial.needed_bytes or 0, one.needed_bytes + halved)


def _half(one: Trial, subject: Subject) -> tuple[str, str, str, Passage]:
    return (
        f"a batch of {one.batch}",
        "Activations go with the batch.",
        f"Give each device a batch of {one.batch}, and the rest to more devices "
        f"or to several steps of accumulated gradients (there are {subject.devices} devices).",
        passage("troubleshooting", "Reduce memory usage"),
    )


def _parts_text(parts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {format_size(size)}" for name, size in parts.items() if size)
