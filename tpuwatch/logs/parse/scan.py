"""The fast passes: find the places in a block of bytes where rules may match. The parser decides.

The first pass finds the literals of all rules at once, at gigabytes a second in a log where they are rare. In a log
that has them in each line (`loss`, `barrier`), framing a record around each would cost a hundred times more, and to
learn of each still costs more than the pass. There the rules' whole patterns are searched instead, and literals only
where one matches. Both are by Hyperscan.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import hyperscan

from tpuwatch.logs.parse import exception_chains
from tpuwatch.logs.parse.frame import without_colours
from tpuwatch.logs.parse.kept_patterns import KeptPatterns
from tpuwatch.logs.parse.records import MAX_RECORD
from tpuwatch.logs.rules.digits import alike
from tpuwatch.logs.rules.raw_pattern import raw_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tpuwatch.logs.rules.catalogue import Catalogue, Rule

    Literals = list[tuple[int, int]]  # their positions and numbers, in order

_FEW = 32  # literals in a block that cost less than a search for the patterns
_SPARSE_BYTES = 4096  # the mean distance of literals that do
_MANY = 200  # records without a match, after which the patterns are loaded, or compiled, which takes a second
_ALIKE = 16  # blocks that are taken to be as the one before: in which of the two is searched first
_BANNER = "banner"  # the mark of what a process says of itself, and a file of libtpu is of one process
_DIGIT = re.compile(rb"[0-9]")
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

    When literals have often led to nothing, the patterns are loaded, or compiled in a thread and used when ready.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        background: Callable[[Callable[[], None]], None] = _in_thread,
        kept: Path | None = None,
    ) -> None:
        """`background` runs the compilation of the patterns beside the caller.

        `kept`: a directory to keep what was compiled in, literals and patterns.
        """
        self.catalogue = catalogue
        self.order = {rule: place for place, rule in enumerate(catalogue.rules)}
        called: dict[tuple[bytes, bool], list[Rule]] = {}
        for rule in catalogue.rules:
            for anchor in rule.anchors:
                called.setdefault((anchor.literal, anchor.ignore_case), []).append(rule)
        self.literals = _LiteralSearch(list(called), [tuple(rules) for rules in called.values()], range(len(called)))
        self.chain_marks = frozenset(rule for rule in catalogue.rules if rule.mark in exception_chains.MARKS)
        self.of_process = frozenset(rule for rule in catalogue.rules if rule.mark == _BANNER)
        # Of the whole stream: where one is known, or cannot be, its literals are not searched.
        self.facts = self.chain_marks | self.of_process | {rule for rule in catalogue.rules if rule.enough == 1}
        # What a fact clears need not be looked at once that is known.
        self.clears = {
            fact: frozenset(rule for rule in catalogue.rules if rule.cleared_by == fact.mark)
            for fact in self.facts
            if fact.enough == 1
        }
        self.settled = self.facts.union(*self.clears.values())
        facts = [number for number, some in enumerate(self.literals.rules) if self.facts.issuperset(some)]
        self._lasting = self.literals.only(sorted({*self.literals.ids}.difference(facts)), kept)
        self._unknown: dict[frozenset[Rule], _LiteralSearch] = {frozenset(): self.literals.only(facts, kept)}
        self.patterns: _PatternSearch | None = None
        self._background = background
        self._kept = kept
        self._fruitless = 0  # records

    @cached_property
    def numbered_literals(self) -> list[bytes]:
        """Those with digits, all digits alike and in lower case: another line of the same shape may not have them."""
        literals = {anchor.literal for rule in self.catalogue.rules for anchor in rule.anchors}
        return [alike(literal).lower() for literal in literals if _DIGIT.search(literal) is not None]

    def find(self, text: bytes, known: Iterable[Rule] = ()) -> Literals:
        """The literals in `text`, without those of known facts: a healthy log has thousands of them in a megabyte."""
        facts = self.facts.intersection(known)
        unknown = self._unknown.get(facts)
        if unknown is None:
            every, rules = self._unknown[frozenset()], self.literals.rules
            unknown = every.only([number for number in every.ids if not facts.issuperset(rules[number])])
            self._unknown[facts] = unknown
        found = unknown.find(text)
        return sorted(found + self._lasting.find(text)) if found else self._lasting.find(text)

    def note_fruitless(self) -> None:
        """Note a record in which a literal was found and no rule matched."""
        self._fruitless += 1
        if self._fruitless == _MANY and not self._load_patterns():
            self._background(self.compile_patterns)

    def compile_patterns(self) -> None:
        """Make the search for patterns ready."""
        self.patterns = _PatternSearch(self.catalogue.rules, self.literals)
        if self._kept is not None:
            self.patterns.save(self._kept)

    def _load_patterns(self) -> bool:
        """Make the search for patterns ready if they were kept."""
        rules = self.catalogue.rules
        if self._kept is None or (steady := _PatternDatabase.load(_steady(rules), self._kept)) is None:
            return False
        repeated = _PatternDatabase.load(_repeated(rules), self._kept)
        self.patterns = _PatternSearch(rules, self.literals, steady, repeated)
        if repeated is None:
            self.patterns.save(self._kept)
        return True


class StreamScan:
    """Scans the blocks of one stream, which are much alike."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._patterns_first = 0  # for so many blocks: literals are many, and few of them part of a match
        self._literals_only = 0  # for so many blocks: most are part of a match

    def scan(self, block: bytes, start: int, end: int, ignored: frozenset[Rule] = frozenset()) -> list[Hit]:
        """The literals from `start` up to `end` where a rule may match, in order; those of `ignored` may lack."""
        text, place = without_colours(block)
        literals, patterns = self._scanner.literals, self._scanner.patterns
        if patterns is not None and self._patterns_first:
            self._patterns_first -= 1
            return _within(literals, patterns.hits(text, ignored), start, end, place)
        found = self._scanner.find(text, ignored)
        many = len(found) > _FEW + len(block) // _SPARSE_BYTES
        if patterns is None or not many or self._literals_only:
            self._literals_only = max(0, self._literals_only - 1)
            hits = [Hit(position, literal, literals.rules[literal]) for position, literal in found]
        else:
            hits = patterns.confirmed(found, text, ignored)
            if sum(map(patterns.is_wanted, hits)) > len(found) // 2:
                self._literals_only = _ALIKE
            else:
                self._patterns_first = _ALIKE
        return _within(literals, hits, start, end, place)


