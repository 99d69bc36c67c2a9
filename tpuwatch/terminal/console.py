"""Lines for a terminal, as wide as it is, in colour where it has that; in a pipe each line is whole.

A command in a text, between backticks, has a line of its own that is never wrapped, to be copied.
"""

from __future__ import annotations

import io
import os
import re
import textwrap
from typing import Final, TextIO

from tpuwatch.core import cut, printable

WIDTH = 80  # of a terminal that does not tell its own
LEAST_WIDTH = 40
UNWRAPPED = 1 << 30
# Not every text between backticks is a command: `poll_seconds` and `enabled = false` are settings.
_COMMAND: Final = re.compile(r"`([a-z][\w./-]* (?!= )[^`]+)`")
_SHELL_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour: only on a terminal that can, and never when NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width_of(terminal: TextIO) -> int:
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except (OSError, ValueError):  # it has none, as in tests
        return WIDTH
    return max(columns, LEAST_WIDTH) if columns else WIDTH


class Console:
    """Writes wrapped and indented text; every line is flushed, so that it appears at once.

    No terminal obeys the text, whoever wrote it: each character that does not print is a space.
    """

    def __init__(
        self, stream: TextIO, *, colour: bool | None = None, width: int | None = None, prefix: str = ""
    ) -> None:
        """`prefix` begins each line, within the width, which by default is that of a terminal, if it is one."""
        if width is None:
            width = _width_of(stream) if stream.isatty() else UNWRAPPED
        self.stream = stream
        self.width = width - len(prefix)
        self._prefix = prefix
        self.colour = wants_colour(stream) if colour is None else colour

    @property
    def wraps(self) -> bool:
        """Whether lines have a width."""
        return self.width < UNWRAPPED // 2

    def line(self, text: str = "", *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """Write text, wrapped to the width; continuation lines are indented by `hang` more. Words are not broken."""
        lines = textwrap.wrap(
            printable(text),
            self.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines or [""]:
            self._write(line, style)

    def cut(self, text: str, *, style: str = "") -> None:
        """Write one line that ends at the width, with an ellipsis where words are left out."""
        self.row(text if len(text) <= self.width else cut(text, self.width - 1), style=style)

    def row(self, text: str, *, style: str = "") -> None:
        """Write one line, however long: a row of a table."""
        self._write(printable(text.rstrip()), style)

    def command(self, text: str, *, indent: int = 0) -> None:
        """Write a command, whole, on a line of its own."""
        self.row(f"{' ' * indent}{text}", style="bold")

    def _write(self, line: str, style: str) -> None:
        self.stream.write(f"{self._prefix}{self._styled(line, style)}".rstrip() + "\n")
        self.stream.flush()

    def _styled(self, line: str, style: str) -> str:
        if not (self.colour and style):
            return line
        return f"\x1b[{';'.join(_CODES[name] for name in style.split())}m{line}\x1b[0m"


class Lines(Console):
    """Keeps lines, each with its style, in place of writing them."""

    def __init__(self, width: int) -> None:
        super().__init__(io.StringIO(), colour=False, width=width)
        self.lines: list[tuple[str, str]] = []

    def command(self, text: str, *, indent: int = 0) -> None:
        """Keep a command, continued on further lines as a shell reads it: a screen ends at its width."""
        line = " " * indent
        for word in _SHELL_WORD.findall(printable(text)):
            if line.strip() and len(line) + len(word) + 2 > self.width:
                self.row(f"{line}\\", style="bold")
                line = " " * (indent + 2)
            line += f"{word} "
        self.row(line, style="bold")

    def _write(self, line: str, style: str) -> None:
        self.lines.append((style, line))


def print_text(console: Console, text: str, *, style: str = "", indent: int = 0, hang: int = 0) -> None:
    """Text that may come from outside, wrapped; each command in it on a line of its own."""
    if not text:
        console.line()
    words, *rest = _COMMAND.split(printable(text))
    if words.strip() or not rest:
        console.line(words.rstrip(), style=style, indent=indent, hang=hang)
    for command, words in zip(rest[::2], rest[1::2], strict=True):
        console.command(command, indent=indent + hang + 2)
        if after := words.strip(" ,;").removeprefix(".").lstrip():
            console.line(after, style=style, indent=indent + hang)
