"""The parts of one daemon's screen: one below the other, or side by side where there is room for two."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from tpuwatch.terminal import Lines, top
from tpuwatch.top.text import Line, cut, padded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpuwatch.model import DaemonDocument
    from tpuwatch.terminal import Console

    Part = Callable[[Console, DaemonDocument], None]

TWO_COLUMNS: Final = 120  # from this width on
_GAP: Final = 2
PARTS: Final[Sequence[Part]] = (
    top.print_now,
    top.print_chips,
    top.print_present_findings,
    top.print_recent_launches,
    top.print_recent_restarts,
    top.print_next_launches,
)
_LEFT: Final[Sequence[Part]] = (
    top.print_now,
    top.print_present_findings,
    top.print_recent_restarts,
    top.print_next_launches,
)
_RIGHT: Final[Sequence[Part]] = (top.print_chips, top.print_recent_launches)


def screen_lines(documents: DaemonDocument, width: int) -> list[Line]:
    """All of one daemon in lines of at most `width` cells."""
    if width < TWO_COLUMNS:
        return [Line(((style, cut(text, width)),)) for style, text in _one_below_the_other(PARTS, documents, width)]
    room = (width - _GAP) // 2
    left, right = (_one_below_the_other(parts, documents, room) for parts in (_LEFT, _RIGHT))
    lines = []
    for (style, text), (right_style, right_text) in zip_longest(left, right, fillvalue=("", "")):
        lines.append(Line(((style, padded(text, room)), ("", " " * _GAP), (right_style, cut(right_text, room)))))
    return lines


def snapshot(console: Console, documents: DaemonDocument) -> None:
    """The same as text."""
    for number, part in enumerate(PARTS):
        if number:
            console.line()
        part(console, documents)


def _one_below_the_other(parts: Iterable[Part], documents: DaemonDocument, width: int) -> Sequence[tuple[str, str]]:
    console = Lines(width)
    for part in parts:
        if console.lines:
            console.line()
        part(console, documents)
    return console.lines
