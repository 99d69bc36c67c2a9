"""Remembers what came of a line, for the next line of its shape: in a storm most lines differ in their digits alone.

A line is remembered only if nothing but the line itself decides what comes of it: it is a record of its own, and none
of the rules whose literals stand in it tells digits apart or looks at what came before or comes later. So the next line
of that shape has the same matches, with details in the same places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.logs.parse.exception_chains import MARKS
from tpuwatch.logs.parse.repeats import Form
from tpuwatch.logs.rules.digits import alike, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.logs.parse.frame import HeaderPlaces
    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.rules.catalogue import Rule

_MAX_SHAPES: Final = 64  # of a stream: there may be hundreds
_MAX_LINE: Final = 1024  # bytes


class KnownLine(NamedTuple):
    """What came of the lines of a shape."""

    found: tuple[tuple[Rule, list[tuple[str, int, int]]], ...]  # the rules of the matches, and where the details are
    literals: frozenset[int]
    report: int | None  # the literal where a report begins: it ends where that is repeated

    @property
    def may_repeat(self) -> bool:
        """Whether lines of this shape are all of the same faults, with the same remedies."""
        rules = [rule for rule, _ in self.found]
        return bool(rules) and all(rule.cause is not None and not rule.has_thresholds for rule in rules)


class KnownLines:
    """What came of the lines of one stream, by their shape."""

    def __init__(self, scanner: Scanner, places: Callable[[bytes], HeaderPlaces | None]) -> None:
        """`places`: of a line's header."""
        self.forms: dict[bytes, Form] = {}  # by the shape without its newline: those whose lines may be taken together
        self._scanner = scanner
        self._places = places
        self._seen: set[bytes] = set()
        self._known: dict[bytes, KnownLine | None] = {}  # None: more than the line matters

    def get(self, line: bytes) -> KnownLine | None:
        """What came of lines of that shape; None if it is not known."""
        return self._known.get(shape(line)) if self._known else None

    def add(self, line: bytes, message: bytes, rules: Iterable[Rule]) -> None:
        """Matches of these rules came of a record that is this line, and had its message after its header.

        A line is looked at when there was one of its shape before.
        """
        form = shape(line)
        if form in self._known or not form or len(form) > _MAX_LINE or b"\x1b" in form:
            return
        if form in self._seen:
            known = self._known[form] = self._look(line, message, tuple(rules))
            if known and (together := Form.of(known, self._places(line), len(line) - len(message))):
                self.forms[form.removesuffix(b"\n")] = together
        if len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
            self._known.clear()
            self.forms.clear()
        self._seen.add(form)

    def _look(self, line: bytes, message: bytes, found: tuple[Rule, ...]) -> KnownLine | None:
        literals = self._scanner.literals
        numbers = [number for _, number in literals.find(line)]
        called = {rule for number in numbers for rule in literals.rules[number]}
        if any(rule.continues or rule.tentative or rule.tells_digits_apart for rule in called):
            return None
        if any(rule.mark in MARKS or (rule.enough and rule.cause is not None) for rule in found):
            return None
        others = alike(line).lower()
        if any(literal in others for literal in self._scanner.numbered_literals):
            return None
        report = next((number for number in numbers if any(rule.report for rule in literals.rules[number])), None)
        return KnownLine(tuple((rule, rule.places(message)) for rule in found), frozenset(numbers), report)
