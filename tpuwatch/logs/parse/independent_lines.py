"""Which shapes of lines may stand beside each other in any order, and what comes of each stays the same.

A line that begins no record is read together with lines around it: a sentence may go on, or another line may say that
it was no failure. In a storm of such lines the same few shapes come in any order. So they are tried in many orders: if
what comes of each is what comes of it alone, none of them matters for another.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.match import matched_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tpuwatch.logs.parse.known_lines import KnownLine
    from tpuwatch.logs.parse.match import Match
    from tpuwatch.logs.parse.records import RecordBuffer
    from tpuwatch.logs.rules.catalogue import Rule

_MAX_SHAPES: Final = 24  # each is tried with each other one
_MAX_REFUSED: Final = 24


class IndependentLines:
    """Shapes of lines of one stream that are independent of each other. None has a header."""

    def __init__(
        self,
        buffer: RecordBuffer,
        matches_in: Callable[[bytes], list[Match]],
        told_apart: Callable[[Collection[int], bytes], Iterable[tuple[int, int]]],
    ) -> None:
        """`matches_in`: in a text by itself.

        `told_apart`: where in a clean text, with these literals, other digits may change what comes of it.
        """
        self._buffer = buffer
        self._matches_in = matches_in
        self._told_apart = told_apart
        self._shapes: list[KnownLine] = []
        self._refused: set[KnownLine] = set()

    def include(self, known: KnownLine) -> bool:
        """Whether lines of this shape are independent of those of all shapes for which that was found before."""
        if known in self._shapes:
            return True
        if known in self._refused or len(self._shapes) == _MAX_SHAPES or len(self._refused) == _MAX_REFUSED:
            return False
        if self._is_independent(known):
            self._shapes.append(known)
            return True
        self._refused.add(known)
        return False

    def clear(self) -> None:
        """Forget all shapes."""
        self._shapes.clear()
        self._refused.clear()

    def _is_independent(self, known: KnownLine) -> bool:
        lines = [known, known]
        for other in self._shapes:
            lines += [other, known]
        lines += self._shapes
        texts = [self._buffer.text_of(one.line) for one in lines]
        return self._are_digits_exact(lines, texts) and self._come_alone(lines, texts)

    def _are_digits_exact(self, lines: list[KnownLine], texts: list[bytes]) -> bool:
        """Whether digits that may matter are those of one line, and the same in all lines of its shape."""
        starts = list(accumulate(map(len, texts), initial=0))
        for begin, end in self._told_apart({number for one in lines for number in one.literals}, b"".join(texts)):
            at = bisect_right(starts, begin) - 1
            exact = lines[at].exact
            if exact is None or begin < starts[at] + exact or end > starts[at + 1]:
                return False
        return True

    def _come_alone(self, lines: list[KnownLine], texts: list[bytes]) -> bool:
        """Whether of each of these lines the same comes as of it alone."""
        expected: dict[tuple[int, Rule], tuple[str, dict[str, Any]]] = {}
        offset = 0
        for one, text in zip(lines, texts, strict=True):
            for rule, places in one.found:
                expected[offset, rule] = (matched_lines(text, 0, len(text)), rule.details_at(text, places))
            offset += len(one.line) + 1
        for match in self._matches_in(b"".join(one.line + b"\n" for one in lines)):
            if expected.pop((match.offset, match.rule), None) != (match.text, match.details):
                return False
        return all(rule.cause is None and rule.enough for _, rule in expected)