def _within(
    literals: _LiteralSearch, hits: list[Hit], start: int, end: int, place: Callable[[int], int] | None
) -> list[Hit]:
    """The hits of a text that are from `start` up to `end` of the block, at their positions there."""
    if place is not None:
        hits = [hit._replace(position=place(hit.position + 1) - 1) for hit in hits]
    first = bisect_left(hits, (start,))
    while hits and hits[-1].position + literals.lengths[hits[-1].literal] > end:
        hits.pop()
    return hits[first:]


class _LiteralSearch:
    """Some of the literals of rules, compiled when they are first searched."""

    def __init__(
        self,
        literals: list[tuple[bytes, bool]],
        rules: list[tuple[Rule, ...]],
        ids: Sequence[int],
        kept: Path | None = None,
    ) -> None:
        """`literals`: each in any case or not. `rules`: of each. `ids`: the numbers of those that are searched.

        `kept`: a directory to keep them in, compiled.
        """
        self._literals, self._kept = literals, kept
        self.rules, self.ids = rules, ids
        self.lengths = [len(literal) for literal, _ in literals]

    def only(self, ids: Sequence[int], kept: Path | None = None) -> _LiteralSearch:
        """The search for these literals, with the same numbers."""
        return _LiteralSearch(self._literals, self.rules, ids, kept)

    def find(self, text: bytes, offset: int = 0) -> Literals:
        """The literals in `text`, at their positions from `offset` on."""
        lengths = self.lengths
        return sorted((offset + end - lengths[literal], literal) for end, literal in self._search.ends(text))

    @cached_property
    def _search(self) -> _Search:
        return _kept_literals([self._literals[number] for number in self.ids], list(self.ids), self._kept)


