"""Memory reports of the XLA:TPU compiler and runtime, read into numbers.

Up to libtpu 0.0.23 a report lists "Largest program allocations" with operator, shape and unpadded size; later ones
print a table of buffers by memory space. Both may begin with sums ("Total hbm usage", "Program hbm requirement").
A single allocation that is too large is one line ("#allocation3 [shape = ..., space=smem, size = 0x1000000]").
Sizes are bytes; impossible ones are left out. Time is linear in the text: lines are truncated before patterns run.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuwatch.core import is_possible, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_LINES, _MAX_LINE = 4000, 600
_KEPT = 8  # allocations that an event holds
_NOTABLE = 0.05  # padding below this share of the listed memory is ignored

_SIZE = r"([0-9][0-9.]*[KMGTP]?i?B?)"
_SUM = re.compile(rf"\s*([A-Za-z][A-Za-z ]{{0,30}}?)(?:\([^)]{{0,60}}\))?[ \t]+{_SIZE}(?=[\s(]|$)")
_SUMS = {
    "reserved": "reserved_bytes",
    "program": "program_bytes",
    "arguments": "arguments_bytes",
    "output": "output_bytes",
    "HLO temp": "temporaries_bytes",
    "global": "global_bytes",
    "scoped": "scoped_bytes",
    "heap allocations": "heap_bytes",
}
_HEADS = re.compile(r"\s*(?:Total hbm usage >=|Program (?:hbm|vmem|smem) requirement|Persistent allocations)")
_OUTPUT = re.compile(rf"\s*Output size {_SIZE};")
_TEMPORARIES = re.compile(rf"Unpadded \({_SIZE}\) Padded \({_SIZE}\)")

_FIELD = re.compile(
    r"\s*(?:(?P<end>={10})"
    rf"|[0-9]{{1,3}}\. Size: (?P<size>{_SIZE})"
    r'|Operator: .{0,40}?op_name="(?P<op>[^"]{1,200})'
    r"|XLA label: %?(?P<label>[\w.-]{1,120})"
    r"|Shape: (?P<shape>\S.{0,200})"
    rf"|Unpadded size: (?P<unpadded>{_SIZE}))"
)
_INLINE = re.compile(
    r"#allocation[0-9]{0,9} \[shape = '([^']{1,200})'.{0,80}?size = (0x[0-9a-f]{1,15}|[0-9]{1,19})\b(.{0,200})"
)
_TAG = re.compile(r"tag = '([^']{1,200})")
_SPACE = re.compile(r"\s*Memory Space: (\w+)")
_ROW = re.compile(rf"\s*{_SIZE}\([ 0-9]{{1,4}}%\);\s*{_SIZE};\s*[0-9]+;\s*[0-9]+; (\S.{{0,240}})")

# Without one of these a text holds no number of a report.
_WORDS = (
    *("Unpadded", "#allocation", "Memory Space:", "Output size"),
    *("Total hbm usage", " requirement", "Persistent allocations"),
)
_SHAPE = re.compile(r"([a-z]+[0-9]*)[a-z0-9]*\[([0-9,<=]*)\](?:\{([0-9,]*)(?::T\(([0-9,]+)\))?)?")


# HBM that the compiler has for a program, in GiB, and whose it is.
_GENERATIONS = {
    7.48: "a v2 core, which has 8 GB",
    15.48: "a v3 core, which has 16 GB",
    15.75: "a v5e chip, which has 16 GB",
    31.24: "a v6e chip, which has 32 GB",
    94.74: "half a tpu7x chip, which has 192 GB",
    95.73: "a v5p chip, which has 95 GB",
}


def owner_of(limit_bytes: float) -> str | None:
    """Which TPU has that much HBM for programs: `a v3 core, which has 16 GB`; None if no known one."""
    return next((name for size, name in _GENERATIONS.items() if abs(limit_bytes / 2**30 - size) < 0.012), None)


class Allocation(NamedTuple):
    """One buffer: its allocated size, and its size without padding if that is known."""

    size: int
    unpadded: int | None
    op: str
    shape: str

    def as_details(self) -> dict[str, Any]:
        """The allocation as an event's detail."""
        details: dict[str, Any] = {"op": self.op, "shape": self.shape, "size_bytes": self.size}
        if self.unpadded:
            details |= {"unpadded_bytes": self.unpadded, "expansion": round(self.size / self.unpadded, 2)}
        return details

    @property
    def padding(self) -> int:
        """Bytes lost to padding."""
        return max(0, self.size - self.unpadded) if self.unpadded else 0


