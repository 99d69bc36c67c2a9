"""What a program computes, counted over its StableHLO: FLOPs, bytes, and the shapes of what runs on the matrix units.

The compiler's own cost analysis counts a loop's body once; here a body counts as often as it runs, wherever that
stands in the program. It walks whatever has MLIR's Python interface.

Counted are `dot_general`, `dot`, `convolution` and `ragged_dot`; the operations of `_ELEMENTWISE`, `_MOVING` and
`_FREE` have no FLOPs of the matrix units. Every other operation is not counted, and named: the totals are then lower
bounds.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import ceil, prod
from typing import Any

from .place import HERE

MAX_ROWS = 400  # of different operations: those with the most FLOPs and bytes are kept, the rest is in the totals
_TENSOR = re.compile(r"tensor<((?:[0-9?]+x)*)([a-z][A-Za-z0-9]*(?:<[^>]*>)?)")
_KINDS = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}
_BOUNDS = re.compile(r"bounds<([0-9?, ]*)>")  # the largest sizes of sides that depend on values
_NAME = re.compile(r'"([^"]+)"')
_AXIS = re.compile(r'"([^"]+)"\s*=\s*([0-9]+)')  # of a mesh
_MESH = re.compile(r"<@([A-Za-z0-9_.$-]+),")  # that a sharding names
_CONVOLUTION = re.compile(r"\[([^]]*)\]x\[([^]]*)\]->\[([^]]*)\]")
_NUMBERS = re.compile(r"-?[0-9]+")
_PLACE = re.compile(r'"([^"]+\.py)":([0-9]+)')
_BITS = re.compile(r"[0-9]+")
_DIALECTS = {"stablehlo", "chlo", "mhlo"}
# They move memory, and are not fused into what uses them: bytes of the operands and results that are touched.
_MOVING = {"gather", "scatter", "dynamic_gather", "sort", "dynamic_slice", "dynamic_update_slice", "reduce_window"}
_MOVING |= {"select_and_scatter", "all_reduce", "all_gather", "all_to_all", "top_k"}
# They only say where a value is, or come to nothing in a fusion.
_FREE = {"constant", "reshape", "broadcast_in_dim", "transpose", "slice", "concatenate", "pad", "iota", "reverse"}
_FREE |= {"tuple", "get_tuple_element", "return", "bitcast_convert", "optimization_barrier", "convert", "copy"}
_FREE |= {
    "after_all",
    "create_token",
    "get_dimension_size",
    "set_dimension_size",
    "partition_id",
    "replica_id",
    "broadcast",
}
_FREE |= {
    "dynamic_reshape",
    "dynamic_broadcast_in_dim",
    "dynamic_iota",
    "dynamic_pad",
    "real_dynamic_slice",
    "constant_like",
}
_FREE |= {"send", "recv", "infeed", "outfeed"}
# An operation of the vector units for each result, or of a reduction for each operand.
_ELEMENTWISE = frozenset(
    re.findall(
        "[a-z0-9_]+",
        """
    abs add and atan2 batch_norm_grad batch_norm_inference batch_norm_training cbrt ceil clamp collective_broadcast
    collective_permute compare complex cosine count_leading_zeros divide exponential exponential_minus_one floor imag
    is_finite log log_plus_one logistic map maximum minimum multiply negate not or popcnt power real reduce
    reduce_precision reduce_scatter remainder rng rng_bit_generator round_nearest_afz round_nearest_even rsqrt select
    shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh torch_index_select
    uniform_dequantize uniform_quantize xor acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv
    erfc is_inf is_neg_inf is_pos_inf lgamma mulhi next_after polygamma sinh square zeta
    """,
    )
)
_INNER = {"reduce", "reduce_window", "sort", "scatter", "select_and_scatter", "map", "all_reduce", "reduce_scatter"}
# Their operands have to be in memory: a broadcast among them is not only an index.
_KEEPING = {"dot_general", "convolution", "while", "return", "concatenate", "sort", "gather", "scatter", "custom_call"}
_BROADCAST_BYTES = 16 << 20  # smaller ones matter to nobody
# Custom calls without FLOPs of the matrix units: hints to the compiler, and what is elementwise or searches.
_HINTS = {"Sharding", "LayoutConstraint", "annotate_device_placement", "MoveToHost", "MoveToDevice", "Pin", "Unpin"}
_HINTS |= {
    "shape_assertion",
    "AssumeGatherIndicesInBound",
    "AllocateBuffer",
    "PadToStatic",
    "SliceToDynamic",
    "SetBound",
}
_HINTS |= {"ApproxTopK", "PartialReduce", "TopK", "mhlo.topk", "mhlo.erf", "mhlo.erf_inv", "cu_threefry2x32"}
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")  # marks of an argument
_HOST = ("callback", "py_func")  # in the name of a custom call that goes back to the host


def summary(module: Any) -> dict[str, Any]:
    """The counts of a module (an MLIR operation), fit for JSON.

    `matrix_flops` and `vector_flops` are of one run; `operations` are those of the matrix units and those that move
    memory, alike ones together with their `count`. `not_counted` names the operations whose FLOPs are not in the
    totals, with how often they run; where it holds any, the totals are the least that it can be. Of a loop without a
    known trip count the body counts once, and of branches the one with the fewest FLOPs. `host_calls` go back to the
    host.
    """
    walk = _Walk(module)
    walk.function("main", 1)
    rows = sorted(walk.rows.values(), key=lambda row: -(row["flops"] + row["bytes"]) * row["count"])
    return {
        "matrix_flops": sum(row["flops"] * row["count"] for row in rows),
        "vector_flops": walk.vector_flops,
        "moved_bytes": sum(row["bytes"] * row["count"] for row in rows),
        "operations": rows[:MAX_ROWS],
        "operations_left_out": max(0, len(rows) - MAX_ROWS),
        "broadcasts": sorted(walk.broadcasts.values(), key=lambda one: -one["bytes"])[:20],
        "normalisations": walk.normalisations,
        "not_counted": walk.not_counted,
        "host_calls": walk.host_calls,
    }


def arguments(module: Any) -> list[dict[str, Any]]:
    """The arguments of a module's `main`, as `Tpu.tensors` has them of other programs."""
    found = _Walk(module).functions.get("main")
    tensors = []
    for place, value in enumerate(found.regions[0].blocks[0].arguments if found is not None else ()):
        kind, sides = _shape(value)
        one = {"path": f"%arg{place}", "dtype": kind, "shape": sides, "bytes": _bytes(value)}
        tensors.append({**one, "part": None, "batch_side": None})
    return tensors