class _PatternSearch:
    """The rules' whole patterns, and which literals are part of a match of one."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        literals: _LiteralSearch,
        steady: _PatternDatabase | None = None,
        repeated: _PatternDatabase | None = None,
    ) -> None:
        """`steady`, `repeated`: the databases of these rules, if they are there already."""
        self._literals = literals
        self._database = _searchable(_steady(rules)) if steady is None else steady
        self._steady = frozenset(self._database.rules)
        every = _searchable(_repeated(rules)) if repeated is None else repeated
        self._repeated = every.rules
        self._repeated_databases: dict[frozenset[Rule], _PatternDatabase] = {frozenset(): every}  # by what is left out
        searched = {*self._steady, *self._repeated}
        self._unsearched = [tuple(rule for rule in some if rule not in searched) for some in literals.rules]
        self._rest = literals.only([literal for literal, some in enumerate(self._unsearched) if some])

    def save(self, directory: Path) -> None:
        """Keep the databases, which take long to compile."""
        self._database.save(directory)
        self._repeated_databases[frozenset()].save(directory)

    def hits(self, text: bytes, ignored: frozenset[Rule]) -> list[Hit]:
        """The literals in `text` that are part of a match, and those of rules whose patterns are not searched."""
        found = self._find(text, ignored)
        literals = set(self._rest.find(text))
        for first, stop in _joined((match.first, match.stop) for match in found):
            literals.update(self._literals.find(text[first:stop], first))
        return self._part_of(found, sorted(literals))

    def confirmed(self, literals: Literals, text: bytes, ignored: frozenset[Rule]) -> list[Hit]:
        """Of all literals in `text`, the same."""
        return self._part_of(self._find(text, ignored), literals)

    def is_wanted(self, hit: Hit) -> bool:
        """Whether a hit is part of a match that is wanted however often it is found."""
        return any(rule in self._steady for rule in hit.rules)

    def _find(self, text: bytes, ignored: frozenset[Rule]) -> list[_PatternMatch]:
        """The matches of all patterns but those of the rules that are ignored, by their ends."""
        ignored = ignored.intersection(self._repeated)
        repeated = self._repeated_databases.get(ignored)
        if repeated is None:
            repeated = _PatternDatabase.compile([rule for rule in self._repeated if rule not in ignored])
            self._repeated_databases[ignored] = repeated
        return sorted([*self._database.find(text), *repeated.find(text)], key=lambda match: match.stop)

    def _part_of(self, matches: list[_PatternMatch], literals: Literals) -> list[Hit]:
        called, unsearched = self._literals.rules, self._unsearched
        confirmed: dict[int, tuple[Rule, ...]] = {}  # by index of the literal
        upto: dict[Rule, int] = {}
        for rule, first, stop in matches:
            begin = bisect_left(literals, (max(first, upto.get(rule, 0)), 0))
            upto[rule] = stop
            for at in range(begin, bisect_left(literals, (stop, 0))):
                if rule in called[literals[at][1]]:
                    confirmed[at] = (*confirmed.get(at, ()), rule)
        return [
            Hit(position, literal, (*unsearched[literal], *confirmed.get(at, ())))
            for at, (position, literal) in enumerate(literals)
            if at in confirmed or unsearched[literal]
        ]


class _PatternMatch(NamedTuple):
    """A match of one of a rule's patterns ends at `stop`, and begins at `first` or after it."""

    rule: Rule
    first: int
    stop: int


