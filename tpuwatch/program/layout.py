"""How tensors lie in HBM: in tiles, of which the last are filled up. From https://openxla.org/xla/tiled_layout and the
compiler's own reports of memory.

A tile is 8 by 128 numbers of 32 bits. Smaller numbers are packed, two of 16 and four of 8 bits below each other, so a
tile is 16 by 128 of bfloat16 and 32 by 128 of int8. The compiler chooses which two sides are the minor ones; what it
chooses for a large tensor is mostly what wastes least.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import permutations
from math import prod
from typing import Final

LANES: Final = 128
_SUBLANES: Final = 8  # of 32 bits
_WORD: Final = 32
_MOST_ORDERS: Final = 5040  # those of seven sides
_TILED: Final = 2  # sides that are tiled, the minor ones
_BITS: Final = re.compile(r"[0-9]+")
_SHAPE: Final = re.compile(r"(?P<type>[a-z]+[0-9]*[a-z0-9]*)\[(?P<sides>[0-9, ]*)\](?:\{(?P<order>[0-9,]*)[:}])?")
_NAMES: Final = {"float": "f", "bfloat": "bf", "int": "s", "uint": "u"}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A shape with the type of its elements as HLO names it ("f32", "bf16", "s8", "pred")."""

    type: str
    sides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.type}[{','.join(map(str, self.sides))}]"


@dataclass(frozen=True, slots=True)
class Layout:
    """What a tensor takes: `bytes` are its contents, `padded` with the rest of its last tiles."""

    tensor: Tensor
    order: tuple[int, ...]  # its sides, the minor ones last
    bytes: int
    padded: int

    @property
    def turned(self) -> Tensor:
        """The tensor with its sides in this order."""
        return Tensor(self.tensor.type, tuple(self.tensor.sides[side] for side in self.order))

    @property
    def waste(self) -> int:
        return self.padded - self.bytes

    @property
    def expansion(self) -> float:
        return self.padded / self.bytes if self.bytes else 1.0


def parse_tensor(text: str) -> tuple[Tensor, tuple[int, ...] | None]:
    """Of "f32[8,128]", or with the layout as the compiler writes it ("f32[8,10]{0,1:T(8,128)}"): the order too.

    Raises ValueError for another text.
    """
    found = _SHAPE.match(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no shape: give it as f32[8,128], bf16[64,1024] or s32[]")
    sides = tuple(int(side) for side in found["sides"].split(",") if side.strip())
    order = tuple(int(side) for side in found["order"].split(",") if side)[::-1] if found["order"] else None
    return Tensor(hlo_type(found["type"]), sides), order if order and sorted(order) == list(range(len(sides))) else None


def hlo_type(name: str) -> str:
    """HLO's name of an element type: "f32" for "float32", "s8" for "int8"."""
    if name in ("bool", "pred"):
        return "pred"
    word = re.match(r"[a-z]+", name)
    prefix = _NAMES.get(word[0], word[0]) if word else ""
    return ("s" if prefix == "i" else prefix) + name[len(word[0]) if word else 0 :]


def bits(kind: str) -> int:
    """Of an element; a pred is a byte."""
    found = _BITS.search(kind)
    return int(found[0]) if found else 8


def tile(kind: str) -> tuple[int, int]:
    """The tile of an element type: 8 by 128 for 32 bits, 16 by 128 for 16, 32 by 128 for 8."""
    return _SUBLANES * max(1, _WORD // bits(kind)), LANES


def laid_out(tensor: Tensor, order: tuple[int, ...] | None = None) -> Layout:
    """The tensor with its sides in this order, the minor ones last; by default as they stand.

    Of one with a side or none, a tile is 8 by 128 numbers in a row, or fewer where it is smaller.
    """
    order = tuple(range(len(tensor.sides))) if order is None else order
    size = prod(tensor.sides) * bits(tensor.type) // 8
    rows, lanes = tile(tensor.type)
    if len(order) < _TILED:
        numbers = prod(tensor.sides)
        whole = rows * lanes if numbers > rows * lanes // 2 else lanes
        return Layout(tensor, order, size, _up(numbers, whole) * bits(tensor.type) // 8)
    second, minor = tensor.sides[order[-2]], tensor.sides[order[-1]]
    others = prod(tensor.sides[side] for side in order[:-2])
    padded = others * _up(second, _rows(second, rows)) * _up(minor, lanes)
    return Layout(tensor, order, size, padded * bits(tensor.type) // 8)


def best_layout(tensor: Tensor) -> Layout:
    """The order of its sides that wastes least, as they stand where that is as good: what the compiler tends to."""
    candidates = [laid_out(tensor)]
    for second, minor in permutations(range(len(tensor.sides)), _TILED):
        others = [side for side in range(len(tensor.sides)) if side not in (second, minor)]
        candidates.append(laid_out(tensor, (*others, second, minor)))
    return min(candidates, key=lambda layout: layout.padded)


def layout_of_size(tensor: Tensor, size: int) -> Layout:
    """The layout in which a tensor takes `size` bytes: what the compiler chose, where it says only that."""
    orders = [tuple(range(len(tensor.sides))), *permutations(range(len(tensor.sides)))][: _MOST_ORDERS + 1]
    return min((laid_out(tensor, order) for order in orders), key=lambda layout: abs(layout.padded - size))


def nearest(side: int, unit: int) -> tuple[int, int]:
    """The multiples of `unit` below and above a side; below is `unit` at least."""
    return max(unit, side // unit * unit), _up(side, unit)


def without_waste(layout: Layout) -> list[Tensor]:
    """The nearest shapes without waste: both minor sides rounded up, and down where that keeps nine tenths."""
    sides = list(layout.tensor.sides)
    if len(sides) < _TILED:
        return []
    rows, lanes = tile(layout.tensor.type)
    found = []
    for place in (0, 1):  # down, up
        new = list(sides)
        for side, unit in ((layout.order[-2], rows), (layout.order[-1], lanes)):
            new[side] = nearest(sides[side], unit)[place]
        near = all(_NEAR * old <= value for old, value in zip(sides, new, strict=True))
        made = Tensor(layout.tensor.type, tuple(new))
        if new != sides and (near or place == 1) and made not in found:
            found.append(made)
    return found


_NEAR: Final = 0.9


def _rows(second: int, rows: int) -> int:
    """The compiler takes lower tiles for what has fewer rows: of 4, 2 or 1 words."""
    packed = rows // _SUBLANES
    for words in (1, 2, 4):
        if second <= words * packed:
            return words * packed
    return rows


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
