"""What a program takes at best: its FLOPs at the matrix units' peak, or its bytes at the bandwidth of HBM.

An estimate from the program as it was written, before the compiler has fused and laid it out: matrix products, gathers
and what else is not fused read their operands and write their results, everything between them costs nothing. Real
steps take longer; how much longer is what a profile tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from tpuwatch.libtpu import GENERATIONS
from tpuwatch.model import Flops, Roofline

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUBLANES: Final = 8


class Sizes(Protocol):
    """What a trial says of the arguments and results of a device, in bytes."""

    @property
    def arguments_bytes(self) -> int | None: ...
    @property
    def outputs_bytes(self) -> int | None: ...


def flops_of(graph: Mapping[str, Any] | None) -> Flops:
    """The FLOPs of a run."""
    counts = graph or {"problem": "the program was not compiled"}
    if "problem" in counts:
        return Flops(None, None, None, {f"the whole program: {counts['problem']}": 1})
    least, missing = counts["matrix_flops"], dict(counts["not_counted"])
    return Flops(None if missing else least, None if missing else counts["vector_flops"], least, missing)


def roofline_of(graph: Mapping[str, Any] | None, generation: str, devices: int, sizes: Sizes) -> Roofline | None:
    """Of what `graph.py` counted, on one device of a generation; `devices` share the program evenly. None where an
    operation is not counted."""
    if graph is None or "problem" in graph or graph["not_counted"]:
        return None
    known = GENERATIONS[generation]
    peak = known.peak_flops / known.devices_per_chip
    bandwidth = known.hbm_bytes_per_second / known.devices_per_chip
    flops = sum(row["flops"] * row["count"] * row.get("passes", 1) for row in graph["operations"]) / devices
    ends = (sizes.arguments_bytes or 0) + (sizes.outputs_bytes or 0)
    moved = max(graph["moved_bytes"] / devices, ends)
    # The rows with the fewest FLOPs may be left out of a long list: they are in its total.
    left_out = max(0, graph["matrix_flops"] - sum(row["flops"] * row["count"] for row in graph["operations"])) / devices
    flops += left_out
    seconds = full = left_out / peak
    for row in graph["operations"]:
        share = mxu_bound(row, known.matrix_side) if row["flops"] else 1.0
        takes = row["flops"] * row["count"] * row.get("passes", 1) / devices / peak / share
        full += takes
        seconds += max(takes, row["bytes"] * row["count"] / devices / bandwidth)
    compute, memory = flops / peak, moved / bandwidth
    return Roofline(
        flops=flops,
        moved_bytes=moved,
        compute_seconds=compute,
        memory_seconds=memory,
        seconds=max(seconds, memory),
        peak_flops=peak,
        hbm_bytes_per_second=bandwidth,
        intensity=flops / moved if moved else 0.0,
        ridge=peak / bandwidth,
        bound="compute" if compute >= memory else "memory",
        mxu_bound=compute / full if full else 1.0,
    )


def mxu_bound(row: Mapping[str, Any], side: int) -> float:
    """The share of the matrix units' peak that a product of m by k with k by n can reach at most, by its shape alone.

    One operand lies on the unit, which is a square of `side`: k on one of its sides, m or n on the other; the third
    side streams through by eights. The compiler chooses which operand; the bound is that of the better choice.
    """
    m, n, k = row["m"], row["n"], row["k"]
    useful = m * n * k
    return max(
        (useful / (_up(stream, _SUBLANES) * _up(one, side) * _up(two, side)) if useful else 1.0)
        for stream, one, two in ((m, n, k), (n, m, k))
    )


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
