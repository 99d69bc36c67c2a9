"""Derives the literal texts that anything matched by a pattern must contain.

A block of log is first searched for literals, thousands of megabytes a second; a rule's pattern runs only where one is
found. So each pattern needs a set of literals of which every match contains at least one. It is derived from the
pattern as parsed by Python's own parser, after Cox, "Regular Expression Matching with a Trigram Index"
(https://swtch.com/~rsc/regexp/regexp4.html).
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The parser is private since 3.11, where its old name warns. It has no types; its nodes are (code, argument) pairs.
_sre: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

MIN_BYTES = 4
_GOOD_BYTES = 6
# What healthy logs say: libtpu's while it starts and compiles, and training's. `tests/unit/logs/rules/test_budget.py`
# counts in real ones how often each literal stands there.
HEALTHY = Path(__file__).with_name("healthy.txt")
_KEPT_BYTES = 8  # of a literal that is cut; and at least half of it
_ENDING = 4  # bytes by which the scan knows a literal first
_MAX_LITERALS = 32  # of one pattern: more would cost the scan more than they save
_MAX_CLASS = 16  # a class of more characters than this ends a literal


# Results that are kept: more than the built-in patterns have, so that a catalogue that is loaded again costs a fifth.
_KEPT = 2048


@dataclass(frozen=True, slots=True)
class Anchor:
    """Literal text that a match must contain. With `ignore_case` it is lower case and ASCII letters match any case."""

    literal: bytes
    ignore_case: bool
    # What the pattern looks at beside the shape of a line: which digits it has, and other lines.
    digits: bool = False
    lines: bool = False


@lru_cache(_KEPT)
def anchors(pattern: str) -> tuple[Anchor, ...]:
    """The best set of literals of which each match of `pattern` contains at least one; empty if there is none.

    Raises re.error when Python cannot parse the pattern.
    """
    parsed = parse_pattern(pattern)
    ignore_case = ignores_case(parsed)
    literals = _Walk(ignore_case).sequence(parsed).best
    if not literals or min(len(literal.encode()) for literal in literals) < MIN_BYTES:
        return ()
    return tuple(Anchor(literal.encode(), ignore_case) for literal in sorted(literals))


@lru_cache(_KEPT)
def fewest(candidates: tuple[Anchor, ...]) -> tuple[Anchor, ...]:
    """The same without those that contain another one: where the longer occurs, the shorter does too."""
    kept: list[Anchor] = []
    for anchor in sorted(set(candidates), key=lambda a: (len(a.literal), not a.ignore_case, a.literal)):
        if not any(_covers(shorter, anchor) for shorter in kept):
            kept.append(anchor)
    return tuple(kept)


def weak(candidates: tuple[Anchor, ...]) -> list[str]:
    """Those that a healthy log has in many lines: short ones, and those of the sample."""
    texts = [anchor.literal.decode() for anchor in candidates]
    return [text for text in texts if len(text.encode()) < _GOOD_BYTES or _is_common(text)]


def cut(anchor: Anchor) -> Anchor:
    """The literal up to where it ends as healthy logs seldom have it: the scan takes half the time for such."""
    literal, healthy = anchor.literal, _healthy().encode()
    shortest = max(_KEPT_BYTES, len(literal) // 2)
    ends = range(shortest, len(literal) + 1)
    end = min(ends, key=lambda end: (healthy.count(literal[end - _ENDING : end].lower()), -end), default=len(literal))
    return Anchor(literal[:end], anchor.ignore_case)


def _is_common(text: str) -> bool:
    return text.lower() in _healthy()


@cache
def _healthy() -> str:
    return HEALTHY.read_text(encoding="utf-8").lower()


def _covers(shorter: Anchor, longer: Anchor) -> bool:
    if shorter.ignore_case:
        return shorter.literal in longer.literal.lower()
    return not longer.ignore_case and shorter.literal in longer.literal


def parse_pattern(pattern: str) -> Any:
    """The pattern as a tree of (code, argument) pairs. Raises re.error when Python cannot parse it."""
    return _sre.parse(pattern)


def ignores_case(parsed: Any) -> bool:
    """Whether the pattern, or a group of it, ignores case: `(?i)` or `(?i:…)`."""
    return bool(parsed.state.flags & re.IGNORECASE) or _has_caseless_group(parsed)


def _has_caseless_group(nodes: Any) -> bool:
    for code, argument in nodes:
        name = str(code)
        if name == "SUBPATTERN" and (argument[1] & re.IGNORECASE or _has_caseless_group(argument[3])):
            return True
        if name.endswith("_REPEAT") and _has_caseless_group(argument[2]):
            return True
        if name == "BRANCH" and any(_has_caseless_group(branch) for branch in argument[1]):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a piece: `exact`, all texts that it can match (None: too many), and `best`, its literals."""

    exact: frozenset[str] | None
    best: frozenset[str] | None


