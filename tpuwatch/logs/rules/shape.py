"""The shape of a line, and which patterns find the same in all lines of a shape.

Lines of one shape differ in their digits alone. A pattern that tells no digits apart, and does not span lines, matches
all of them or none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.rules.literals import parse_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
_ALL: Final = frozenset("0123456789")
_WITH_DIGITS: Final = frozenset({"CATEGORY_DIGIT", "CATEGORY_WORD", "CATEGORY_NOT_SPACE"})
_WITH_NEWLINE: Final = frozenset({"CATEGORY_SPACE", "CATEGORY_NOT_DIGIT", "CATEGORY_NOT_WORD"})
_MARK: Final = b"\x01"  # stands for the zero of 0x, which patterns tell from other digits


def shape(line: bytes) -> bytes:
    """The line with all digits alike, but for the zero of 0x; empty for a line that must not be compared so.

    Where it is other than `line.translate(ALIKE)`, no line has that as its shape.
    """
    form = line.translate(ALIKE)
    if b"0x" not in form and b"0X" not in form:
        return form
    if _MARK in line:
        return b""
    return _MARK + line.replace(b"0x", _MARK + b"x").replace(b"0X", _MARK + b"X").translate(ALIKE)


def tells_digits_apart(pattern: str) -> bool:
    """Whether it may match a line and not another one of the same shape. Raises re.error."""
    return any(_any_node(parse_pattern(pattern), _is_digit_told))


def spans_lines(pattern: str) -> bool:
    """Whether what it matches may go on in the next line, but for a line break between two words. Raises re.error."""
    parsed = parse_pattern(pattern)
    return _goes_on(parsed, any_newline=bool(parsed.state.flags & re.DOTALL) or "(?s" in pattern)


def _goes_on(nodes: Any, *, any_newline: bool, at_end: bool = True) -> bool:
    """`at_end`: nothing of the pattern comes after these nodes: a line's own newline may be their last character."""
    listed = list(nodes)
    for place, (code, argument) in enumerate(listed, 1):
        name, is_last = str(code), at_end and place == len(listed)
        if not (is_last and name in ("LITERAL", "IN")) and _has_newline(name, argument, any_newline=any_newline):
            return True
        ends = is_last and not name.endswith("_REPEAT")
        if any(_goes_on(inner, any_newline=any_newline, at_end=ends) for inner in _inside(name, argument)):
            return True
    return False


def _any_node(nodes: Any, test: Callable[[str, Any, Any], bool]) -> Iterator[bool]:
    """Of each node the test: of its code, its argument and the node after it."""
    listed = list(nodes)
    for (code, argument), following in zip(listed, [*listed[1:], None], strict=False):
        name = str(code)
        yield test(name, argument, following)
        for inner in _inside(name, argument):
            yield from _any_node(inner, test)


def _inside(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    return [argument[2]] if name.endswith("_REPEAT") else []


def _is_digit_told(name: str, argument: Any, following: Any) -> bool:
    if name == "LITERAL" and argument == ord("0") and following is not None and _is_x(following):
        return False
    if name in ("LITERAL", "NOT_LITERAL"):
        return bool(ord("0") <= argument <= ord("9"))
    held = _digits_of(argument) if name == "IN" else frozenset()
    return bool(held) and held != _ALL


def _is_x(node: Any) -> bool:
    return str(node[0]) == "LITERAL" and chr(node[1]) in "xX"


def _digits_of(items: Any) -> frozenset[str]:
    held = set[str]()
    for code, value in items:
        name = str(code)
        if name == "LITERAL":
            held |= {chr(value)} & _ALL
        elif name == "RANGE":
            held |= {digit for digit in _ALL if value[0] <= ord(digit) <= value[1]}
        elif name == "CATEGORY" and str(value) in _WITH_DIGITS:
            held |= _ALL
    return frozenset(held)


def _has_newline(name: str, argument: Any, *, any_newline: bool) -> bool:
    if name == "ANY":
        return any_newline
    if name in ("LITERAL", "NOT_LITERAL"):
        return bool(argument == ord("\n")) is (name == "LITERAL")
    if name != "IN":
        return False
    negated = str(argument[0][0]) == "NEGATE"
    return negated is not any(_is_newline(str(code), value) for code, value in argument)


def _is_newline(name: str, value: Any) -> bool:
    if name == "CATEGORY":
        return str(value) in _WITH_NEWLINE
    if name == "RANGE":
        return bool(value[0] <= ord("\n") <= value[1])
    return name == "LITERAL" and bool(value == ord("\n"))
