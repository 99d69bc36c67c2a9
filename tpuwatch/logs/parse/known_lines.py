"""Remembers what came of a line, for the next line of its shape: in a storm most lines differ in their digits alone.

A line is remembered only if nothing but the line itself decides what comes of it: it is a record of its own, and none
of the rules whose literals stand in it tells digits apart or looks at what came before or comes later. So the next line
of that shape has the same matches, with details in the same places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.logs.parse.exception_chains import MARKS
from tpuwatch.logs.parse.frame import without_colours
from tpuwatch.logs.rules.digits import alike, shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.logs.parse.records import LinePlaces, RecordBuffer
    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.rules.catalogue import Rule

_MAX_SHAPES: Final = 64  # of a stream: there may be hundreds
_MAX_LINE: Final = 1024  # bytes
_MICROSECONDS: Final = 6  # digits of a second; with more, a float near the next second is rounded up
_CODED: Final = b"\\u"  # a character by its number, of which digits are part


@dataclass(frozen=True, slots=True, eq=False)
class KnownLine:
    """A shape of lines that are records each, and what comes of each."""

    found: tuple[tuple[Rule, list[tuple[str, int, int]]], ...]  # the rules of the matches, and where the details are
    literals: frozenset[int]
    report: int | None  # the literal where a report begins: it ends where that is repeated
    places: LinePlaces

    @property
    def may_repeat(self) -> bool:
        """Whether lines of this shape are all of the same faults, with the same remedies."""
        if self.places.header is not None and self.places.header.digits > _MICROSECONDS:
            return False
        rules = [rule for rule, _ in self.found]
        return bool(rules) and all(rule.cause is not None and not rule.has_thresholds for rule in rules)

    def goes_before(self, following: KnownLine) -> bool:
        """Whether a record of this shape ends where one of the other begins: a report does where its literal is."""
        return self.report is None or self.report in following.literals


class KnownLines:
    """What came of the lines of one stream, by their shape."""

    def __init__(self, scanner: Scanner, buffer: RecordBuffer) -> None:
        self.repeating: dict[bytes, KnownLine] = {}  # by the shape without its newline: what may be taken together
        self._scanner = scanner
        self._buffer = buffer
        self._seen: set[bytes] = set()
        self._known: dict[bytes, KnownLine | None] = {}  # None: more than the line matters

    def get(self, line: bytes) -> KnownLine | None:
        """What came of lines of that shape; None if it is not known."""
        return self._known.get(shape(line)) if self._known else None

    def add(self, line: bytes, rules: Iterable[Rule]) -> None:
        """Matches of these rules came of a record that is this line.

        A line is looked at when there was one of its shape before.
        """
        form = shape(line)
        if form in self._known or not form or len(form) > _MAX_LINE:
            return
        if form in self._seen:
            known = self._known[form] = self._look(line, tuple(rules))
            if known and known.may_repeat:
                self.repeating[form.removesuffix(b"\n")] = known
        if len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
            self._known.clear()
            self.repeating.clear()
        self._seen.add(form)

    def _look(self, line: bytes, found: tuple[Rule, ...]) -> KnownLine | None:
        literals = self._scanner.literals
        bare, _ = without_colours(line)
        numbers = [number for _, number in literals.find(bare)]
        called = {rule for number in numbers for rule in literals.rules[number]}
        line = line.removesuffix(b"\n")
        text = self._buffer.text_of(line)
        if any(rule.continues or rule.tentative or rule.may_tell_digits_apart(text) for rule in called):
            return None
        if any(rule.mark in MARKS or (rule.enough and rule.cause is not None) for rule in found):
            return None
        others = alike(bare).lower()
        if any(literal in others for literal in self._scanner.numbered_literals):
            return None
        places = self._buffer.places_of(line)
        if places.message is None and _CODED in line:
            return None
        report = None
        if places.header is not None:  # others may go on from it; a line without a header ends where a record begins
            report = next((number for number in numbers if any(rule.report for rule in literals.rules[number])), None)
        return KnownLine(tuple((rule, rule.places(text)) for rule in found), frozenset(numbers), report, places)
