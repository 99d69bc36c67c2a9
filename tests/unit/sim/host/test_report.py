from __future__ import annotations

import pytest

from tpuwatch.sim.host.report import SimulatedAllocation, allocation_list, headline, short, usage_table

SMALL = SimulatedAllocation(size=3 << 30, unpadded=3 << 30, shape="f32[8]{0}", op="jit(f)/add", label="add.1")
PADDED = SimulatedAllocation(
    size=1 << 30, unpadded=1 << 28, shape="s32[9,2]{1,0:T(8,128)}", op="jit(f)/iota", label="iota.1"
)


@pytest.mark.parametrize(
    ("size", "text"),
    [(512, "512B"), (1946, "1.9K"), (1_031_420_825, "983.64M"), (30_064_771_072, "28.00G"), (3 << 39, "1.50T")],
)
def test_sizes_are_written_as_the_compiler_writes_them(size: int, text: str) -> None:
    assert short(size) == text


def test_headline_says_used_limit_and_excess() -> None:
    text = headline(28 << 30, 16_911_433_728, "jit_f")
    assert text.endswith("Used 28.00G of 15.75G hbm. Exceeded hbm capacity by 12.25G. HLO module: jit_f.")


def test_table_cumulates() -> None:
    rows = [line for line in usage_table([SMALL, PADDED]).splitlines() if "[" in line]
    assert rows == [
        "    3.00GiB( 75%);    3.00GiB;            0;                1; f32[8]",
        "    4.00GiB(100%);    1.00GiB;   3221225472;                1; s32[9,2]",
    ]


def test_list_tells_padding_only_where_there_is_some() -> None:
    text = allocation_list([SMALL, PADDED])
    assert text.count("Extra memory due to padding") == 1
    assert "Extra memory due to padding: 768.00M (4.0x expansion)" in text
    assert "(81.2% utilization: Unpadded (3.25G) Padded (4.00G)" in text
