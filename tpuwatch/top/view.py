"""What the screen shows for what is known, and what each key changes. Knows of no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_age, format_time
from tpuwatch.terminal import STYLES, Lines, print_node
from tpuwatch.top.parts import screen_lines
from tpuwatch.top.rows import ORDERS, Row, merged, silent, wanted
from tpuwatch.top.text import Line, cells, cut, padded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpuwatch.top.daemons import Reading

_ROOMY: Final = 12  # lines of a screen
_MAX_FILTER: Final = 60
_HELP: Final = """\
Nodes
  up, down, page up, page down, home, end   choose a node, or scroll
  enter         the chosen node          escape   back to all nodes
  s             the next order: {orders}
  r             the order reversed
  /             only nodes with these words in name, zone, verdict or summary;
                enter keeps them, escape shows all again
Everywhere
  tab           from all nodes to this one, and back
  ?             this help                q        leave

A bar is the share of a chip's HBM, or of the time, that is used. A daemon
that does not answer is asked again, and what it said last is marked as old."""


_ALWAYS: Final = ("NODE", "VERDICT")
# Each with its greatest width, and what it has of a row.
_COLUMNS: Final[Sequence[tuple[str, int, Callable[[Row], str]]]] = (
    ("NODE", 32, lambda row: row.name),
    ("ZONE", 20, lambda row: row.zone),
    ("VERDICT", 13, lambda row: row.verdict),
    ("AGE", 6, lambda row: "" if row.seconds is None else format_age(row.seconds)),
    ("HBM", 4, lambda row: _share(row.hbm)),
    ("DUTY", 4, lambda row: _share(row.duty)),
    ("FINDS", 5, lambda row: "" if row.findings is None else str(row.findings)),
)


class TopView:
    """The state of the screen."""

    def __init__(self) -> None:
        self._table: bool | None = None  # None: as many as there are decide
        self._chosen: tuple[str, ...] | None = None
        self._opened: tuple[str, ...] | None = None
        self._order = next(iter(ORDERS))
        self._reverse = False
        self._words = ""
        self._typing = False
        self._help = False
        self._top = 0  # the first line that is shown
        self._page = 1
        self._rows: Sequence[Row] = ()

    def press(self, key: str) -> bool:
        """Obey a key, one character or its name; false: leave."""
        if self._typing:
            self._type(key)
        elif self._help:
            self._help = False
        elif key == "q":
            return False
        elif key in ("?", "h"):
            self._help = True
        elif self._table:
            self._press_in_table(key)
        else:
            self._press_in_node(key)
        return True

    def frame(self, readings: Sequence[Reading], width: int, height: int, now: float) -> list[Line]:
        """The `height` lines of the screen, each of at most `width` cells. `now`: monotonic, as of the readings."""
        rows = merged(row for one in readings for row in _rows(one))
        if self._table is None and any(one.documents or one.error for one in readings):
            self._table = len(rows) > 1
        self._rows = wanted(rows, self._words, self._order, reverse=self._reverse)
        self._page = max(1, height - 3)
        if self._help:
            title, body = "help", _help_lines(width)
        elif self._table:
            title, body = f"{len(self._rows)} of {len(rows)} nodes", self._table_lines(width)
        else:
            title, body = self._node_lines(readings, width, now)
        chosen = self._chosen_lines(width, height)
        room = max(0, height - 2 - len(chosen))
        shown = self._scrolled(body, room)
        filled = [*shown, *[Line()] * (room - len(shown)), *chosen]
        lines = [self._head(title, readings, width), *filled, self._foot(len(body), room, width)]
        return lines[:height]

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self._typing = False
            self._words = "" if key == "escape" else self._words
        elif key == "backspace":
            self._words = self._words[:-1]
        elif len(key) == 1 and key.isprintable() and len(self._words) < _MAX_FILTER:
            self._words += key

    def _press_in_table(self, key: str) -> None:
        if key == "/":
            self._typing = True
        elif key == "s":
            names = list(ORDERS)
            self._order = names[(names.index(self._order) + 1) % len(names)]
        elif key == "r":
            self._reverse = not self._reverse
        elif key == "escape":
            self._words = ""
        elif key in ("enter", "tab"):
            if self._rows:
                self._opened, self._table, self._top = self._rows[self._place()].key, False, 0
        elif self._rows:
            place = min(max(_moved(self._place(), key, self._page, len(self._rows)), 0), len(self._rows) - 1)
            self._chosen = self._rows[place].key

    def _press_in_node(self, key: str) -> None:
        if key in ("escape", "tab"):
            self._table, self._top = True, 0
        elif key == "/":
            self._table, self._typing, self._top = True, True, 0
        else:
            self._top = max(0, _moved(self._top, key, self._page, 1 << 20))

    def _place(self) -> int:
        """Where the chosen node stands; the first where it is not there."""
        return next((place for place, row in enumerate(self._rows) if row.key == self._chosen), 0)

    def _table_lines(self, width: int) -> list[Line]:
        """The head of the table, and its rows. A column in which there is nothing to compare has no place."""
        chosen = self._place()
        columns = [(title, limit, [value(row) for row in self._rows]) for title, limit, value in _COLUMNS]
        columns = [one for one in columns if one[0] in _ALWAYS or len(set(one[2])) > 1]
        sizes = [min(max(map(cells, (title, *values))), limit) for title, limit, values in columns]
        lines = [_row_line([title for title, _, _ in columns], "WHAT", sizes, width, "bold")]
        for place, row in enumerate(self._rows):
            style = "reverse" if place == chosen else STYLES[row.tone]
            lines.append(_row_line([values[place] for _, _, values in columns], row.summary, sizes, width, style))
        if not self._rows and self._words:
            lines.append(Line((("dim", cut("No node has these words; escape shows all.", width)),)))
        return lines

    def _node_lines(self, readings: Sequence[Reading], width: int, now: float) -> tuple[str, list[Line]]:
        """The title and all lines of the node that was opened, or else of the first daemon."""
        opened = self._opened
        for reading in readings:
            for row in reading.rows:
                if row.key == opened and row.document is not None:
                    return row.name, _watched_lines(row, width)
        addressed = opened[1] if opened and opened[0] == "daemon" else readings[0].address
        reading = next((one for one in readings if one.address == addressed), readings[0])
        lines = _silence(reading, width, now)
        if reading.documents is None:
            return reading.address, lines
        return f"{reading.rows[0].name}  {reading.rows[0].zone}", [*lines, *screen_lines(reading.documents, width)]

    def _scrolled(self, body: list[Line], height: int) -> list[Line]:
        if self._table and not self._help:  # the head of the table stays, and so does the chosen row
            place, room = self._place(), max(1, height - 1)
            self._top = min(max(self._top, place - room + 1), place, max(0, len(body) - 1 - room))
            return [*body[:1], *body[1 + self._top : 1 + self._top + room]][:height]
        top = 0 if self._help else min(self._top, max(0, len(body) - height))
        self._top = self._top if self._help else top
        return body[top : top + height]

    def _chosen_lines(self, width: int, height: int) -> list[Line]:
        """The summary of the chosen row in full, where there is room for it below the table."""
        if not self._table or self._help or not self._rows or height < _ROOMY:
            return []
        row = self._rows[self._place()]
        console = Lines(width)
        console.line(f"{row.name}: {row.summary}")
        return [Line((("bold", cut(text, width)),)) for _, text in console.lines[:2]]

    def _head(self, title: str, readings: Sequence[Reading], width: int) -> Line:
        times = [one.documents.status.now for one in readings if one.documents]
        silent_ones = sum(1 for one in readings if one.error)
        left = f" tpuwatch top  {title}"
        right = f"{format_time(max(times))} " if times else ""
        if silent_ones:
            right = f"{'no answer' if len(readings) == 1 else f'{silent_ones} without answer'}  {right}"
        room = width - cells(right) - 1
        return Line((("reverse", cut(f"{padded(left, room)} {right}" if room > 10 else padded(left, width), width)),))

    def _foot(self, lines: int, room: int, width: int) -> Line:
        if self._typing:
            return Line((("bold", cut(f"/{self._words}_", width)),))
        if self._help:
            return Line((("dim", cut("any key: back", width)),))
        if self._table:
            words = f"  words: {self._words}" if self._words else ""
            order = f"s order: {self._order}{', reversed' if self._reverse else ''}"
            text = f"q leave  enter open  {order}  / filter{words}  ? help"
        else:
            more = f"lines {self._top + 1}-{self._top + room} of {lines}, arrows scroll  " if room < lines else ""
            text = f"q leave  tab all nodes  {more}? help"
        return Line((("dim", cut(text, width)),))


def _rows(reading: Reading) -> Sequence[Row]:
    """What is old is not shown as present."""
    if not reading.error:
        return reading.rows
    return (silent(reading.address, reading.error),)


def _silence(reading: Reading, width: int, now: float) -> list[Line]:
    """That there is no answer, why, and how old what follows is."""
    console = Lines(width)
    if reading.error:
        console.line(reading.error, style="bold yellow")
        if reading.answered is not None:
            console.line(f"What follows was so {format_age(now - reading.answered)} ago.", style="yellow")
            console.line()
    elif reading.documents is None:
        console.line(f"Asking {reading.address} …", style="dim")
    return [Line(((style, cut(text, width)),)) for style, text in console.lines]


def _watched_lines(row: Row, width: int) -> list[Line]:
    console = Lines(width)
    if row.document is not None:
        print_node(console, row.document, row.now)
    return [Line(((style, cut(text, width)),)) for style, text in console.lines]


def _row_line(values: Sequence[str], last: str, sizes: Sequence[int], width: int, style: str) -> Line:
    fixed = "  ".join(padded(value, size) for value, size in zip(values, sizes, strict=True))
    room = width - cells(fixed) - 2
    return Line(((style, f"{fixed}  {padded(last, room)}" if room > 0 else cut(fixed, width)),))


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _help_lines(width: int) -> list[Line]:
    return [Line((("", cut(line, width)),)) for line in _HELP.format(orders=", ".join(ORDERS)).splitlines()]


def _moved(place: int, key: str, page: int, end: int) -> int:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -page, "page down": page, " ": page}
    if key in ("home", "g"):
        return 0
    if key in ("end", "G"):
        return end - 1
    return place + steps.get(key, 0)