_NOTHING = frozenset({""})
_EMPTY = _Known(_NOTHING, None)
_UNKNOWN = _Known(None, None)


class _Walk:
    def __init__(self, ignore_case: bool) -> None:
        self.ignore_case = ignore_case

    def sequence(self, nodes: Any) -> _Known:
        """A sequence of pieces: exact neighbours are joined; the best set of any stretch is valid for all."""
        best: frozenset[str] | None = None
        stretch: list[frozenset[str]] = []  # the exact pieces up to here
        run = _NOTHING  # what they match together
        whole = True
        for piece in self.pieces(nodes):
            best = _better(best, piece.best)
            if piece.exact is None:
                best, stretch, run, whole = _better(best, run), [], _NOTHING, False
                continue
            if len(piece.exact) > 1:
                best = _better(best, run)  # longer texts in greater number may be worth less
            stretch.append(piece.exact)
            joined = _product(run, piece.exact)
            while joined is None:  # too many: drop the oldest
                whole = False
                joined, stretch = _joined(stretch[1:]), stretch[1:]
            run = joined
        return _Known(run if whole else None, _better(best, run))

    def pieces(self, nodes: Any) -> Iterator[_Known]:
        """What is known of each node; consecutive characters are one piece."""
        characters: list[str] = []
        for code, argument in nodes:
            if code is _sre.LITERAL and (text := self.character(argument)) is not None:
                characters.append(text)
                continue
            if characters:
                yield _Known(frozenset({"".join(characters)}), None)
                characters = []
            yield self.node(str(code), argument)
        if characters:
            yield _Known(frozenset({"".join(characters)}), None)

    def character(self, point: int) -> str | None:
        """The text of a literal; None for a letter whose case the scan cannot fold (it folds ASCII only)."""
        text = chr(point)
        if not self.ignore_case:
            return text
        return text.lower() if text.isascii() or text.lower() == text.upper() else None

    def node(self, code: str, argument: Any) -> _Known:
        if code == "IN":
            return self.members(argument)
        if code == "AT":
            return _EMPTY
        if code == "SUBPATTERN":
            return self.sequence(argument[3])
        if code == "ATOMIC_GROUP":
            return self.sequence(argument)
        if code == "BRANCH":
            return self.branch(argument[1])
        if code.endswith("_REPEAT"):
            return self.repeat(*argument)
        return _UNKNOWN

    def members(self, items: Any) -> _Known:
        texts = {self.character(value) if code is _sre.LITERAL else None for code, value in items[: _MAX_CLASS + 1]}
        if len(items) > _MAX_CLASS or None in texts:
            return _UNKNOWN
        return _Known(frozenset(text for text in texts if text is not None), None)

    def branch(self, branches: Any) -> _Known:
        known = [self.sequence(branch) for branch in branches]
        return _Known(_union(piece.exact for piece in known), _union(piece.best for piece in known))

    def repeat(self, minimum: int, maximum: Any, nodes: Any) -> _Known:
        piece = self.sequence(nodes)
        if minimum == 0:
            optional = maximum == 1 and piece.exact is not None
            return _Known(piece.exact | {""}, None) if optional and piece.exact is not None else _UNKNOWN
        return piece if maximum == 1 else _Known(None, piece.best)


def _product(left: frozenset[str], right: frozenset[str]) -> frozenset[str] | None:
    if len(left) * len(right) > _MAX_LITERALS:
        return None
    return frozenset(a + b for a in left for b in right)


def _joined(pieces: list[frozenset[str]]) -> frozenset[str] | None:
    run: frozenset[str] | None = _NOTHING
    for piece in pieces:
        run = None if run is None else _product(run, piece)
    return run


def _union(sets: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """All texts of the sets, or None if one is unknown or they are too many."""
    texts: frozenset[str] = frozenset()
    for some in sets:
        if some is None:
            return None
        texts |= some
    return texts if len(texts) <= _MAX_LITERALS else None


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The set with the longer shortest literal, weighed against the number of literals."""
    if one is None or other is None:
        return one if other is None else other
    return max(one, other, key=_worth)


def _worth(texts: frozenset[str]) -> tuple[bool, bool, bool, float]:
    """Long literals are rare in a log, many slow the scan, short ones occur everywhere."""
    shortest = min(map(len, texts))
    rare = not any(map(_is_common, texts))
    return shortest >= MIN_BYTES, rare and shortest >= _GOOD_BYTES, rare, shortest - math.log2(len(texts))
