from __future__ import annotations

import pytest

from tpuwatch.logs.rules.memory_report import padded_bytes, parse, shape_bytes

GIB, MIB = 2**30, 2**20

LISTED = """\
Ran out of memory in memory space hbm. Used 31.50G of 15.75G hbm.

Total hbm usage >= 31.75G:
    reserved        258.00M
    program           3.50G
    arguments        28.00G

Output size 2.00G; shares 0B with arguments.

Program hbm requirement 3.50G:
    scoped            4.00M
    HLO temp          3.50G (62.5% utilization: Unpadded (2.19G) Padded (3.50G), 0.0% fragmentation (15.5K))

  Largest program allocations in hbm:

  1. Size: 512B
     Shape: s32[]
     Unpadded size: 512B
     XLA label: small = iota()
     Allocation type: HLO temp
     ==========================

  2. Size: 3.50G
     Operator: op_name="jit(f)/iota" source_file="f.py" source_line=9
     Shape: s32[58720256,10]{0,1:T(8,128)}
     Unpadded size: 1.75G
     Extra memory due to padding: 1.75G (2.0x expansion)
     XLA label: iota.2 = iota(), iota_dimension=0
     Allocation type: HLO temp
     ==========================
"""

TABLE = """\
Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm. Memory usage report:

Memory Space: default (color=0)
Total bytes: 30064771072 (28.00GiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
   14.00GiB(100%);   14.00GiB;            0;                1; s32[29360128,10]
   14.00GiB(100%);       512B;  15032385536;                1; (s32[29360128,10], s32[29360128,10])

Memory Space: vmem (color=1)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
   64.00MiB(100%);   64.00MiB;            0;                1; f32[4096,4096]
"""


def test_a_list_of_allocations() -> None:
    details = parse(LISTED)
    assert details["reserved_bytes"] == 258 * MIB
    assert details["program_bytes"] == 3.5 * GIB
    assert details["arguments_bytes"] == 28 * GIB
    assert details["output_bytes"] == 2 * GIB
    assert details["temporaries_bytes"] == 3.5 * GIB
    assert details["scoped_bytes"] == 4 * MIB
    assert details["largest_bytes"] == 3.5 * GIB
    assert details["allocations"] == [
        {
            "op": "jit(f)/iota",
            "shape": "s32[58720256,10]{0,1:T(8,128)}",
            "size_bytes": 3.5 * GIB,
            "unpadded_bytes": 1.75 * GIB,
            "expansion": 2.0,
        },
        {"op": "small", "shape": "s32[]", "size_bytes": 512, "unpadded_bytes": 512, "expansion": 1.0},
    ]
    assert details["padding_bytes"] == pytest.approx(1.31 * GIB)  # of all, not of the largest alone
    assert details["padding_ratio"] == 0.374
    assert details["padded_op"] == "jit(f)/iota"


def test_a_table_of_buffers() -> None:
    details = parse(TABLE)
    assert [(found["size_bytes"], found.get("unpadded_bytes")) for found in details["allocations"]] == [
        (14 * GIB, 29360128 * 10 * 4),
        (512, None),  # a tuple is a table of pointers
    ]
    assert details["padding_bytes"] == 14 * GIB - 29360128 * 10 * 4
    assert details["padding_ratio"] == 0.922
    assert details["padded_shape"] == "s32[29360128,10]"


def test_an_error_that_names_one_allocation() -> None:
    details = parse(
        "Allocation (size=4096) would exceed memory (size=1024) :: #allocation3 "
        "[shape = 'f32[4,2]{1,0:T(8,128)}', space=smem, size = 0x1000, scoped, tag = 'scratch operand'] :: f.1"
    )
    assert details["allocations"] == [
        {
            "op": "scratch operand",
            "shape": "f32[4,2]{1,0:T(8,128)}",
            "size_bytes": 4096,
            "unpadded_bytes": 32,
            "expansion": 128.0,
        }
    ]
    assert details["padding_bytes"] == 4064


def test_an_excerpt_that_begins_within_an_allocation_takes_the_size_from_the_layout() -> None:
    details = parse(
        "Shape: bf16[512,10,3000]{2,1,0:T(8,128)(2,1)}\nUnpadded size: 29.30M\n"
        "XLA label: %reshape.1 = bf16[] reshape()\n============="
    )
    assert details["allocations"][0]["op"] == "reshape.1"
    assert details["allocations"][0]["size_bytes"] == 512 * 16 * 3072 * 2


