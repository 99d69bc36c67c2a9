"""What a program takes at best."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tpuwatch.model import Flops, Roofline
from tpuwatch.program import flops_of, mxu_bound, roofline_of

NOTHING = SimpleNamespace(arguments_bytes=0, outputs_bytes=0)


def row(m: int, n: int, k: int, **more: Any) -> dict[str, Any]:
    flops, moved = 2 * m * n * k, 2 * (m * k + k * n + m * n)
    return {"m": m, "n": n, "k": k, "flops": flops, "bytes": moved, "count": 1, "passes": 1, **more}


def graph(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "matrix_flops": sum(one["flops"] * one["count"] for one in rows),
        "operations": rows,
        "moved_bytes": sum(one["bytes"] * one["count"] for one in rows),
        "not_counted": {},
    }


def roofline(counts: dict[str, Any], generation: str, devices: int, sizes: Any) -> Roofline:
    line = roofline_of(counts, generation, devices, sizes)
    assert line is not None
    return line


@pytest.mark.parametrize(
    ("m", "n", "k", "side", "share"),
    [
        (8, 128, 128, 128, 1.0),
        (8, 128, 128, 256, 0.25),
        (4096, 64, 512, 128, 1.0),  # the side of 64 streams through
        (4096, 64, 64, 128, 0.5),
        (512, 512, 64, 128, 0.5),  # attention with heads of 64: what is summed over lies on the unit
        (100, 10, 784, 128, 0.625 * (784 / 896) * (100 / 128)),
        (1, 4096, 4096, 128, 0.125),
    ],
)
def test_the_share_of_a_matrix_unit_that_a_shape_can_fill(m: int, n: int, k: int, side: int, share: float) -> None:
    assert mxu_bound(row(m, n, k), side) == pytest.approx(share)


def test_large_products_are_bound_by_their_flops() -> None:
    line = roofline(graph(row(8192, 8192, 8192)), "v5e", 1, NOTHING)
    assert line.bound == "compute"
    assert line.seconds == pytest.approx(2 * 8192**3 / 197e12)
    assert line.ridge == pytest.approx(197e12 / 819e9)


def test_a_vector_by_a_matrix_is_bound_by_its_bytes() -> None:
    line = roofline(graph(row(1, 4096, 4096)), "v5e", 1, NOTHING)
    assert line.bound == "memory"
    assert line.seconds == pytest.approx(line.moved_bytes / 819e9)


def test_arguments_are_read_and_results_written_at_least_once() -> None:
    line = roofline(graph(), "v6e", 1, SimpleNamespace(arguments_bytes=10 << 30, outputs_bytes=None))
    assert line.moved_bytes == 10 << 30


def test_devices_share_a_program_and_a_chip_may_be_two_of_them() -> None:
    whole, quarter = (roofline(graph(row(4096, 4096, 4096)), "7x", devices, NOTHING) for devices in (1, 4))
    assert quarter.seconds == pytest.approx(whole.seconds / 4)
    assert whole.peak_flops == 2307e12 / 2


def test_a_precision_of_several_passes_takes_several_times_as_long() -> None:
    once, thrice = (roofline(graph(row(4096, 4096, 4096, passes=n)), "v5e", 1, NOTHING) for n in (1, 3))
    assert thrice.seconds == pytest.approx(3 * once.seconds)


def test_without_a_figure_for_an_operation_there_is_no_estimate() -> None:
    counts = {**graph(row(8192, 8192, 8192)), "not_counted": {"custom_call tpu_custom_call": 1}}
    assert roofline_of(counts, "v5e", 1, NOTHING) is None
    assert roofline_of(None, "v5e", 1, NOTHING) is None


def test_operations_that_a_long_list_leaves_out_are_in_the_estimate() -> None:
    whole = graph(row(8192, 8192, 8192), row(4096, 8192, 8192))
    cut = {**whole, "operations": whole["operations"][:1]}
    assert roofline(cut, "v5e", 1, NOTHING).flops == roofline(whole, "v5e", 1, NOTHING).flops


@pytest.mark.parametrize(
    ("graph", "flops"),
    [
        ({"matrix_flops": 8, "vector_flops": 7, "not_counted": {}}, Flops(8, 7, 8, {})),
        ({"matrix_flops": 8, "vector_flops": 7, "not_counted": {"fft": 3}}, Flops(None, None, 8, {"fft": 3})),
        ({"problem": "KeyError: 'b'"}, Flops(None, None, None, {"the whole program: KeyError: 'b'": 1})),
    ],
)
def test_flops_that_are_not_counted_are_no_number(graph: dict[str, Any], flops: Flops) -> None:
    assert flops_of(graph) == flops
