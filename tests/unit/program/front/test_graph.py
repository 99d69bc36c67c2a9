"""What is counted over StableHLO, where it is arithmetic; tests/proof/preflight counts real programs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tpuwatch.program.front import graph
from tpuwatch.program.layout import parse_tensor


def counted_one_by_one(size: int, out: int, taps: int, stride: int, low: int, spread: int, taps_spread: int) -> int:
    reach = (size - 1) * spread + 1
    places = [place * stride + tap * taps_spread - low for place in range(out) for tap in range(taps)]
    return sum(0 <= place < reach and place % spread == 0 for place in places)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_positions_of_a_window_are_those_that_meet_an_input(stride: int) -> None:
    for size, out, taps, low, spread, wide in product((1, 7, 12), (1, 6), (1, 3, 5), (0, 1, 4), (1, 2), (1, 2)):
        given = (size, out, taps, stride, low, spread, wide)
        assert graph.window_positions(*given) == counted_one_by_one(*given), given


@pytest.mark.parametrize(
    ("start", "limit", "step", "direction", "expected"),
    [
        (0, 10, 1, "LT", 10),
        (0, 10, 3, "LT", 4),
        (1, 10, 3, "LE", 4),
        (9, 0, -1, "GE", 10),
        (9, 0, -2, "GT", 5),
        (5, 5, 1, "LT", 0),
        (0, 10, -1, "LT", None),
        (0, 10, 1, "NE", None),
    ],
)
def test_a_loop_that_counts_has_its_trip_count(
    start: int, limit: int, step: int, direction: str, expected: int | None
) -> None:
    assert graph.trips(start, limit, step, direction) == expected


def test_flops_are_a_multiplication_and_an_addition_each() -> None:
    assert graph.product_flops(2, 3, 5, 7) == 2 * 2 * 3 * 5 * 7
    assert graph.convolution_flops(4, 8, 3, 9 * 100) == 2 * 4 * 8 * 3 * 900


class Value:
    """A value of MLIR, as its Python interface shows it."""

    def __init__(self, kind: str, owner: Any = None) -> None:
        self.type, self.owner, self.uses = kind, owner or object(), []


class Operation:
    """An operation of MLIR."""

    def __init__(
        self, name: str, operands: list[Value], result: str = "", regions: Any = (), **attributes: Any
    ) -> None:
        self.name, self.operands, self.regions, self.attributes = name, operands, list(regions), attributes
        self.operation, self.location = self, 'loc("dot"("step"("/home/user/train.py":12:8 to :20)))'
        self.results = [Value(result, self)] if result else []


class Block:
    """A block; a region of one block is that block."""

    def __init__(self, arguments: list[Value], operations: list[Operation]) -> None:
        self.arguments, self.operations, self.blocks = arguments, operations, [self]


def constant(number: int) -> Value:
    return Operation("stablehlo.constant", [], "tensor<i32>", value=f"dense<{number}> : tensor<i32>").results[0]


def loop(limit: Value, count: Value, body: list[Operation], start: Value) -> Operation:
    """A `while` that adds one to its argument while it is less than the limit."""
    compare = Operation("stablehlo.compare", [count, limit], "tensor<i1>", comparison_direction="#x<LT>")
    condition = Block([count], [compare, Operation("stablehlo.return", compare.results)])
    inner = Value("tensor<i32>")
    added = Operation("stablehlo.add", [inner, constant(1)], "tensor<i32>")
    block = Block([inner], [*body, added, Operation("stablehlo.return", added.results)])
    return Operation("stablehlo.while", [start], "tensor<i32>", [condition, block])


def module(*operations: Operation) -> Operation:
    main = Operation("func.func", [], regions=[Block([], list(operations))], sym_name='"main"')
    return Operation("builtin.module", [], regions=[Block([], [main])])


def dot(*, used: bool = True) -> Operation:
    numbers = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
    left, right = Value("tensor<8x16xf32>"), Value("tensor<16x32xbf16>")
    made = Operation("stablehlo.dot_general", [left, right], "tensor<8x32xf32>", dot_dimension_numbers=numbers)
    made.results[0].uses = [object()] if used else []
    return made


def test_a_product_of_complex_numbers_is_four_of_real_ones() -> None:
    one = dot()
    for value in (*one.operands, *one.results):
        value.type = value.type.replace("bf16", "f32").replace("f32", "complex<f32>")
    counts = graph.summary(module(one))
    assert counts["matrix_flops"] == 4 * 2 * 8 * 16 * 32
    assert counts["operations"][0]["bytes"] == 8 * (8 * 16 + 16 * 32 + 8 * 32)


def test_a_product_in_a_loop_counts_as_often_as_it_runs() -> None:
    inner = loop(constant(5), Value("tensor<i32>"), [dot()], constant(0))
    counts = graph.summary(module(dot(), loop(constant(3), Value("tensor<i32>"), [inner], constant(0))))
    assert counts["matrix_flops"] == 2 * 8 * 16 * 32 * (1 + 15)
    assert counts["not_counted"] == {}
    (row,) = counts["operations"]
    assert (row["count"], row["m"], row["n"], row["k"]) == (16, 8, 32, 16)
    assert row["place"] == {"file": "/home/user/train.py", "line": 12}


def test_a_loop_whose_end_is_computed_counts_once_and_is_said_so() -> None:
    computed = Operation("stablehlo.custom", [], "tensor<i32>").results[0]
    counts = graph.summary(module(loop(computed, Value("tensor<i32>"), [dot()], constant(0))))
    assert counts["matrix_flops"] == 2 * 8 * 16 * 32
    assert counts["not_counted"] == {"while (trip count not known)": 1}


def test_what_nothing_uses_is_not_computed() -> None:
    assert graph.summary(module(dot(), dot(used=False)))["matrix_flops"] == 2 * 8 * 16 * 32


def test_a_broadcast_is_told_where_it_has_to_be_in_memory() -> None:
    def broadcast(user: str) -> Operation:
        made = Operation("stablehlo.broadcast_in_dim", [Value("tensor<1024xf32>")], "tensor<8192x1024xf32>")
        made.results[0].uses = [type("Use", (), {"owner": Operation(user, [])})]
        return made

    (one,) = graph.summary(module(broadcast("stablehlo.dot_general"), broadcast("stablehlo.add")))["broadcasts"]
    assert (one["bytes"], one["for"]) == (8192 * 1024 * 4, ["dot_general"])


def test_kernels_that_nobody_here_knows_are_named() -> None:
    call = Operation("stablehlo.custom_call", [], "tensor<8xf32>", call_target_name='"tpu_custom_call"')
    hint = Operation("stablehlo.custom_call", [], "tensor<8xf32>", call_target_name='"Sharding"')
    assert graph.summary(module(call, call, hint))["not_counted"] == {"custom_call tpu_custom_call": 2}


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("stablehlo.fft", "fft"),
        ("stablehlo.cholesky", "cholesky"),
        ("stablehlo.triangular_solve", "triangular_solve"),
        ("stablehlo.dynamic_conv", "dynamic_conv"),
        ("chlo.of_another_year", "of_another_year"),
        ("other.kernel", "other.kernel"),
        ("func.call", "call gone"),
    ],
)
def test_an_operation_that_is_not_counted_is_named(name: str, named: str) -> None:
    one = Operation(name, [], "tensor<8xf32>", callee="@gone")
    assert graph.summary(module(loop(constant(3), Value("tensor<i32>"), [one], constant(0))))["not_counted"] == {
        named: 3
    }


def test_elementwise_operations_and_hints_leave_the_count_whole() -> None:
    names = ("stablehlo.add", "chlo.erf", "chlo.top_k", "stablehlo.sort", "sdy.sharding_constraint", "func.return")
    counts = graph.summary(module(*(Operation(name, [Value("tensor<8xf32>")], "tensor<8xf32>") for name in names)))
    assert counts["not_counted"] == {}


def shard_map(axes: str, *body: Operation) -> Operation:
    shardings = '#sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>'
    named = f"#sdy<manual_axes{{{axes}}}>"
    return Operation(
        "sdy.manual_computation",
        [],
        "tensor<8xf32>",
        [Block([], list(body))],
        in_shardings=shardings,
        manual_axes=named,
    )


def meshed(*operations: Operation) -> Operation:
    made = module(*operations)
    mesh = Operation("sdy.mesh", [], sym_name='"mesh"', mesh='#sdy.mesh<["data"=4, "model"=2]>')
    made.regions[0].operations.insert(0, mesh)
    return made


def test_the_body_of_a_shard_map_runs_on_each_device_of_its_axes() -> None:
    one = 2 * 8 * 16 * 32
    assert graph.summary(meshed(shard_map('"data"', dot())))["matrix_flops"] == 4 * one
    assert graph.summary(meshed(shard_map('"data", "model"', dot())))["matrix_flops"] == 8 * one
    inner = shard_map('"model"', dot())
    counts = graph.summary(meshed(shard_map('"data"', inner, dot())))
    assert (counts["matrix_flops"], counts["not_counted"]) == ((8 + 4) * one, {})


def test_a_shard_map_without_a_mesh_that_is_known_is_not_counted() -> None:
    counts = graph.summary(module(shard_map('"data"', dot())))
    assert (counts["matrix_flops"], list(counts["not_counted"])) == (0, ["shard_map (its mesh is not known)"])


def ragged(left: str, right: str, result: str, numbers: str) -> Operation:
    operands = [Value(left), Value(right), Value("tensor<4xi32>")]
    made = Operation("chlo.ragged_dot", operands, result, ragged_dot_dimension_numbers=f"#chlo.ragged_dot<{numbers}>")
    made.results[0].uses = [object()]
    return made


def test_each_row_of_a_ragged_dot_meets_its_own_group() -> None:
    rows = ragged(
        "tensor<64x16xf32>",
        "tensor<4x16x32xf32>",
        "tensor<64x32xf32>",
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], "
        "rhs_group_dimensions = [0]",
    )
    gradient = ragged(
        "tensor<64x16xf32>",
        "tensor<64x32xf32>",
        "tensor<4x16x32xf32>",
        "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0], lhs_ragged_dimensions = [0]",
    )
    counts = graph.summary(module(rows, gradient))
    assert counts["matrix_flops"] == 2 * 2 * 64 * 16 * 32
    assert [(row["batch"], row["m"], row["n"], row["k"]) for row in counts["operations"]] == [
        (4, 16, 32, 16),
        (4, 16, 32, 16),
    ]


def case(*branches: list[Operation]) -> Operation:
    return Operation("stablehlo.case", [], "tensor<8xf32>", [Block([], body) for body in branches])


def test_of_branches_the_least_counts_and_that_is_said_unless_they_are_alike() -> None:
    alike = graph.summary(module(case([dot()], [dot()])))
    assert (alike["matrix_flops"], alike["not_counted"]) == (2 * 8 * 16 * 32, {})
    other = graph.summary(module(case([dot()], []), dot()))
    assert other["matrix_flops"] == 2 * 8 * 16 * 32
    assert list(other["not_counted"]) == ["case (which branch runs is not known)"]


@pytest.mark.parametrize(("sides", "flops"), [("?x16xf32, #stablehlo.bounds<8, ?>", 2 * 8 * 16 * 32), ("?x16xf32", 0)])
def test_a_side_that_depends_on_values_counts_by_its_bound(sides: str, flops: int) -> None:
    one = dot()
    one.operands[0].type = f"tensor<{sides}>"
    counts = graph.summary(module(one))
    assert counts["matrix_flops"] == flops
    assert bool(counts["not_counted"]) == (not flops)


def test_calls_that_go_back_to_the_host_are_named() -> None:
    send = Operation("stablehlo.send", [], "!stablehlo.token", is_host_transfer="true")
    between = Operation("stablehlo.send", [], "!stablehlo.token", is_host_transfer="false")
    call = Operation("stablehlo.custom_call", [], "tensor<8xf32>", call_target_name='"xla_ffi_python_cpu_callback"')
    counts = graph.summary(module(send, between, call))
    assert counts["host_calls"] == {"send to the host": 1, "xla_ffi_python_cpu_callback": 1}
    assert counts["not_counted"] == {}


def resnet50(later: bool) -> tuple[int, int]:
    """Multiplications and additions for an image of 224 by 224, without and with the positions in the padding.

    `later`: the 3x3 convolutions have the strides, as in what is called v1.5; else the 1x1 before them, as in Keras.
    """
    totals = [0, 0]

    def convolved(size: int, inputs: int, features: int, taps: int, stride: int = 1) -> int:
        out = -(-size // stride)
        inside = graph.window_positions(size, out, taps, stride, taps // 2, 1, 1) ** 2
        for place, window in enumerate((inside, (out * taps) ** 2)):
            totals[place] += graph.convolution_flops(1, features, inputs, window)
        return out

    convolved(224, 3, 64, 7, 2)
    size, inputs = 56, 64
    for stage, (blocks, features) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            if not block:
                convolved(size, inputs, 4 * features, 1, stride)
            middle = convolved(size, inputs, features, 1, 1 if later else stride)
            size = convolved(middle, features, features, 3, stride if later else 1)
            inputs = 4 * features
            convolved(size, features, inputs, 1)
    head = graph.product_flops(1, 1, 1000, 2048)
    return totals[0] + head, totals[1] + head


def test_resnet_50_has_the_published_flops_where_its_padding_is_counted() -> None:
    published = 2 * 4.089e9  # of v1.5; the count over all positions
    assert resnet50(later=True)[1] == pytest.approx(published, rel=1e-3)
    assert resnet50(later=False)[1] == pytest.approx(2 * 3.858e9, rel=1e-3)
    assert resnet50(later=True)[0] / published == pytest.approx(0.966, abs=1e-3)
    assert resnet50(later=False)[0] / published == pytest.approx(0.905, abs=1e-3)  # Keras's, by this count


def test_what_goes_into_a_program_and_comes_out_of_it() -> None:
    given = [*(Value(f"tensor<{one}>") for one in ("8x16xf32", "8x16xf32", "4xi32", "4xcomplex<f32>", "2xi1"))]
    block = Block(given, [Operation("func.return", [given[1], given[2]])])
    main = Operation("func.func", [], regions=[block], sym_name='"main"')
    main.attributes["arg_attrs"] = [{"tf.aliasing_output": "0"}, {}, {"jax.buffer_donor": "true"}, {}, {}]
    counts = graph.ends(Operation("builtin.module", [], regions=[Block([], [main])]))
    assert counts["arguments"] == {"f32[8,16]": 2, "s32[4]": 1, "c64[4]": 1, "pred[2]": 1}
    assert all(str(parse_tensor(shape)[0]) == shape for shape in counts["arguments"])
    assert counts["outputs"] == counts["shared"] == {"f32[8,16]": 1, "s32[4]": 1}
