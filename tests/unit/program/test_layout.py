"""Tiles in HBM: sizes as the compiler's own reports have them."""

from __future__ import annotations

import pytest

from tpuwatch.program import Tensor, best_layout, laid_out, parse_tensor, tile, without_waste
from tpuwatch.program.layout import layout_of_size


@pytest.mark.parametrize(("kind", "rows"), [("f32", 8), ("s32", 8), ("bf16", 16), ("s8", 32), ("pred", 32)])
def test_the_tile_of_a_type(kind: str, rows: int) -> None:
    assert tile(kind) == (rows, 128)


@pytest.mark.parametrize(
    ("text", "padded"),
    [  # the first four with sizes of libtpu's reports
        ("s32[58720256,10]{1,0:T(8,128)}", 28 << 30),
        ("s32[58720256,10]{0,1:T(8,128)}", 3758096384),
        ("bf16[60000,60000]{1,0:T(8,128)(2,1)}", 7203840000),
        ("f32[65536,32768]{1,0:T(8,128)}", 8 << 30),
        ("f32[8,128]", 4096),
        ("f32[9,129]", 16 * 256 * 4),
        ("bf16[20,30,5]", 20 * 32 * 128 * 2),
        ("f32[3,2,128]", 3 * 2 * 128 * 4),  # few rows have low tiles
        ("f32[1000]", 1024 * 4),
        ("s32[]", 128 * 4),
    ],
)
def test_what_a_shape_takes(text: str, padded: int) -> None:
    assert laid_out(*parse_tensor(text)).padded == padded


def test_the_compiler_tends_to_the_order_that_wastes_least() -> None:
    tensor = Tensor("s32", (58720256, 10))
    assert best_layout(tensor).order == (1, 0)
    assert best_layout(Tensor("f32", (64, 128))).order == (0, 1), "as it stands where that is as good"


def test_the_order_is_told_by_the_size_of_a_report() -> None:
    tensor = Tensor("s32", (58720256, 10))
    assert layout_of_size(tensor, 28 << 30).order == (0, 1)
    assert layout_of_size(tensor, 3758096384).order == (1, 0)


def test_the_nearest_shapes_without_waste() -> None:
    up_and_down = without_waste(laid_out(Tensor("f32", (1024, 130))))
    assert [str(one) for one in up_and_down] == ["f32[1024,128]", "f32[1024,256]"]
    assert [str(one) for one in without_waste(laid_out(Tensor("f32", (20, 100))))] == ["f32[24,128]"]
    assert without_waste(laid_out(Tensor("bf16", (16, 128)))) == []


@pytest.mark.parametrize("text", ["", "8,128", "f32[8,x]", "f32 8 128"])
def test_what_is_no_shape_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no shape: give it as f32\[8,128\]"):
        parse_tensor(text)