def ends(module: Any) -> dict[str, dict[str, int]]:
    """How many of each shape go into a module's `main`, come out of it, and go in to be replaced by what comes out."""
    main = _Walk(module).functions["main"]
    block = main.regions[0].blocks[0]
    given = [_shape_text(value) for value in block.arguments]
    marks = list(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else [()] * len(given)
    donated = [shape for shape, mark in zip(given, marks, strict=True) if any(name in mark for name in _DONATED)]
    results = [_shape_text(value) for value in _last(block).operands]
    return {"arguments": Counter(given), "outputs": Counter(results), "shared": Counter(donated)}


def product_flops(batch: int, m: int, n: int, k: int) -> int:
    """Of `batch` products of m by k with k by n: a multiplication and an addition each."""
    return 2 * batch * m * n * k


def convolution_flops(images: int, features: int, inputs: int, window: int) -> int:
    """Of a convolution with `images` x `features` outputs, each over `inputs` features of `window` positions.

    `window` is summed over all output positions (`window_positions`): positions in the padding cost nothing.
    """
    return 2 * images * features * inputs * window


@lru_cache(maxsize=4096)
def window_positions(size: int, out: int, taps: int, stride: int, low: int, spread: int, taps_spread: int) -> int:
    """How many pairs of an output and a tap meet an input, along one side.

    `size` inputs, `spread` apart (lhs_dilation) after `low` of padding; `taps` of the kernel, `taps_spread` apart.
    """
    reach = (size - 1) * spread
    pairs = 0
    for tap in range(taps):
        shift = tap * taps_spread - low
        first, last = max(0, ceil(-shift / stride)), min(out - 1, (reach - shift) // stride)
        if spread == 1:
            pairs += max(0, last - first + 1)
        else:
            pairs += sum((place * stride + shift) % spread == 0 for place in range(first, last + 1))
    return pairs


def trips(start: int, limit: int, step: int, direction: str) -> int | None:
    """How often a counted loop runs: while start (direction) limit, by steps. None for one that does not end so."""
    if direction in ("GT", "GE"):
        start, limit, step, direction = -start, -limit, -step, {"GT": "LT", "GE": "LE"}[direction]
    if direction not in ("LT", "LE") or step <= 0:
        return None
    return max(0, -(-(limit + (direction == "LE") - start) // step))


class _Walk:
    def __init__(self, module: Any) -> None:
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.broadcasts: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.vector_flops = 0
        self.normalisations: list[dict[str, Any]] = []
        self.not_counted: dict[str, int] = {}
        self.host_calls: dict[str, int] = {}
        self.functions: dict[str, Any] = {}
        self.meshes: dict[str, str] = {}
        for region in module.regions if module is not None else ():
            for block in region.blocks:
                for one in block.operations:
                    inner = one.operation
                    if inner.name == "func.func":
                        self.functions[_text(inner, "sym_name").strip('"')] = inner
                    elif inner.name == "sdy.mesh":
                        self.meshes[_text(inner, "sym_name").strip('"')] = _text(inner, "mesh")

    def function(self, name: str, times: int) -> None:
        found = self.functions.get(name)
        if found is None:
            self._not_counted(f"call {name}", times)
            return
        for region in found.regions:
            self._region(region, times)

    def _not_counted(self, name: str, times: int) -> None:
        self.not_counted[name] = self.not_counted.get(name, 0) + times

    def _region(self, region: Any, times: int) -> None:
        for block in region.blocks:
            for one in block.operations:
                self._operation(one.operation, times)

    def _operation(self, one: Any, times: int) -> None:
        dialect, _, name = one.name.partition(".")
        if name == "call" or name == "composite":
            callee = _text(one, "callee") or _text(one, "decomposition")
            self.function(callee.strip('@"'), times)
        elif name == "while":
            self._loop(one, times)
        elif name in ("case", "if"):
            self._branches(one, name, times)
        elif name == "manual_computation":
            self._manual(one, times)
        elif name == "custom_call":
            self._custom(_text(one, "call_target_name").strip('"'), times)
        elif name in _FIGURES:
            self._matrix(one, name, times)
        elif dialect in _DIALECTS or name == "return":
            self._other(one, name, times)
        elif dialect != "sdy" or list(one.regions):  # what has no region there only says where a value is
            self._not_counted(one.name, times)

    def _loop(self, one: Any, times: int) -> None:
        count = _trips(one)
        if count is None:
            self._not_counted("while (trip count not known)", times)
        for region in one.regions:
            self._region(region, times * (1 if count is None else count))

    def _matrix(self, one: Any, name: str, times: int) -> None:
        if _unused(one):  # the compiler leaves it out: TensorFlow asks for the gradient of the first input too
            return
        if any(_is_open(value) for value in (*one.operands, *one.results)):
            self._not_counted(f"{name} (its shape depends on values)", times)
        else:
            self._add(one, _FIGURES[name](one), times)

    def _custom(self, target: str, times: int) -> None:
        if any(word in target.lower() for word in _HOST):
            self.host_calls[target] = self.host_calls.get(target, 0) + times
        elif target not in _HINTS:
            self._not_counted(f"custom_call {target}", times)

    def _branches(self, one: Any, name: str, times: int) -> None:
        """The branch with the fewest FLOPs: which one runs is not known before."""
        regions = list(one.regions)
        found = [self._apart(region) for region in regions]
        if len({known[:2] for known in found}) > 1:
            self._not_counted(f"{name} (which branch runs is not known)", times)
        if regions:
            self._region(regions[found.index(min(found))], times)

    def _apart(self, region: Any) -> tuple[int, int, int]:
        """A region's FLOPs, how many of its operations are not counted, and the bytes that it moves, negative."""
        walk = _Walk(None)
        walk.functions, walk.meshes = self.functions, self.meshes
        walk._region(region, 1)
        rows = walk.rows.values()
        moved = sum(row["bytes"] * row["count"] for row in rows)
        return sum(row["flops"] * row["count"] for row in rows), len(walk.not_counted), -moved

    def _manual(self, one: Any, times: int) -> None:
        """A `shard_map`: its body has the shapes of a device, along the axes that it names, and runs on each."""
        shardings = f"{_text(one, 'in_shardings')} {_text(one, 'out_shardings')}"
        named = _MESH.search(shardings)
        sizes = dict(_AXIS.findall(self.meshes.get(named[1], "") if named else shardings))
        axes = _NAME.findall(_text(one, "manual_axes"))
        if not axes or not all(axis in sizes for axis in axes):
            self._not_counted("shard_map (its mesh is not known)", times)
            return
        for region in one.regions:
            self._region(region, times * prod(int(sizes[axis]) for axis in axes))

    def _other(self, one: Any, name: str, times: int) -> None:
        if name not in _FREE | _MOVING | _ELEMENTWISE:
            self._not_counted(name, times)
        if name in ("infeed", "outfeed") or (name == "send" and "true" in _text(one, "is_host_transfer")):
            called = "send to the host" if name == "send" else name
            self.host_calls[called] = self.host_calls.get(called, 0) + times
        if name == "broadcast_in_dim":
            self._broadcast(one, times)
        if name in _FREE or not len(one.results):
            return
        sizes = [_elements(value) for value in one.operands] or [0]
        results = sum(_elements(value) for value in one.results)
        if name.startswith("batch_norm"):
            self.normalisations.append({"shape": _shape_text(one.operands[0]), "count": times, "place": _place(one)})
        # A reduction looks at all its operands; of the others each result is an operation.
        self.vector_flops += times * (max(sizes) if name in _INNER else results)
        if name in _MOVING:
            self._add(one, {"flops": 0, "bytes": _moved(one, name)}, times)

    def _add(self, one: Any, figures: dict[str, Any], times: int) -> None:
        shapes = [_shape_text(value) for value in one.operands]
        result = _shape_text(one.results[0])
        key = (one.name, *shapes, result, *map(str, figures.values()))
        if key in self.rows:
            self.rows[key]["count"] += times
            return
        # Of a transposed program (a gradient) JAX still names the line of the forward pass.
        row = {"op": one.name.partition(".")[2], "inputs": shapes[:4], "output": result, "count": times}
        self.rows[key] = {**row, **figures, "place": _place(one)}

    def _broadcast(self, one: Any, times: int) -> None:
        small, large = one.operands[0], one.results[0]
        users = sorted({_user(use) for use in large.uses} & _KEEPING)
        size = _bytes(large)
        if users and size >= _BROADCAST_BYTES and 1 < _elements(small) < _elements(large):
            key = (_shape_text(small), _shape_text(large))
            row = {"from": key[0], "to": key[1], "bytes": size, "count": 0, "for": users, "place": _place(one)}
            self.broadcasts.setdefault(key, row)["count"] += times


def _sides(said: str, name: str) -> list[int]:
    """The sides that an attribute of dimension numbers names."""
    found = re.search(name + r" = \[([0-9, ]*)\]", said)
    return [int(side) for side in _NUMBERS.findall(found[1])] if found else []


def _product(one: Any) -> dict[str, Any]:
    """Of a dot: its sides. The compiler sees batch x (m by k) x (k by n)."""
    left, right = _shape(one.operands[0])[1], _shape(one.operands[1])[1]
    said = _text(one, "dot_dimension_numbers")
    batches, contracted = _sides(said, "lhs_batching_dimensions"), _sides(said, "lhs_contracting_dimensions")
    right_batches = _sides(said, "rhs_batching_dimensions")
    right_contracted = _sides(said, "rhs_contracting_dimensions")
    if not said:  # a plain `dot`
        contracted, right_contracted = [len(left) - 1], [0]
    batch = prod(left[side] for side in batches)
    k = prod(left[side] for side in contracted)
    m = prod(left) // max(1, batch * k)
    n = prod(right[side] for side in range(len(right)) if side not in (*right_batches, *right_contracted))
    return _product_figures(one, batch, m, n, k)


def _ragged(one: Any) -> dict[str, Any]:
    """Of a ragged dot: each row of the left side meets the right side of its group alone."""
    left, right = _shape(one.operands[0])[1], _shape(one.operands[1])[1]
    said = _text(one, "ragged_dot_dimension_numbers")
    batches, contracted = _sides(said, "lhs_batching_dimensions"), _sides(said, "lhs_contracting_dimensions")
    grouped = _sides(said, "rhs_group_dimensions")
    taken = {*_sides(said, "rhs_batching_dimensions"), *_sides(said, "rhs_contracting_dimensions"), *grouped}
    batch = prod(left[side] for side in batches)
    k = prod(left[side] for side in contracted)
    m = prod(left) // max(1, batch * k)
    n = prod(right[side] for side in range(len(right)) if side not in taken)
    flops = product_flops(batch, m, n, k)
    groups = max(1, _shape(one.operands[2])[1][-1])
    (ragged,) = _sides(said, "lhs_ragged_dimensions")
    if ragged in contracted:
        batch, k = batch * groups, max(1, k // groups)
    elif ragged not in batches:
        batch, m = batch * groups, max(1, m // groups)
    return {**_product_figures(one, batch, m, n, k), "flops": flops}


def _product_figures(one: Any, batch: int, m: int, n: int, k: int) -> dict[str, Any]:
    parts = 4 if _shape(one.results[0])[0] in ("c64", "c128") else 1  # real products of a complex one
    flops = parts * product_flops(batch, m, n, k)
    sides = {"batch": batch, "m": m, "n": n, "k": k}
    return {**sides, "passes": _passes(one), "flops": flops, "bytes": _touched(one)}


def _convolution(one: Any) -> dict[str, Any]:
    """Of a convolution: as a product of (outputs) by (input features x window) by (output features)."""
    image, kernel, result = (_shape(value)[1] for value in (*one.operands, one.results[0]))
    found = _CONVOLUTION.search(_text(one, "dimension_numbers"))
    names = [[part.strip() for part in group.split(",")] for group in found.groups()] if found else [[], [], []]
    images = result[names[2].index("b")]
    features, inputs = result[names[2].index("f")], kernel[names[1].index("i")]
    sides = sum(name.isdigit() for name in names[1])
    stride, spread, taps_spread = (
        _list(one, name) or [1] * sides for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    padding = _list(one, "padding") or [0] * 2 * sides
    pairs, window = 1, 1
    for side in range(sides):
        taps = kernel[names[1].index(str(side))]
        window *= taps
        pairs *= window_positions(
            image[names[0].index(str(side))],
            result[names[2].index(str(side))],
            taps,
            stride[side],
            padding[2 * side],
            spread[side],
            taps_spread[side],
        )
    positions = prod(result[names[2].index(str(side))] for side in range(sides))
    groups = _number(one, "feature_group_count") * _number(one, "batch_group_count")
    return {
        "batch": groups,
        "m": images * positions,
        "n": features // max(1, groups),
        "k": inputs * window,
        "features": [inputs, features // max(1, groups)],
        "window": window,
        "images": images,
        "passes": _passes(one),
        "flops": convolution_flops(images, features, inputs, pairs),
        "bytes": _touched(one),
    }


_FIGURES = {"dot_general": _product, "dot": _product, "ragged_dot": _ragged, "convolution": _convolution}


def _passes(one: Any) -> int:
    """How often the matrix unit, which multiplies bfloat16, goes over float32 operands: by the precision asked for."""
    said = _text(one, "precision_config")
    return 6 if "HIGHEST" in said else 3 if "HIGH" in said else 1


def _trips(one: Any) -> int | None:
    """The trip count of a `while` that counts: its condition compares a carried number with a constant."""
    condition, body = one.regions[0].blocks[0], one.regions[1].blocks[0]
    answer = _last(condition).operands[0]
    compared = _owner(answer)
    if compared is None or compared.name != "stablehlo.compare":
        return None
    found = re.search(r"\b(LT|LE|GT|GE)\b", _text(compared, "comparison_direction"))
    carried = _argument(compared.operands[0], condition)
    limit = _value(compared.operands[1], condition, one, body)
    if carried is None or limit is None or found is None:
        return None
    start = _constant(one.operands[carried])
    step = _step(_last(body).operands[carried], carried, body)
    return None if start is None or step is None else trips(start, limit, step, found[1])


def _step(value: Any, carried: int, body: Any) -> int | None:
    """By how much a body counts on."""
    added = _owner(value)
    if added is None or added.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = added.operands
    if added.name == "stablehlo.add" and _argument(left, body) is None:
        left, right = right, left
    step = _constant(right)
    if step is None or _argument(left, body) != carried:
        return None
    return step if added.name == "stablehlo.add" else -step


def _value(value: Any, block: Any, loop: Any, body: Any) -> int | None:
    """A constant, also one that the loop carries unchanged."""
    place = _argument(value, block)
    if place is None:
        return _constant(value)
    kept = _argument(_last(body).operands[place], body) == place
    return _constant(loop.operands[place]) if kept else None


def _constant(value: Any) -> int | None:
    """The whole number that a value is, where it stands in the program."""
    owner = _owner(value)
    if owner is not None and owner.name == "stablehlo.convert":
        return _constant(owner.operands[0])
    if owner is None or owner.name != "stablehlo.constant":
        return None
    found = re.match(r"dense<(-?[0-9]+)> : tensor<u?i[0-9]+>", _text(owner, "value"))
    return int(found[1]) if found else None


def _argument(value: Any, block: Any) -> int | None:
    """Which of a block's arguments a value is."""
    for place, argument in enumerate(block.arguments):
        if argument == value:
            return place
    return None


def _owner(value: Any) -> Any:
    """The operation whose result a value is; None for an argument of a block."""
    owner = value.owner
    return getattr(owner, "operation", owner) if hasattr(owner, "name") or hasattr(owner, "operation") else None


def _last(block: Any) -> Any:
    return list(block.operations)[-1].operation


def _unused(one: Any) -> bool:
    return not any(True for value in one.results for _ in value.uses)


def _user(use: Any) -> str:
    return str(getattr(use.owner, "operation", use.owner).name).partition(".")[2]


def _text(one: Any, name: str) -> str:
    return str(one.attributes[name]) if name in one.attributes else ""


def _list(one: Any, name: str) -> list[int]:
    """An attribute of numbers: "array<i64: 2, 2>", or "dense<[[1, 1], [1, 1]]> : tensor<2x2xi64>"."""
    text = _text(one, name)
    head = text.partition("> : ")[0] if text.startswith("dense") else text.partition(":")[2]
    numbers = [int(number) for number in _NUMBERS.findall(head)]
    found = re.search(r"tensor<([0-9x]+)xi64>", text)
    sides = prod(int(side) for side in found[1].split("x")) if found else len(numbers)
    return numbers * sides if len(numbers) == 1 else numbers


def _number(one: Any, name: str) -> int:
    found = re.match(r"[0-9]+", _text(one, name))
    return int(found[0]) if found else 1


def _shape(value: Any) -> tuple[str, list[int]]:
    """The element type, as in HLO ("bf16", "s32"), and the sides of a tensor: of a side that depends on values its
    bound, which is what is computed; 1 where it has none."""
    text = str(value.type)
    found = _TENSOR.match(text)
    if found is None:
        return "token", []
    kind = found[2]
    kind = _KINDS.get(kind, re.sub(r"^i(?=[0-9])", "s", re.sub(r"^ui(?=[0-9])", "u", kind))).lower()
    sides = [side for side in found[1].split("x") if side]
    bounds = _BOUNDS.search(text)
    if bounds:
        sides = [most if side == "?" else side for side, most in zip(sides, bounds[1].split(", "), strict=True)]
    return kind, [1 if side == "?" else int(side) for side in sides]


def _is_open(value: Any) -> bool:
    """Whether a side depends on values, and has no bound."""
    text = str(value.type)
    return "?" in text.partition(", ")[0] and _BOUNDS.search(text) is None


def _shape_text(value: Any) -> str:
    kind, sides = _shape(value)
    return f"{kind}[{','.join(map(str, sides))}]"


def _elements(value: Any) -> int:
    return prod(_shape(value)[1])


def _bytes(value: Any) -> int:
    kind, sides = _shape(value)
    return prod(sides) * max(1, _bits(kind) // 8)


def _bits(kind: str) -> int:
    found = _BITS.search(kind)
    return int(found[0]) if found else 8


def _touched(one: Any) -> int:
    return sum(_bytes(value) for value in (*one.operands, *one.results))


def _moved(one: Any, name: str) -> int:
    """Of a gather what it takes, not the whole table; what is updated in place is read and written once."""
    if name in ("gather", "dynamic_gather", "dynamic_slice"):
        return 2 * sum(_bytes(value) for value in one.results)
    if name == "dynamic_update_slice":
        return 2 * _bytes(one.operands[1])
    if name == "scatter":
        return 3 * _bytes(one.operands[len(one.operands) - 1])
    return _touched(one)


def _place(one: Any) -> dict[str, Any] | None:
    """The user's line that an operation comes from, as far as its location says."""
    for file, line in _PLACE.findall(str(one.location)):
        if (
            not file.startswith(HERE)
            and "site-packages" not in file
            and "dist-packages" not in file
            and "/lib/python" not in file
        ):
            return {"file": file, "line": int(line)}
    return None