def test_padding_is_read_from_the_sum_where_no_allocation_is_listed() -> None:
    details = parse(
        "Program hbm requirement 3.50G:\n"
        "    HLO temp   4.00G (50.0% utilization: Unpadded (2.00G) Padded (4.00G), 0.0%)"
    )
    assert (details["padding_bytes"], details["padding_ratio"]) == (2 * GIB, 0.5)


def test_a_text_without_a_report() -> None:
    assert parse("Nothing of the kind.\n\n1. Size: large") == {}


@pytest.mark.parametrize(
    ("shape", "unpadded", "padded"),
    [
        ("bf16[16,32,8192]{2,1,0:T(8,128)(2,1)}", 16 * 32 * 8192 * 2, 16 * 32 * 8192 * 2),
        ("f32[29360128,10]{1,0:T(8,128)}", 29360128 * 10 * 4, 29360128 * 128 * 4),
        ("f32[29360128,10]{0,1:T(8,128)}", 29360128 * 10 * 4, 29360128 * 16 * 4),
        ("pred[100]{0:T(1024)}", 100, 1024),
        ("s4[3]{0}", 2, 2),
        ("f8e4m3fn[8,128]", 1024, 1024),
        ("f32[<=128,12]{1,0:T(8,128)}", 128 * 12 * 4, 128 * 128 * 4),
        ("c64[]", 8, 8),
        ("f32[10], s32[40]", 160, 160),
    ],
)
def test_sizes_of_shapes(shape: str, unpadded: int, padded: int) -> None:
    assert shape_bytes(shape) == unpadded
    assert padded_bytes(shape) == padded


@pytest.mark.parametrize("text", ["", "no shape", "f32", "unknown[3"])
def test_no_shape_no_size(text: str) -> None:
    assert shape_bytes(text) is None


def test_hostile_reports_are_bounded() -> None:
    details = parse(
        "Total hbm usage >= 1G:\n" + "1. Size: 1.0G\nShape: f32[1]{0}\nUnpadded size: 1B\n====================\n" * 3000
    )
    assert len(details["allocations"]) == 8
    assert parse(("f32[" * 50_000) + "\n" + " " * 60_000 + "1.0G") == {}


@pytest.mark.parametrize(
    "number", ["9" * 400, "9" * 20, f"{'9' * 400}.5", "1.2.3", "9..", f"{'9' * 400}G"], ids=range(6)
)
def test_numbers_that_can_be_none_are_left_out(number: str) -> None:
    forged = LISTED.replace("28.00G", number).replace("Size: 3.50G", f"Size: {number}").replace("2.00G;", f"{number};")
    details = parse(forged)
    assert "arguments_bytes" not in details
    assert "output_bytes" not in details
    assert [one["size_bytes"] for one in details["allocations"]] == [512]
    forged = TABLE.replace(";   14.00GiB;", f";   {number};").replace("Unpadded (2.19G)", f"Unpadded ({number})")
    assert [one["size_bytes"] for one in parse(forged)["allocations"]] == [512]
    forged = LISTED.replace("Unpadded size: 1.75G", f"Unpadded size: {number}").replace("(2.19G)", f"({number})")
    assert "padding_bytes" not in parse(forged)
    assert {"op": "jit(f)/iota", "shape": "s32[58720256,10]{0,1:T(8,128)}", "size_bytes": 3.5 * GIB} in parse(forged)[
        "allocations"
    ]


@pytest.mark.parametrize(
    "shape",
    [
        f"f32[{'9' * 200}]{{0:T(128)}}",
        f"f{'9' * 200}[8]",
        "f32[8,8]{1,0:T(0,128)}",
        "f32[8,8]{1,0:T(8,,128)}",
        "f32[8,8]{1,,0:T(8,128)}",
    ],
)
def test_a_shape_that_can_be_none_has_no_size(shape: str) -> None:
    assert padded_bytes(shape) is None
    assert padded_bytes(f"{shape} f32[2]") == 8
    assert "allocations" not in parse(f"Shape: {shape}\nUnpadded size: 1B\n")
    assert shape_bytes(f"f32[{'9' * 200}]") is None
