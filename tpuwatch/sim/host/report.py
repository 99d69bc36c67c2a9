"""Memory reports as the TPU compiler prints them, for programs that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "jit_train_step"  # the program that does not fit
HBM_BYTES = 16_911_433_728  # 15.75G: what the compiler may use of a v5e chip
_UNITS = ((1 << 40, "T", 2), (1 << 30, "G", 2), (1 << 20, "M", 2), (1 << 10, "K", 1))  # bytes, letter, decimals


class SimulatedAllocation(NamedTuple):
    """One of a program's buffers in HBM."""

    size: int  # bytes, with what padding adds
    shape: str  # f32[1048576,14]


def short(size: int, suffix: str = "") -> str:
    """A size as the compiler prints it: 1.50G and 512B, or with the suffix `iB` 1.50GiB and 512B."""
    for unit, letter, decimals in _UNITS:
        if size >= unit:
            return f"{size / unit:.{decimals}f}{letter}{suffix}"
    return f"{size}B"


def headline(used: int) -> str:
    """The sentence that the report opens with."""
    return (
        "XLA:TPU compile permanent error. Ran out of memory in memory space hbm."
        f" Used {short(used)} of {short(HBM_BYTES)} hbm. Exceeded hbm capacity by {short(used - HBM_BYTES)}."
        f" HLO module: {MODULE}."
    )


def usage_table(allocations: Sequence[SimulatedAllocation]) -> str:
    """The report: cumulative sizes by memory space."""
    total = sum(allocation.size for allocation in allocations)
    rows = []
    cumulative = 0
    for allocation in allocations:
        offset = cumulative
        cumulative += allocation.size
        rows.append(
            f"{short(cumulative, 'iB'):>11}({cumulative / total:4.0%});{short(allocation.size, 'iB'):>11};"
            f"{offset:13};{1:17}; {allocation.shape}"
        )
    columns = (
        "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
        "  ------------------------------------------------------------"
    )
    return "\n".join(
        (
            "",
            "Memory Space: default (color=0)",
            f"Total bytes: {total} ({short(total, 'iB')})",
            columns,
            *rows,
            "",
            "",
            "Memory Space: vmem (color=1)",
            "Total bytes: 0 (0B)",
            columns,
            "",
            "",
        )
    )
