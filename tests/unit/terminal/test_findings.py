"""Findings for a person at a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from tpuwatch.terminal.findings import facts

BUFFER = {"shape": "f32[8,128]", "op": "jit(step)/dot", "size_bytes": 4096}


@pytest.mark.parametrize(
    ("details", "shown"),
    [
        ({"op_name": "model/layer_3/Reshape", "device": "0x0x0_HBM0"}, ["model/layer_3/Reshape", "0x0x0_HBM0"]),
        ({"allocations": [BUFFER]}, ["f32[8,128]", "jit(step)/dot"]),
        ({"allocations": [BUFFER], "shape": "f32[8,128]", "padded_op": "jit(step)/dot"}, ["f32[8,128]"]),
        ({"requested_bytes": 2048, "module": "jit_step"}, ["2 KiB", "jit_step"]),
    ],
)
def test_what_the_details_name_is_shown_once(details: dict[str, Any], shown: list[str]) -> None:
    text = "\n".join(facts(details, "Memory ran out."))
    assert [text.count(one) for one in shown] == [1] * len(shown)
    assert list(facts({"module": "jit_step"}, "The module jit_step is too large.")) == []


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ({"shape": "s32[29360128,10]", "op": "model/loss/one_hot"}, "s32[29360128,10] in model/loss/one_hot"),
        ({"shape": "s32[29360128,10]", "op": ""}, "s32[29360128,10]"),
        ({"shape": "", "op": "model/loss/one_hot"}, "model/loss/one_hot"),
    ],
)
def test_an_allocation_is_named_by_its_shape_and_its_op(named: dict[str, str], what: str) -> None:
    (fact,) = facts({"allocations": [{**named, "size_bytes": 14 << 30, "expansion": 12.84}]}, "")
    assert fact.split(",", 1)[0].endswith(f" {what.split(',')[0]}")
    assert what in fact
