"""Memory reports as the TPU compiler prints them, for programs that do not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "jit_train_step"  # the program that does not fit
_UNITS = ((1 << 40, "T", 2), (1 << 30, "G", 2), (1 << 20, "M", 2), (1 << 10, "K", 1))  # bytes, letter, decimals


@dataclass(frozen=True, slots=True)
class SimulatedAllocation:
    """One of a program's buffers in HBM. Sizes are bytes; `size` includes what padding adds to `unpadded`."""

    size: int
    unpadded: int
    shape: str  # with layout and tiling: f32[1048576,14]{0,1:T(8,128)}
    op: str  # the op's name in the model: jit(step)/jit(main)/dot_general
    label: str  # the HLO instruction

    @property
    def plain_shape(self) -> str:
        """The shape without layout and tiling."""
        return self.shape.partition("{")[0]


def short(size: int, suffix: str = "") -> str:
    """A size as the compiler prints it: 1.50G and 512B, or with the suffix `iB` 1.50GiB and 512B."""
    for unit, letter, decimals in _UNITS:
        if size >= unit:
            return f"{size / unit:.{decimals}f}{letter}{suffix}"
    return f"{size}B"


def headline(used: int, limit: int, module: str = "") -> str:
    """The sentence that every version opens with."""
    text = (
        "XLA:TPU compile permanent error. Ran out of memory in memory space hbm."
        f" Used {short(used)} of {short(limit)} hbm. Exceeded hbm capacity by {short(used - limit)}."
    )
    return f"{text} HLO module: {module}." if module else text


def usage_table(allocations: Sequence[SimulatedAllocation]) -> str:
    """The report of new versions: cumulative sizes by memory space, without ops and padding."""
    total = sum(allocation.size for allocation in allocations)
    rows = []
    cumulative = 0
    for allocation in allocations:
        offset = cumulative
        cumulative += allocation.size
        rows.append(
            f"{short(cumulative, 'iB'):>11}({cumulative / total:4.0%});{short(allocation.size, 'iB'):>11};"
            f"{offset:13};{1:17}; {allocation.plain_shape}"
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


def allocation_list(allocations: Sequence[SimulatedAllocation]) -> str:
    """The report of old versions: the largest allocations, each with its op, its shape and what padding costs."""
    total = sum(allocation.size for allocation in allocations)
    unpadded = sum(allocation.unpadded for allocation in allocations)
    lines = [
        f"Program hbm requirement {short(total)}:",
        f"    HLO temp         {short(total)} ({unpadded / total:.1%} utilization: "
        f"Unpadded ({short(unpadded)}) Padded ({short(total)}), 0.0% fragmentation (15.5K))",
        "",
        "  Largest program allocations in hbm:",
        "",
    ]
    for number, allocation in enumerate(allocations, 1):
        lines += _entry(number, allocation)
    return "\n".join(lines)


def _entry(number: int, allocation: SimulatedAllocation) -> list[str]:
    lines = [
        f"  {number}. Size: {short(allocation.size)}",
        f'     Operator: op_name="{allocation.op}" source_file="/home/user/train.py" source_line=112',
        f"     Shape: {allocation.shape}",
        f"     Unpadded size: {short(allocation.unpadded)}",
    ]
    if allocation.size > allocation.unpadded:
        lines.append(
            f"     Extra memory due to padding: {short(allocation.size - allocation.unpadded)}"
            f" ({allocation.size / allocation.unpadded:.1f}x expansion)"
        )
    return [
        *lines,
        f"     XLA label: {allocation.label}",
        "     Allocation type: HLO temp",
        "     ==========================",
        "",
    ]
