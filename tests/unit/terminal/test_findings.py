"""What a finding says of the buffers that a compiler's report names."""

from __future__ import annotations

import pytest

from tpuwatch.terminal.findings import facts


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
