"""The literals by which the scan looks for a rule.

To derive those of all built-in rules takes longer than to read a hundred megabytes of log. So they are in a table,
`rule_literals.json`, beside a checksum of what they were derived from: where that is another, as after a change or of a
user's rule, they are derived. A test fails where the table is not up to date; `make literals` writes it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.rules.literals import MIN_BYTES, Anchor, anchors, cut, fewest
from tpuwatch.logs.rules.shape import spans_lines, tells_digits_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.logs.rules.rule import Rule

TABLE = Path(__file__).with_name("rule_literals.json")

# Whether the literals of a list are in any case, and of patterns that tell digits apart, or look at other lines.
_KINDS = tuple(itertools.product((False, True), repeat=3))
_HALF_BYTES = 16  # a literal is halved when each half has at least as many bytes


class PatternError(Exception):
    """A pattern that cannot be looked for, with what to do."""


def rule_literals(name: str, patterns: tuple[str, ...], unless: tuple[str, ...], *, whole: bool) -> tuple[Anchor, ...]:
    """The literals of which each match of the patterns of the rule `name` contains at least one.

    `whole`: long ones are not halved. A report begins where its literal is, and ends where it is again; programs do not
    wrap the facts that are marks. Raises PatternError.
    """
    checksum, *texts = _table().get(name, (None,))
    if checksum != _checksum(patterns, unless, whole=whole):
        return _derived(patterns, unless, whole=whole)
    each = zip(_KINDS, texts, strict=True)
    return tuple(Anchor(text.encode(), *kind) for kind, some in each for text in some)


def render_table(rules: Iterable[Rule]) -> str:
    """The table of these rules: a line for each, its literals and those that are in any case."""
    lines = []
    for rule in rules:
        whole = rule.cause is None or rule.report
        found = _derived(rule.match, rule.unless, whole=whole)
        texts = [[anchor.literal.decode() for anchor in found if _kind(anchor) == kind] for kind in _KINDS]
        row = [_checksum(rule.match, rule.unless, whole=whole), *texts]
        lines.append(f"{json.dumps(rule.id)}: {json.dumps(row, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def _table() -> dict[str, Any]:
    """By the id of a rule: the checksum, and the literals of each kind. Empty while written to."""
    with contextlib.suppress(OSError, ValueError):
        table: dict[str, Any] = json.loads(TABLE.read_bytes())
        return table
    return {}


def _checksum(patterns: tuple[str, ...], unless: tuple[str, ...], *, whole: bool) -> int:
    return zlib.crc32(repr((patterns, unless, whole, _KINDS)).encode())


def _derived(patterns: tuple[str, ...], unless: tuple[str, ...], *, whole: bool) -> tuple[Anchor, ...]:
    for pattern in patterns:
        _anchors(pattern)  # one that is no pattern is refused
    always = any(map(tells_digits_apart, unless))
    found: dict[tuple[bytes, bool], Anchor] = {}
    for digits, lines in itertools.product((True, False), repeat=2):
        alike = [one for one in patterns if (always or tells_digits_apart(one), spans_lines(one)) == (digits, lines)]
        for anchor in fewest(tuple(map(cut, _literals(alike, whole=whole)))):
            known = found.get((anchor.literal, anchor.ignore_case), anchor)
            found[anchor.literal, anchor.ignore_case] = replace(
                anchor, digits=digits or known.digits, lines=lines or known.lines
            )
    return tuple(sorted(found.values(), key=_kind))


def _kind(anchor: Anchor) -> tuple[bool, bool, bool]:
    return anchor.ignore_case, anchor.digits, anchor.lines


def _literals(patterns: Iterable[str], *, whole: bool) -> Iterator[Anchor]:
    for pattern in patterns:
        for anchor in _anchors(pattern):
            yield from (anchor,) if whole else _halves(anchor)


def _anchors(pattern: str) -> tuple[Anchor, ...]:
    try:
        found = anchors(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"its pattern {pattern!r} is not valid: {error}") from None
    if not found:
        fault = f"can match without any fixed text of {MIN_BYTES} bytes"
        raise PatternError(f"its pattern {pattern!r} {fault}; add some words of the message")
    return found


def _halves(anchor: Anchor) -> Iterator[Anchor]:
    """A long literal as two of some words each: a message that is wrapped once still contains one of them whole."""
    literal = anchor.literal
    spaces = [place for place in range(_HALF_BYTES, len(literal) - _HALF_BYTES) if literal[place] == ord(" ")]
    middle = min(spaces, key=lambda place: abs(2 * place - len(literal)), default=0)
    halves = (literal[:middle], literal[middle + 1 :])
    if all(b" " in half.strip() for half in halves):
        yield from (Anchor(half, anchor.ignore_case) for half in halves)
    else:
        yield anchor
