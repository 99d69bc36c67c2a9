"""Text in the cells of a terminal: letters of East Asian scripts take two of them, combining marks none."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from tpuwatch.core import cut as cut_after
from tpuwatch.core import printable


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen: styles as of tpuwatch.terminal.Console, or "reverse", each with its text."""

    spans: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.spans)


def cells(text: str) -> int:
    """How many cells the text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, width: int) -> str:
    """The text, printable, in at most `width` cells, with an ellipsis where words are left out."""
    text = printable(text)
    if cells(text) <= width:
        return text
    taken = used = 0
    for char in text:
        used += _cells(char)
        if used > width - 1:
            break
        taken += 1
    return cut_after(text, taken) if width > 0 else ""


def padded(text: str, width: int) -> str:
    """The text in exactly `width` cells."""
    short = cut(text, width)
    return short + " " * (width - cells(short))


def _cells(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me") else 1
