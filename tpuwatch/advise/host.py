"""The host's share: the batch in its memory, and what a step brings to the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.advise.advice import passage
from tpuwatch.core import counted, format_size
from tpuwatch.model import Gain, ProgramAdvice
from tpuwatch.program import LANES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.advise.subject import Placed, Subject

_LARGE: Final = 1 << 30  # bytes of a global batch
_PREFETCHED: Final = 2  # batches that are in host memory at once: the one in use, and the next
_DISK_BYTES_PER_SECOND: Final = 1 << 30  # that a host reads and prepares with ease


def global_batch(subject: Subject) -> Iterator[ProgramAdvice]:
    """What one host holds when it makes the batch of all devices: 1 MB an example times 4,096 are 4 GB."""
    each = input_bytes(subject)
    spread = subject.trial is not None and subject.trial.sharded
    examples = (subject.batch or 0) * subject.devices
    total = each * subject.devices
    if not examples or total * _PREFETCHED < _LARGE:
        return
    yield ProgramAdvice(
        "global_batch",
        0.0,
        Gain.HOST,
        f"{format_size(total)} for a global batch of {examples} "
        f"({format_size(total / examples)} an example), {format_size(total * _PREFETCHED)} with one prefetched",
        f"A host that makes the batch of all {subject.devices} devices holds it in its memory, "
        "however small each device's share is." + (" Each device gets its share already." if spread else ""),
        "Make each replica's input by itself, of its share of the batch: distribute_datasets_from_function with the "
        "per-replica batch in TensorFlow, jax.make_array_from_process_local_data in JAX.",
        passage("troubleshooting", "Out-of-memory on the host"),
        figures={"bytes": total, "example_bytes": total / examples},
    )


def input_rate(subject: Subject) -> Iterator[ProgramAdvice]:
    """What the pipeline has to deliver at least, if a training step takes what the roofline says. How
    often another function runs is not known."""
    line = subject.roofline
    each = input_bytes(subject)
    if line is None or not line.seconds or not each or not subject.trains:
        return
    per_host = subject.devices_of_host
    rate = each * per_host / line.seconds
    if rate < _DISK_BYTES_PER_SECOND:
        return
    yield ProgramAdvice(
        "input_rate",
        0.0,
        Gain.INPUT,
        f"{format_size(rate)} of input a second for {counted(per_host, 'device')} of a host, "
        "at the least time of a step",
        "A step cannot be faster than its input comes; the devices would wait for the host.",
        "Read files in parallel (num_parallel_reads), decode in parallel (map with num_parallel_calls), prefetch, keep "
        "what fits in memory (cache), send uint8 and cast on the device, or use more hosts (tf.data service).",
        passage("performance", "Model is input bound"),
        figures={"bytes_per_second": rate},
    )


def input_bytes(subject: Subject) -> int:
    """The bytes of a device's batch; 0 where the inputs are no data, but what another layer computed."""
    inputs = [one for one in subject.tensors if one.part == "inputs"]
    return sum(one.layout.bytes * one.count for one in inputs) if any(map(_is_data, inputs)) else 0


def _is_data(one: Placed) -> bool:
    """Whole numbers, rows of features, images: not floats of many positions with features that fill tiles."""
    tensor = one.layout.tensor
    return "f" not in tensor.type or len(tensor.sides) <= _ROWS_OF_FEATURES or tensor.sides[-1] < LANES


_ROWS_OF_FEATURES: Final = 2  # sides
