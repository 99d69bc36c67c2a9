"""Initialisation time against the premapped buffer's size, drawn with signs for a terminal. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.model import Fit

MIN_COLUMNS: Final = 28
MAX_COLUMNS: Final = 100
ROWS: Final = 12  # of the field
_FAR: Final = 2.0  # times the limit or the line, whichever is higher: what took longer is drawn at the upper edge
_ROOM: Final = 1.15  # of the field above what it has to show, and to the right of it
_STEPS: Final = 5  # of the seconds, at most
_APART: Final = 10  # columns between the sizes on the axis, at least
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Signs:
    """What a plot is drawn with. Each is one column wide."""

    worked: str
    failed: str
    line: str
    limit: str
    far: str
    chosen: str
    across: str
    up: str
    tick_across: str
    tick_up: str
    corner: str

    def fit_into(self, encoding: str) -> bool:
        """Whether a stream of this encoding has them all."""
        try:
            "".join(getattr(self, name) for name in self.__slots__).encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True


FINE: Final = Signs("●", "✕", "·", "╌", "↑", "▲", "─", "│", "┬", "┤", "┼")
PLAIN: Final = Signs("o", "x", ".", "-", "!", "^", "-", "|", "+", "+", "+")


@dataclass(frozen=True, slots=True)
class Point:
    """A launch that came up: its premapped buffer in bytes, the seconds it took, whether the buffer had no room."""

    size_bytes: int
    seconds: float
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """What is drawn. Sizes are bytes, times seconds."""

    points: Sequence[Point]
    fit: Fit | None
    limit_seconds: float
    chosen_bytes: int | None = None  # the next launch's buffer

    @property
    def right(self) -> float:
        """The size at the right edge."""
        sizes = [point.size_bytes for point in self.points]
        return max([*sizes, self.chosen_bytes or 0, 256 * _MIB]) * _ROOM

    @property
    def top(self) -> float:
        """The seconds at the upper edge: the limit, the line and all launches that are not far above both."""
        high = max(self.limit_seconds, self.line(self.right) if self.fit else 0.0)
        near = [point.seconds for point in self.points if point.seconds <= high * _FAR]
        return max([high, *near]) * _ROOM

    def line(self, size: float) -> float:
        """The seconds that the fit gives for a size; not a number without a fit."""
        return self.fit.base_seconds + self.fit.per_byte_seconds * size if self.fit else math.nan


def draw(graph: Graph, *, columns: int, signs: Signs = FINE) -> list[str]:
    """The plot in lines of at most `columns` signs, its legend the last of them."""
    columns = max(MIN_COLUMNS, min(columns, MAX_COLUMNS))
    labels = _labels(graph)
    margin = max(map(len, labels.values()))
    field = _Field(graph, columns - margin - 2, signs)
    field.fill()
    drawn = ["seconds"]
    for row, cells in enumerate(field.cells):
        label = labels.get(row, "")
        edge = signs.tick_up if label else signs.up
        drawn.append(f"{label:>{margin}} {edge}{''.join(cells)}".rstrip())
    drawn += [line.rstrip() for line in field.axis(margin)]
    return [*drawn, *_legend(graph, columns, signs)]


def _labels(graph: Graph) -> dict[int, str]:
    """The seconds that stand at the rows. Next to the limit's own number there is no other one."""
    step, limit = _step(graph.top, _STEPS), _row(graph, graph.limit_seconds)
    marks = [step * number for number in range(1, math.ceil(graph.top / step))]
    labels = {_row(graph, mark): _number(mark, step) for mark in marks}
    return {row: label for row, label in labels.items() if abs(row - limit) > 1} | {limit: f"{graph.limit_seconds:.3g}"}


def _row(graph: Graph, seconds: float) -> int:
    """The row of a time; what is above the field is in its first."""
    return max(0, ROWS - 1 - math.floor(seconds / graph.top * ROWS))


class _Field:
    """The cells between the axes. Row 0 is the upper edge, column 0 no buffer at all."""

    def __init__(self, graph: Graph, columns: int, signs: Signs) -> None:
        self._graph = graph
        self._signs = signs
        self._columns = columns
        self.cells = [[" "] * columns for _ in range(ROWS)]

    def column(self, size: float) -> int:
        return min(self._columns - 1, math.floor(size / self._graph.right * self._columns))

    def fill(self) -> None:
        """The limit, over it the line, over that the launches: those without room last, so that none is hidden."""
        graph, signs = self._graph, self._signs
        self.cells[_row(graph, graph.limit_seconds)] = [signs.limit] * self._columns
        for column in range(self._columns if graph.fit else 0):
            seconds = graph.line((column + 0.5) / self._columns * graph.right)
            if 0 <= seconds < graph.top:
                self.cells[_row(graph, seconds)][column] = signs.line
        for point in sorted(graph.points, key=lambda point: point.failed):
            sign = signs.failed if point.failed else signs.worked
            sign = signs.far if point.seconds >= graph.top else sign
            self.cells[_row(graph, point.seconds)][self.column(point.size_bytes)] = sign

    def axis(self, margin: int) -> Iterable[str]:
        """The sizes, and which of them comes next."""
        graph, signs = self._graph, self._signs
        step = _size_step(graph.right, max(1, self._columns // _APART))
        rule, labels = [signs.across] * self._columns, [" "] * (margin + 2 + self._columns)
        for number in range(math.floor(graph.right / step) + 1):
            column, label = self.column(step * number), format_size(step * number) if number else "0"
            place = margin + 2 + column - (len(label) // 2 if number else 0)
            if place + len(label) <= len(labels):
                rule[column] = signs.tick_across
                labels[place : place + len(label)] = label
        yield f"{'0':>{margin}} {signs.corner}{''.join(rule)}"
        yield "".join(labels)
        if graph.chosen_bytes:
            yield _pointed(margin + 2 + self.column(graph.chosen_bytes), graph.chosen_bytes, len(labels), signs)


def _pointed(column: int, size: int, columns: int, signs: Signs) -> str:
    """A mark at the column, with what it means on the side that has room."""
    text = f"next: {format_size(size)}"
    if column + 2 + len(text) <= columns:
        return f"{' ' * column}{signs.chosen} {text}"
    return f"{f'{text} {signs.chosen}':>{column + 1}}"


def _legend(graph: Graph, columns: int, signs: Signs) -> list[str]:
    """What the signs mean: those that are there."""
    points = graph.points
    far = [point for point in points if point.seconds >= graph.top]
    near = [point for point in points if point.seconds < graph.top]
    parts = [
        f"{signs.worked} launch" if any(not point.failed for point in near) else "",
        f"{signs.failed} no room in the buffer" if any(point.failed for point in near) else "",
        f"{signs.far} longer, up to {max(point.seconds for point in far):.0f} s" if far else "",
        f"{signs.line} fit" if graph.fit else "",
        f"{signs.limit} limit",
    ]
    lines = [""]
    for part in filter(None, parts):
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > columns and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def _step(top: float, most: int) -> float:
    """1, 2 or 5 times a power of ten, so that at most so many steps reach the top."""
    least = top / most
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def _size_step(right: float, most: int) -> int:
    """A power of two in bytes, so that at most so many steps reach the right edge."""
    return 1 << max(0, math.ceil(math.log2(right / most)))


def _number(value: float, step: float) -> str:
    return f"{value:.0f}" if step >= 1 else f"{value:.1f}" if step >= 0.1 else f"{value:.2g}"
