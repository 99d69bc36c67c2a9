"""The fast passes: find the places in a block of bytes where rules may match. The parser decides.

The first pass finds the literals of all rules at once, at gigabytes a second in a log where they are rare. In a log
that has them in each line (`loss`, `barrier`), framing a record around each would cost a hundred times more. There a
second pass, for the rules' whole patterns, leaves the few literals that are part of a match. Both are by Hyperscan.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import hyperscan

from tpuwatch.logs.parse.frame import without_colours
from tpuwatch.logs.parse.records import MAX_RECORD
from tpuwatch.logs.rules.raw_pattern import RawPattern, raw_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.logs.rules.catalogue import Catalogue, Rule

    Place = Callable[[int], int]

_FEW = 32  # literals in a block that cost less than a second pass
_SPARSE_BYTES = 4096  # the mean distance of literals that do
_MANY = 1000  # records without a match, after which the patterns are compiled, which takes a second
_SKIPPED = 16  # dense blocks that are not passed again after one in which most literals were part of a match
_WRAPPED = 2048  # bytes that a sentence with line breaks takes at most


class Hit(NamedTuple):
    """A place where rules may match."""

    position: int  # of the literal's first byte
    literal: int  # its number
    rules: tuple[Rule, ...]


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="patterns", daemon=True).start()


class Scanner:
    """The compiled literals of a catalogue, for all parsers of one thread: they share Hyperscan's scratch space.

    The patterns are compiled in a thread of their own when literals have often led to nothing, and used when ready.
    """

    def __init__(self, catalogue: Catalogue, background: Callable[[Callable[[], None]], None] = _in_thread) -> None:
        """`background` runs the compilation of the patterns beside the caller."""
        self.catalogue = catalogue
        self.order = {rule: place for place, rule in enumerate(catalogue.rules)}
        rules: dict[tuple[bytes, bool], list[Rule]] = {}
        for rule in catalogue.rules:
            for anchor in rule.anchors:
                rules.setdefault((anchor.literal, anchor.ignore_case), []).append(rule)
        self.rules: list[tuple[Rule, ...]] = [tuple(found) for found in rules.values()]
        self.lengths: list[int] = [len(literal) for literal, _ in rules]
        self._literals = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK) if rules else None
        if self._literals is not None:
            self._literals.compile(
                expressions=[literal for literal, _ in rules],
                ids=list(range(len(rules))),
                elements=len(rules),
                flags=[hyperscan.HS_FLAG_CASELESS if ignore_case else 0 for _, ignore_case in rules],
                literal=True,
            )
        self._patterns: _Patterns | None = None
        self._background = background
        self._fruitless = 0  # records
        self._skip = 0  # dense blocks

    def scan(self, block: bytes, start: int, end: int) -> list[Hit]:
        """The literals from `start` up to `end` where a rule may match, in order."""
        text, place = without_colours(block)
        found = self._find_literals(text, place, start, end)
        if self._patterns is not None and len(found) > _FEW + (end - start) // _SPARSE_BYTES:
            if not self._skip:
                hits, confirmed = self._patterns.confirm(found, block, text, place)
                self._skip = _SKIPPED if confirmed > len(found) // 2 else 0
                return hits
            self._skip -= 1
        rules = self.rules
        return [Hit(position, literal, rules[literal]) for position, literal in found]

    def note_fruitless(self) -> None:
        """Note a record in which a literal was found and no rule matched."""
        self._fruitless += 1
        if self._fruitless == _MANY:
            self._background(self.compile_patterns)

    def compile_patterns(self) -> None:
        """Make the second pass ready."""
        self._patterns = _Patterns(self.catalogue.rules, self.rules)

    def _find_literals(self, text: bytes, place: Place | None, start: int, end: int) -> list[tuple[int, int]]:
        """The literals in `text`, as (position, number), in order."""
        if self._literals is None:
            return []
        ends: list[tuple[int, int]] = []
        append, lengths = ends.append, self.lengths

        def found(literal: int, _start: int, stop: int, _flags: int, _context: object) -> None:
            append((stop, literal))

        self._literals.scan(text, match_event_handler=found)
        if place is None:
            hits = [(stop - lengths[literal], literal) for stop, literal in ends if stop <= end]
        else:
            hits = [(place(stop - lengths[literal] + 1) - 1, literal) for stop, literal in ends if place(stop) <= end]
        hits.sort()
        return hits[bisect_left(hits, (start, 0)) :]


class _Patterns:
    """The second pass: which literals of a block are part of a match of a whole pattern."""

    def __init__(self, rules: tuple[Rule, ...], called: list[tuple[Rule, ...]]) -> None:
        """`called`: the rules of each literal."""
        self._called = called
        # Where the literal of a report is repeated another report begins, whether it matches or not. And a rule that
        # matches each line of a healthy log would only slow the pass; of those few matches are wanted.
        passed = [rule for rule in rules if not (rule.report or rule.enough)]
        try:
            self._compile(passed)
        except (hyperscan.error, ValueError):  # of a user's rule
            self._compile([rule for rule in passed if _compiles(rule)])

    def _compile(self, passed: list[Rule]) -> None:
        """Compile the patterns of these rules; the literals of the others stay unconfirmed."""
        self._unconfirmed = [tuple(rule for rule in some if rule not in passed) for some in self._called]
        self._rules = [rule for rule in passed for _ in rule.match]
        raw = [raw_pattern(pattern) for rule in passed for pattern in rule.match]
        self._reach = [MAX_RECORD if one.multiline else _WRAPPED if one.wraps else 0 for one in raw]
        self._database = _compiled(raw)

    def confirm(
        self, literals: list[tuple[int, int]], block: bytes, text: bytes, place: Place | None
    ) -> tuple[list[Hit], int]:
        """Those literals that may be part of a match, and how many are. `text`: the block without colours."""
        ends: list[tuple[int, int]] = []

        def found(pattern: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append((end, pattern))

        self._database.scan(text, match_event_handler=found)
        confirmed: dict[int, tuple[Rule, ...]] = {}  # by index of the literal
        upto: dict[Rule, int] = {}
        for end, pattern in ends:
            rule, reach, stop = self._rules[pattern], self._reach[pattern], place(end) if place else end
            first = stop - reach if reach else block.rfind(b"\n", 0, stop - 1) + 1
            first = bisect_left(literals, (max(first, upto.get(rule, 0)), 0))
            upto[rule] = stop
            for at in range(first, bisect_left(literals, (stop, 0))):
                if rule in self._called[literals[at][1]]:
                    confirmed[at] = (*confirmed.get(at, ()), rule)
        unconfirmed = self._unconfirmed
        hits = [
            Hit(position, literal, (*unconfirmed[literal], *confirmed.get(at, ())))
            for at, (position, literal) in enumerate(literals)
            if at in confirmed or unconfirmed[literal]
        ]
        return hits, len(confirmed)


def _compiled(patterns: list[RawPattern]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[one.expression for one in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[hyperscan.HS_FLAG_CASELESS if one.ignore_case else 0 for one in patterns],
    )
    return database


def _compiles(rule: Rule) -> bool:
    try:
        _compiled([raw_pattern(pattern) for pattern in rule.match])
    except (hyperscan.error, ValueError):
        return False
    return True