def parse(text: str) -> dict[str, Any]:
    """The numbers of the report in `text`; empty if there is none.

    `padding_bytes` and `padding_ratio` are given if padding is a notable part of the listed allocations, with
    `padded_op` and `padded_shape` of the one that loses most.
    """
    if not any(word in text for word in _WORDS):
        return {}
    lines = [line[:_MAX_LINE] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    details: dict[str, Any] = dict(_sums(lines))
    found = [*_listed(lines)]
    if "Memory Space:" in text:
        found += _tabulated(lines)
    if "#allocation" in text:
        found += _inline(lines)
    found.sort(key=lambda allocation: -allocation.size)
    if found:
        details["largest_bytes"] = found[0].size
        details["allocations"] = [allocation.as_details() for allocation in found[:_KEPT]]
    return {**details, **_padding(found, lines)}


def _padding(found: list[Allocation], lines: Iterable[str]) -> dict[str, Any]:
    whole, lost = sum(allocation.size for allocation in found), sum(allocation.padding for allocation in found)
    worst = max(found, key=lambda allocation: allocation.padding, default=None)
    written = (line for line in lines if "Unpadded (" in line)
    if match := next(filter(None, map(_TEMPORARIES.search, written)), None):  # of all, not of the largest alone
        unpadded, padded = _size(match[1]), _size(match[2])
        if unpadded is not None and padded is not None:
            whole, lost = padded, padded - unpadded
    if not whole or lost / whole < _NOTABLE or not is_possible(lost):
        return {}
    details: dict[str, Any] = {"padding_bytes": lost, "padding_ratio": round(lost / whole, 3)}
    if worst is not None and worst.padding:
        details |= {"padded_op": worst.op, "padded_shape": worst.shape}
    return details


def _sums(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The readable sums under their headings; the first of each name."""
    return ((name, size) for name, text in _written_sums(lines) if (size := _size(text)) is not None)


def _written_sums(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    inside, seen = False, set()
    for line in lines:
        if match := _OUTPUT.match(line):
            yield "output_bytes", match[1]
        elif _HEADS.match(line):
            inside = True
        elif not line.strip():
            inside = False
        elif inside and (match := _SUM.match(line)):
            name = _SUMS.get(match[1].strip())
            if name is not None and name not in seen:
                seen.add(name)
                yield name, match[2]


def _listed(lines: Iterable[str]) -> Iterator[Allocation]:
    """The "Largest program allocations", each of a few lines; an excerpt may begin inside one."""
    fields: dict[str, str] = {}
    for match in filter(None, map(_FIELD.match, lines)):
        name = match.lastgroup or ""
        if name == "end":
            yield from _allocation(fields)
            fields = {}
        else:
            fields[name] = match[name].strip()
    yield from _allocation(fields)


def _allocation(fields: dict[str, str]) -> Iterator[Allocation]:
    shape = fields.get("shape", "")
    size = _size(fields["size"]) if "size" in fields else padded_bytes(shape)
    if size and "unpadded" in fields:
        yield Allocation(size, _size(fields["unpadded"]), fields.get("op") or fields.get("label", ""), shape)


def _inline(lines: Iterable[str]) -> Iterator[Allocation]:
    """The allocation that an error names. A size of all ones means that it is unknown."""
    for line in lines:
        if (match := _INLINE.search(line)) and (size := _size(match[2])) is not None:
            tag = _TAG.search(match[3])
            yield Allocation(size, shape_bytes(match[1]), tag[1] if tag else "", match[1])


def _tabulated(lines: Iterable[str]) -> Iterator[Allocation]:
    """The buffers of HBM in a table by memory space. A buffer that several values share needs the largest of them."""
    space = ""
    for line in lines:
        if match := _SPACE.match(line):
            space = match[1]
        elif space == "default" and (match := _ROW.match(line)) and (size := _size(match[2])) is not None:
            shapes = match[3].strip()
            unpadded = None if shapes.startswith("(") or "\N{MULTIPLICATION SIGN}(" in shapes else shape_bytes(shapes)
            yield Allocation(size, unpadded, "", shapes)


def shape_bytes(shapes: str) -> int | None:
    """The unpadded size of the largest of the shapes in the text, in bytes; None when there is none."""
    return _largest(shapes, padded=False)


def padded_bytes(shape: str) -> int | None:
    """The size of a shape with its layout's tile padding, such as `bf16[16,30,100]{2,1,0:T(8,128)(2,1)}`, in bytes."""
    return _largest(shape, padded=True)


def _size(text: str) -> int | None:
    """The size in bytes; None if the text is not a possible size."""
    try:
        return parse_size(text)
    except ValueError:
        return None


def _largest(shapes: str, *, padded: bool) -> int | None:
    sizes = []
    for match in _SHAPE.finditer(shapes):
        with contextlib.suppress(ValueError, ZeroDivisionError):  # a tile without a number, or of size zero
            sizes.append(_bytes(match, padded=padded))
    return max(filter(is_possible, sizes), default=None)


def _bytes(match: re.Match[str], *, padded: bool) -> int:
    kind, dimensions, order, tile = match.groups()
    sizes = [int(size.lstrip("<=")) for size in dimensions.split(",") if size.lstrip("<=")]
    if padded and order and tile:
        minor_to_major = [int(place) for place in order.split(",") if int(place) < len(sizes)]
        for place, step in zip(minor_to_major, reversed(tile.split(",")), strict=False):
            sizes[place] = -(-sizes[place] // int(step)) * int(step)  # whole tiles
    bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind) or 32)
    return -(-math.prod(sizes) * bits // 8)
