"""Which memory a refusal of the compiler is about, and its figures."""

from __future__ import annotations

import pytest

from tpuwatch.program.front import memory

HBM = "Ran out of memory in memory space hbm. Used 19.46G of 15.75G hbm. Exceeded hbm capacity by 3.71G."
PROGRAM = "XLA:TPU compile permanent error. Program hbm requirement (30.00G) exceeds available HBM (15.75G)"
VMEM = "Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem. Exceeded vmem capacity by 4.00M."
KERNEL = "Allocation (size=268435456) would exceed memory (size=134217728) :: [shape = 'u8[268435456]{0}', space=vmem"
SCOPED = "Ran out of memory in memory space smem while allocating on stack for %dot. Scoped allocation with size 2.00M"


@pytest.mark.parametrize(
    ("text", "space"),
    [(HBM, "hbm"), (PROGRAM, "hbm"), (VMEM, "vmem"), (KERNEL, "vmem"), (SCOPED, "smem"), ("no room", "hbm")],
)
def test_the_memory_that_ran_out(text: str, space: str) -> None:
    assert memory.space(text) == space


def test_the_figures_of_a_refusal() -> None:
    gib = 1 << 30
    assert (memory.needed_bytes(HBM), memory.available_bytes(HBM)) == (int(19.46 * gib), int(15.75 * gib))