class _PatternDatabase:
    """The patterns of rules."""

    def __init__(self, rules: list[Rule], reach: list[int], search: _Search) -> None:
        """`reach`: for each pattern, how many bytes a match takes at most; 0: a part of one line."""
        self.rules = rules
        self._rule_of = [rule for rule in rules for _ in rule.match]
        self._reach = reach
        self._search = search

    @classmethod
    def compile(cls, rules: list[Rule]) -> _PatternDatabase:
        """Raises hyperscan.error or ValueError if there is a pattern that cannot be compiled."""
        patterns = [raw_pattern(pattern) for rule in rules for pattern in rule.match]
        reach = [MAX_RECORD if raw.multiline else _WRAPPED if raw.wraps else 0 for raw in patterns]
        search = _Search.compile([(raw.expression, raw.ignore_case) for raw in patterns], range(len(patterns)))
        return cls(rules, reach, search)

    @classmethod
    def load(cls, rules: list[Rule], directory: Path) -> _PatternDatabase | None:
        """What `save` has kept of these rules; None if there is nothing."""
        kept = KeptPatterns(directory, _patterns(rules)).load()
        return None if kept is None else cls(rules, kept[0], _Search(kept[1]))

    def save(self, directory: Path) -> None:
        """Keep it in the directory, if that is possible."""
        if self._search.database is not None:
            KeptPatterns(directory, _patterns(self.rules)).save(self._reach, self._search.database)

    def find(self, text: bytes) -> list[_PatternMatch]:
        """The matches in `text`."""
        ends = self._search.ends(text)
        return [_PatternMatch(self._rule_of[pattern], self._first(text, pattern, end), end) for end, pattern in ends]

    def _first(self, text: bytes, pattern: int, end: int) -> int:
        reach = self._reach[pattern]
        return max(0, end - reach) if reach else text.rfind(b"\n", 0, end - 1) + 1


class _Search:
    """Expressions that Hyperscan searches at once."""

    def __init__(self, database: hyperscan.Database | None) -> None:
        """`database`: None if there are no expressions."""
        self.database = database

    @classmethod
    def compile(cls, expressions: list[tuple[bytes, bool]], ids: Iterable[int], *, literal: bool = False) -> _Search:
        """The search for expressions, each in any case or not. Raises hyperscan.error for a bad one.

        `ids`: a number for each. `literal`: they are fixed texts.
        """
        if not expressions:
            return cls(None)
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        database.compile(
            expressions=[expression for expression, _ in expressions],
            ids=list(ids),
            elements=len(expressions),
            flags=[hyperscan.HS_FLAG_CASELESS if ignore_case else 0 for _, ignore_case in expressions],
            literal=literal,
        )
        return cls(database)

    def ends(self, text: bytes) -> list[tuple[int, int]]:
        """Where matches end in `text`, and the number of the expression, in Hyperscan's order."""
        found: list[tuple[int, int]] = []
        append = found.append

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append((end, number))

        if self.database is not None:
            self.database.scan(text, match_event_handler=on_match)
        return found


def _kept_literals(literals: list[tuple[bytes, bool]], ids: list[int], directory: Path | None) -> _Search:
    """The search for literals, kept in the directory if there is one: to compile them takes 50 ms."""
    if directory is None:
        return _Search.compile(literals, ids, literal=True)
    kept = KeptPatterns(directory, ["literals", *map(repr, zip(ids, literals, strict=True))])
    known = kept.load()
    if known is not None:
        return _Search(known[1])
    search = _Search.compile(literals, ids, literal=True)
    if search.database is not None:
        kept.save([], search.database)
    return search


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined


def _steady(rules: Iterable[Rule]) -> list[Rule]:
    """The rules whose patterns are searched, whatever was found before.

    Where the literal of a report is repeated another report begins, whether it matches or not.
    """
    return [rule for rule in rules if not (rule.enough or rule.report)]


def _repeated(rules: Iterable[Rule]) -> list[Rule]:
    """The rules whose patterns are searched until there were enough matches."""
    return [rule for rule in rules if rule.enough and not rule.report]


def _patterns(rules: Iterable[Rule]) -> list[str]:
    return [pattern for rule in rules for pattern in rule.match]


def _searchable(rules: list[Rule]) -> _PatternDatabase:
    """The database of those whose patterns can be compiled. A user's rule may have others."""
    try:
        return _PatternDatabase.compile(rules)
    except (hyperscan.error, ValueError):
        return _PatternDatabase.compile([rule for rule in rules if _compiles(rule)])


def _compiles(rule: Rule) -> bool:
    try:
        _PatternDatabase.compile([rule])
    except (hyperscan.error, ValueError):
        return False
    return True
