"""The pass of literals over a block of bytes: it names the places where rules may match. The parser decides.

It finds the literals of all rules at once, at gigabytes a second in a log where they are rare.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import hyperscan

from tpuwatch.logs.rules.marks import CHAIN_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.logs.rules.catalogue import Catalogue, Rule

    Hit = tuple[int, int]  # the position of a literal's first byte, and its number

_BANNER = "banner"  # the mark of what a process says of itself, and a file of libtpu is of one process


class Scanner:
    """The compiled literals of a catalogue, for all parsers of one thread: they share Hyperscan's scratch space."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.order = {rule: place for place, rule in enumerate(catalogue.rules)}
        called: dict[tuple[bytes, bool], list[Rule]] = {}
        digits, lines = set[tuple[bytes, bool]](), set[tuple[bytes, bool]]()
        for rule in catalogue.rules:
            for anchor in rule.anchors:
                literal = (anchor.literal, anchor.ignore_case)
                called.setdefault(literal, []).append(rule)
                if anchor.digits or rule.above:
                    digits.add(literal)
                if anchor.lines or rule.looks_around:
                    lines.add(literal)
        self._literals = list(called)
        self.lengths = [len(literal) for literal, _ in self._literals]
        self.rules = [tuple(rules) for rules in called.values()]  # of each literal
        # For a line with one of these its shape does not decide: the digits do, or other lines.
        self.digits = frozenset(number for number, literal in enumerate(self._literals) if literal in digits)
        self.around = frozenset(number for number, literal in enumerate(self._literals) if literal in lines)
        self.chain_marks = frozenset(rule for rule in catalogue.rules if rule.mark in CHAIN_MARKS)
        self.of_process = frozenset(rule for rule in catalogue.rules if rule.mark == _BANNER)
        # Of the whole stream: where one is known, or cannot be, it is not looked for again, also after a fault.
        self.facts = self.chain_marks | self.of_process | {rule for rule in catalogue.rules if rule.enough == 1}
        # What a fact clears need not be looked at once that is known.
        self.clears = {
            fact: frozenset(rule for rule in catalogue.rules if rule.cleared_by == fact.mark)
            for fact in self.facts
            if fact.enough == 1
        }
        self.settled = self.facts.union(*self.clears.values())
        self._sated = frozenset(self.facts.union(rule for rule in catalogue.rules if rule.enough))
        self._searches: dict[frozenset[Rule], _Search] = {}

    def find(self, text: bytes, enough: Iterable[Rule] = (), begin: int = 0) -> list[Hit]:
        """The literals in `text`, in order, without those of rules of which there are enough matches.

        `begin`: the position of the text, where positions are not those in it.
        A healthy log has thousands in a megabyte that say it is of a TPU, a log of training one in each line.
        """
        found: list[Hit] = []
        self._lasting.add(text, begin, found)
        self._of_some(self._sated.intersection(enough)).add(text, begin, found)
        found.sort()
        return found

    @cached_property
    def _lasting(self) -> _Search:
        """The search for what is looked for in any case."""
        return self._search(number for number, some in enumerate(self.rules) if not self._sated.issuperset(some))

    def _of_some(self, enough: frozenset[Rule]) -> _Search:
        """The search for that of which some is enough, but for these."""
        search = self._searches.get(enough)
        if search is None:
            some = (number for number, rules in enumerate(self.rules) if self._sated.issuperset(rules))
            search = self._search(number for number in some if not enough.issuperset(self.rules[number]))
            self._searches[enough] = search
        return search

    def _search(self, numbers: Iterable[int]) -> _Search:
        return _Search({number: self._literals[number] for number in numbers}, self.lengths)


class _Search:
    """Literals that Hyperscan searches at once, each in any case or not, by their numbers."""

    def __init__(self, literals: dict[int, tuple[bytes, bool]], lengths: list[int]) -> None:
        self._lengths = lengths
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK) if literals else None
        if self._database is not None:
            self._database.compile(
                expressions=[literal for literal, _ in literals.values()],
                ids=list(literals),
                elements=len(literals),
                flags=[hyperscan.HS_FLAG_CASELESS if ignore_case else 0 for _, ignore_case in literals.values()],
                literal=True,
            )

    def add(self, text: bytes, begin: int, found: list[Hit]) -> None:
        """Add those in `text`, which begins at `begin`, to what was found."""
        append, lengths = found.append, self._lengths

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append((begin + end - lengths[number], number))

        if self._database is not None:
            self._database.scan(text, match_event_handler=on_match)
