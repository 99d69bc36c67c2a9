"""Remembers what came of a line, for the next line of its shape: in a storm most lines differ in their digits alone.

A line is remembered only if nothing but the line itself decides what comes of it: none of the rules whose literals
stand in it tells digits apart or looks at what came before or comes later, and it is a record of its own, or is taken
with lines only that it is independent of. So the next line of that shape has the same matches, with details in the same
places.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from tpuwatch.logs.parse.exception_chains import MARKS
from tpuwatch.logs.parse.frame import without_colours
from tpuwatch.logs.parse.independent_lines import IndependentLines
from tpuwatch.logs.rules.digits import alike, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.records import LinePlaces, RecordBuffer
    from tpuwatch.logs.parse.scan import Scanner
    from tpuwatch.logs.rules.catalogue import Rule

    Places = list[tuple[str, int, int]]

_MAX_SHAPES: Final = 512  # of a stream: there may be hundreds
_MAX_EXACT: Final = 32  # shapes that differ in digits that matter; with more, lines are seldom alike
_MAX_LINE: Final = 1024  # bytes
_MICROSECONDS: Final = 6  # digits of a second; with more, a float near the next second is rounded up
_CODED: Final = b"\\u"  # a character by its number, of which digits are part
_LOOKS: Final = 16  # lines of unknown shapes that are looked at among those of a run; and one in so many


@dataclass(frozen=True, eq=False)
class KnownLine:
    """A shape of lines that are records each, and what comes of each."""

    line: bytes  # the first one that was looked at
    exact: int | None  # in the clean text: from there on digits matter, and are the same in all these lines
    begins: bool  # a record; otherwise it may be in one with the lines around it
    found: tuple[tuple[Rule, Places], ...]  # the rules of the matches, and where the details are
    literals: frozenset[int]
    report: int | None  # the literal where a report begins: it ends where that is repeated
    places: LinePlaces

    @cached_property
    def faults(self) -> tuple[tuple[Rule, Places], ...]:
        """What of `found` is a fault."""
        return tuple(one for one in self.found if one[0].cause is not None)

    @cached_property
    def marks(self) -> tuple[tuple[Rule, Places], ...]:
        """What of `found` is a mark."""
        return tuple(one for one in self.found if one[0].cause is None)

    @property
    def may_repeat(self) -> bool:
        """Whether lines of this shape are all of the same faults, with the same remedies, or of none.

        Beside that there are only marks of which some are enough.
        """
        if self.places.header is not None and self.places.header.digits > _MICROSECONDS:
            return False
        return all(rule.enough if rule.cause is None else not rule.has_thresholds for rule, _ in self.found)

    @property
    def is_framed(self) -> bool:
        """Whether it has a header."""
        return self.places.header is not None

    def goes_before(self, following: KnownLine) -> bool:
        """Whether a record of this shape ends before a line of the other one, whatever their digits are.

        A report does where its literal is repeated, and where a line has no header. So does a line that is independent
        of a following one that begins no record.
        """
        if self.report is None or self.report in following.literals:
            return following.begins or not self.is_framed
        return following.begins and not (self.is_framed and following.is_framed)


class KnownLines:
    """What came of the lines of one stream, by their shape. Lines are without their newlines."""

    def __init__(self, scanner: Scanner, buffer: RecordBuffer, matches_in: Callable[[bytes], list[Match]]) -> None:
        """`matches_in`: in a text by itself."""
        self._scanner = scanner
        self._buffer = buffer
        self._matches_in = matches_in
        self._independent = IndependentLines(buffer, matches_in, self._told_apart)
        self._seen: set[bytes] = set()
        self._exact: dict[bytes, int] = {}  # by shape: from where on digits matter, so that they are part of the shape
        self._exact_seen: Counter[bytes] = Counter()  # how many of each
        self._known: dict[bytes, KnownLine | None] = {}  # None: more than the line matters
        self._repeating: dict[bytes, KnownLine] = {}  # of them, what may be taken together

    def __bool__(self) -> bool:
        """Whether there is something that may be taken together."""
        return bool(self._repeating)

    def get(self, line: bytes) -> KnownLine | None:
        """What came of lines of that shape; None if it is not known."""
        return self._known.get(self._shape(line)) if self._known else None

    def is_repeating(self, line: bytes) -> bool:
        """Whether a line is a fault that may be taken together with others."""
        known = self._repeating.get(self._shape(line))
        return known is not None and bool(known.faults)

    def is_independent(self, known: KnownLine) -> bool:
        """Whether lines of this shape may stand beside those of others of which that is so, in any order."""
        kept = self._repeating.get(self._shape(known.line)) is known
        return kept and not known.is_framed and self._independent.include(known)

    def add_beside(self, line: bytes) -> None:
        """A line was in one record with others."""
        form = self._shape(line)
        if form in self._seen and form not in self._known:
            self.add(line, [match.rule for match in self._matches_in(line + b"\n")])
        else:
            self.add(line, ())

    def add(self, line: bytes, rules: Iterable[Rule]) -> None:
        """Matches of these rules came of a record that is this line.

        A line is looked at when there was one of its shape before.
        """
        form = self._shape(line)
        if form in self._known or not form or len(form) > _MAX_LINE:
            return
        self._make_room()
        if form in self._seen:
            known = self._look(line, tuple(rules))
            if known is not None and known.exact is not None:
                form = self._shape(line)
            self._known[form] = known
            if known is not None and known.may_repeat:
                self._repeating[form] = known
        elif (alike := shape(line)) in self._exact:
            self._exact_seen[alike] += 1
        self._seen.add(form)

    def each(self, block: bytes) -> tuple[list[KnownLine], list[bytes]]:
        """What comes of the whole lines at the beginning of a block, as far as it may be taken together; the lines."""
        lines, forms = block.split(b"\n"), shape(block).split(b"\n")
        if (exact := self._exact) and len(forms) == len(lines):
            both = zip(forms, lines, strict=True)
            forms = [self._exactly(form, line) if form in exact else form for form, line in both]
        found = list(map(self._repeating.get, forms[:-1]))
        looks = _LOOKS + len(found) // _LOOKS
        for at in [number for number, one in enumerate(found) if one is None]:
            one = self._repeating.get(forms[at])
            if one is None and looks:
                looks -= 1
                one = self._nothing(forms[at], lines[at])
            if one is None:
                del found[at:]
                break
            found[at] = one
        return cast("list[KnownLine]", found), lines[: len(found)]

    def ends(self, known: KnownLine, line: bytes, following: bytes) -> bool:
        """Whether a record that is this line, of a known shape, ends where the following line begins."""
        if known.is_framed and known.report is not None and (header := self._buffer.header_of(following)) is not None:
            after, own = self.get(following), self._buffer.header_of(line)
            if after is None or known.report not in after.literals:
                return own is not None and not header.same_report(own)
        return self._buffer.begins(following)

    def _make_room(self) -> None:
        if len(self._seen) >= _MAX_SHAPES:
            self._seen.clear()
            self._exact.clear()
            self._exact_seen.clear()
            self._known.clear()
            self._repeating.clear()
            self._independent.clear()

    def _nothing(self, form: bytes, line: bytes) -> KnownLine | None:
        """That nothing comes of a line: what rules look for is not in it.

        It begins a record, or there was one of its shape before.
        """
        if form in self._known or len(line) > _MAX_LINE:
            return None
        begins = self._buffer.begins(line)
        bare, _ = without_colours(line)
        literals, patterns = self._scanner.find(bare), self._scanner.patterns
        if literals and (patterns is None or patterns.confirmed(literals, bare, frozenset())):
            return None
        numbers = frozenset(number for _, number in literals)
        known = KnownLine(line, None, begins, (), numbers, None, self._buffer.places_of(line))
        if form not in self._seen:
            if len(self._seen) < _MAX_SHAPES:
                self._seen.add(form)
        elif not self._depends(numbers, self._buffer.text_of(line)):
            self._known[form] = self._repeating[form] = known
            return known
        return known if begins else None

    def _shape(self, line: bytes) -> bytes:
        return self._exactly(shape(line), line)

    def _exactly(self, form: bytes, line: bytes) -> bytes:
        """The shape of a line with the digits that matter; empty if there are many."""
        start = self._exact.get(form)
        if start is None:
            return form
        return form[:start] + line[start:] if self._exact_seen[form] <= _MAX_EXACT else b""

    def _told_apart(self, literals: Iterable[int], text: bytes) -> Iterator[tuple[int, int]]:
        """Where in a clean text other digits may change what comes of it, or make it have a literal with digits."""
        for rule in self._called(literals):
            yield from rule.digits_told_apart(text)
        others = alike(text).lower()
        for literal in self._scanner.numbered_literals:
            start = others.find(literal)
            while start >= 0:
                yield start, start + len(literal)
                start = others.find(literal, start + 1)

    def _first_exact(self, literals: Iterable[int], text: bytes) -> int | None:
        """From where on digits matter; None if they do not."""
        return min((start for start, _ in self._told_apart(literals, text)), default=None)

    def _depends(self, literals: Collection[int], text: bytes) -> bool:
        """Whether digits matter, or more than the text."""
        return self._looks_around(literals) or self._first_exact(literals, text) is not None

    def _looks_around(self, literals: Iterable[int]) -> bool:
        """Whether more than the text matters for a rule."""
        return any(rule.continues or rule.tentative or rule.kill for rule in self._called(literals))

    def _called(self, literals: Iterable[int]) -> set[Rule]:
        return {rule for number in literals for rule in self._scanner.literals.rules[number]}

    def _look(self, line: bytes, found: tuple[Rule, ...]) -> KnownLine | None:
        literals = self._scanner.literals
        bare, _ = without_colours(line)
        numbers = [number for _, number in self._scanner.find(bare)]
        text = self._buffer.text_of(line)
        if any(rule.mark in MARKS or (rule.enough and rule.cause is not None) for rule in found):
            return None
        if self._looks_around(numbers):
            return None
        places, exact = self._buffer.places_of(line), self._first_exact(numbers, text)
        if places.message is None and (exact is not None or _CODED in line):
            return None
        if places.message is not None and exact is not None:
            self._exact[shape(line)] = places.message[0] + exact
        report = next((number for number in numbers if any(rule.report for rule in literals.rules[number])), None)
        matches = tuple((rule, rule.places(text)) for rule in found)
        return KnownLine(line, exact, self._buffer.begins(line), matches, frozenset(numbers), report, places)
