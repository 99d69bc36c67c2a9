"""Whether a pattern tells digits apart.

One that does not matches a text wherever it matches another text with other digits in the same places. So what it found
in one line of a storm holds for all lines of that shape.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

from tpuwatch.logs.rules.literals import parse_pattern
from tpuwatch.logs.rules.raw_pattern import raw_pattern

_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_ALL: Final = frozenset("0123456789")
_ALL_DIGITS: Final = re.compile(r"0-9|\{[0-9]+(?:,[0-9]*)?\}")  # as a class has them; and how often something comes
_NAMED: Final = re.compile(r"[0-9]|\\[xuUN]")  # a digit, or how one may be written
_WITH_DIGITS: Final = frozenset({"CATEGORY_DIGIT", "CATEGORY_WORD", "CATEGORY_NOT_SPACE"})
_MARK: Final = b"\x01"  # stands for the zero of 0x, which patterns tell from other digits


def shape(line: bytes) -> bytes:
    """The line with all digits alike, but for the zero of 0x; empty for a line that must not be compared so."""
    if _MARK in line:
        return b""
    return line.replace(b"0x", _MARK + b"x").replace(b"0X", _MARK + b"X").translate(_DIGITS)


def alike(text: bytes) -> bytes:
    """The text with all digits alike."""
    return text.translate(_DIGITS)


def tells_digits_apart(pattern: str) -> bool:
    """Whether it may match a text and not another one of the same shape, or elsewhere. Raises re.error."""
    if not _NAMED.search(_ALL_DIGITS.sub("", pattern)):  # most: to parse them takes longer than all else that is new
        return False
    return _in_sequence(list(parse_pattern(pattern)))


def for_any_digits(pattern: str) -> Any:
    """What of the pattern tells digits apart, and perhaps more, for all digits where it matches some.

    In a text where that is not found the pattern finds the same as in all texts of its shape. None where RE2 cannot
    have it.
    """
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        raw = raw_pattern(pattern, any_digits=_telling)
        options.case_sensitive = not raw.ignore_case
        return re2.compile(raw.expression, options)
    except (re2.error, ValueError):
        return None


def _telling(nodes: list[Any]) -> list[Any]:
    """The nodes without alternatives that do not tell digits apart, if nothing beside them does."""
    places = [at for at, node in enumerate(nodes) if _in_sequence([node])]
    if len(places) != 1 or str(nodes[places[0]][0]) != "BRANCH":
        return nodes
    code, (before, branches) = nodes[places[0]]
    telling = [branch for branch in branches if _in_sequence(list(branch))]
    return [*nodes[: places[0]], (code, (before, telling)), *nodes[places[0] + 1 :]]


def _in_sequence(nodes: list[Any]) -> bool:
    for at, (code, argument) in enumerate(nodes):
        name = str(code)
        if name == "LITERAL" and argument == ord("0") and _is_x(nodes[at + 1 : at + 2]):
            continue
        if name in ("LITERAL", "NOT_LITERAL") and _is_digit(argument):
            return True
        if name == "IN" and _tells(argument):
            return True
        if any(_in_sequence(list(inner)) for inner in _inside(name, argument)):
            return True
    return False


def _inside(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    return [argument[2]] if name.endswith("_REPEAT") else []


def _is_x(following: list[Any]) -> bool:
    return bool(following) and str(following[0][0]) == "LITERAL" and chr(following[0][1]) in "xX"


def _is_digit(point: int) -> bool:
    return ord("0") <= point <= ord("9")


def _tells(items: Any) -> bool:
    """Whether a class has some digits and not others."""
    held = set[str]()
    for code, value in items:
        name = str(code)
        if name == "LITERAL":
            held |= {chr(value)} & _ALL
        elif name == "RANGE":
            held |= {digit for digit in _ALL if value[0] <= ord(digit) <= value[1]}
        elif name == "CATEGORY" and str(value) in _WITH_DIGITS:
            held |= _ALL
    return bool(held) and held != _ALL
