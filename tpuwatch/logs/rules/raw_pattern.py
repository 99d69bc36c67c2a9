"""Derives from a rule's pattern one that can be searched in raw bytes.

A rule's pattern is for clean text: a record without headers, launchers' prefixes and colours. The pattern made here
matches wherever the clean one can, and seldom elsewhere: boundaries and anchors are dropped, and where the clean
pattern can match a newline, whatever precedes the text of the next line may follow it. Only a sentence that is wrapped,
and has a launcher's prefix before each of its lines, is missed: patterns for that take too long to compile.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuwatch.logs.rules.literals import ignores_case, parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

_WRAP = "\ue000"  # stands for a space that may be a line break
_WRAPPED = r"[\s>|#*]{1,}"
_NEXT_LINE = r"\n[^\n]*"  # a newline, and any prefix of the line that it begins
_ASCII = 127
_DIGIT = "[0-9]"
# A plain space between words; a quantifier or class may not follow, nor an escape or class come before.
BETWEEN_WORDS = re.compile(r"(?<=[a-z,])(?<!\\[a-z]) (?=[a-zA-Z]|\\[(\[])")
_CLASSES = frozenset({"ANY", "IN", "NOT_LITERAL"})
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


class RawPattern(NamedTuple):
    """A pattern for raw bytes, in the syntax of Hyperscan."""

    expression: bytes
    ignore_case: bool  # of all letters
    multiline: bool  # a match may be on several lines
    wraps: bool  # a match may have line breaks between words


def raw_pattern(pattern: str, *, any_digits: Callable[[list[Any]], list[Any]] | None = None) -> RawPattern:
    """The pattern for raw bytes.

    `any_digits`: where it matches a digit it matches all others too, and of its nodes those are taken that this gives.
    A match of it holds all digits that a match of the pattern holds there.

    Raises re.error when Python cannot parse the pattern, ValueError for what Hyperscan does not know.
    """
    wrapping = BETWEEN_WORDS.sub(_WRAP, pattern)
    parsed = parse_pattern(wrapping)
    writer = _Writer(any_newline=bool(parsed.state.flags & re.DOTALL), any_digits=any_digits is not None)
    nodes = _trimmed(list(parsed)) if any_digits is None else any_digits(list(parsed))
    expression = writer.sequence(nodes)
    return RawPattern(expression.encode(), ignores_case(parsed), writer.multiline, _WRAP in wrapping)


def _trimmed(nodes: list[Any]) -> list[Any]:
    """Without what may be absent at both ends, and without repetition at the end: each end of a match is one hit."""
    while nodes and _is_optional(nodes[0]):
        del nodes[0]
    while nodes and _is_optional(nodes[-1]):
        del nodes[-1]
    if nodes and str(nodes[-1][0]).endswith("_REPEAT"):
        code, (minimum, _, repeated) = nodes[-1]
        nodes[-1] = (code, (minimum, minimum, repeated))
    return nodes


def _is_optional(node: Any) -> bool:
    code, argument = node
    return str(code) == "AT" or (str(code).endswith("_REPEAT") and argument[0] == 0)


class _Writer:
    """Writes a parsed pattern as one for raw bytes."""

    def __init__(self, *, any_newline: bool, any_digits: bool) -> None:
        """`any_newline`: the dot matches a newline too."""
        self.multiline = False  # whether what was written can match a newline
        self._any_newline = any_newline
        self._any_digits = any_digits

    def sequence(self, nodes: Any) -> str:
        return "".join(self._node(str(code), argument) for code, argument in nodes)

    def _node(self, code: str, argument: Any) -> str:
        if code == "LITERAL" and argument == ord(_WRAP):
            return _WRAPPED
        if code == "LITERAL":
            return self._next_line() if argument == ord("\n") else self._character(argument)
        if code in _CLASSES:
            members, wide = self._members(code, argument)
            return members + "{1,4}" if wide else members
        if code == "AT":
            return ""
        if code == "SUBPATTERN":
            return self._group(*argument)
        if code == "BRANCH":
            return f"(?:{'|'.join(self.sequence(branch) for branch in argument[1])})"
        if code.endswith("_REPEAT"):
            return self._repeat(*argument)
        raise ValueError(f"{code} is not supported")

    def _group(self, _number: int | None, added: int, removed: int, nodes: Any) -> str:
        outside = self._any_newline
        self._any_newline = bool((outside or added & re.DOTALL) and not removed & re.DOTALL)
        inside = self.sequence(nodes)
        self._any_newline = outside
        return f"(?:{inside})"

    def _repeat(self, minimum: int, maximum: Any, nodes: Any) -> str:
        """A repetition; of characters that may be several bytes each, the number has no upper bound."""
        [(code, argument), *more] = nodes
        if str(code) in _CLASSES and not more:
            repeated, wide = self._members(str(code), argument)
        else:
            repeated, wide = f"(?:{self.sequence(nodes)})", False
        unbounded = wide or str(maximum) == "MAXREPEAT"
        return f"{repeated}{{{minimum},{'' if unbounded else maximum}}}"

    def _members(self, code: str, argument: Any) -> tuple[str, bool]:
        """A class of bytes that holds those of each character of the class, and whether one may be several bytes."""
        if code == "ANY":
            self.multiline |= self._any_newline
            return (r"[\x00-\xff]" if self._any_newline else r"[^\n]"), True
        members, wide = _bytes_of([("NEGATE", None), ("LITERAL", argument)] if code == "NOT_LITERAL" else argument)
        if self._any_digits and any(re.match(members, digit) for digit in string.digits):  # some or all
            members = f"(?:{members}|{_DIGIT})"
        return (f"(?:{members}|{self._next_line()})" if re.match(members, "\n") else members), wide

    def _character(self, point: int) -> str:
        if self._any_digits and chr(point) in string.digits:
            return _DIGIT
        return "".join(f"\\x{byte:02x}" for byte in chr(point).encode())

    def _next_line(self) -> str:
        self.multiline = True
        return _NEXT_LINE


def _bytes_of(items: Any) -> tuple[str, bool]:
    negated, wide, parts = False, False, []
    for name, value in ((str(code), value) for code, value in items):
        if name == "NEGATE":
            negated = True
        elif name == "CATEGORY":
            parts.append(_CATEGORIES[str(value)])
            wide = wide or "NOT" in str(value)
        else:
            first, last = (value, value) if name == "LITERAL" else value
            wide = wide or last > _ASCII
            if first <= _ASCII:
                parts.append(f"\\x{first:02x}-\\x{min(last, _ASCII):02x}")
    if wide and not negated:
        parts.append(r"\x80-\xff")
    return f"[{'^' if negated else ''}{''.join(parts)}]", wide or negated
