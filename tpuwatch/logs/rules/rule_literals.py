"""The literals by which the scan looks for a rule.

To derive those of all built-in rules takes longer than to read a hundred megabytes of log. So they are in a table,
`rule_literals.json`, beside a checksum of what they were derived from: where that is another, as after a change or of a
user's rule, they are derived. A test fails where the table is not up to date; `make literals` writes it.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.logs.rules.literals import MIN_BYTES, Anchor, anchors, cut, fewest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.logs.rules.rule import Rule

TABLE = Path(__file__).with_name("rule_literals.json")

_HALF_BYTES = 16  # a literal is halved when each half has at least as many bytes


class PatternError(Exception):
    """A pattern that cannot be looked for, with what to do."""


def rule_literals(name: str, patterns: tuple[str, ...], *, whole: bool) -> tuple[Anchor, ...]:
    """The literals of which each match of the patterns of the rule `name` contains at least one.

    `whole`: long ones are not halved. A report begins where its literal is, and ends where it is again; programs do not
    wrap the facts that are marks. Raises PatternError.
    """
    checksum, literals, caseless = _table().get(name, (None, [], []))
    if checksum != _checksum(patterns, whole=whole):
        return _derived(patterns, whole=whole)
    return (*(Anchor(text.encode(), False) for text in literals), *(Anchor(text.encode(), True) for text in caseless))


def render_table(rules: Iterable[Rule]) -> str:
    """The table of these rules: a line for each, its literals and those that are in any case."""
    lines = []
    for rule in rules:
        whole = rule.cause is None or rule.report
        found = _derived(rule.match, whole=whole)
        texts = [[a.literal.decode() for a in found if a.ignore_case is caseless] for caseless in (False, True)]
        row = [_checksum(rule.match, whole=whole), *texts]
        lines.append(f"{json.dumps(rule.id)}: {json.dumps(row, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def _table() -> dict[str, Any]:
    """By the id of a rule: the checksum, the literals, and those that are in any case. Empty while written to."""
    with contextlib.suppress(OSError, ValueError):
        table: dict[str, Any] = json.loads(TABLE.read_bytes())
        return table
    return {}


def _checksum(patterns: tuple[str, ...], *, whole: bool) -> int:
    return zlib.crc32(repr((patterns, whole)).encode())


def _derived(patterns: tuple[str, ...], *, whole: bool) -> tuple[Anchor, ...]:
    found = fewest(tuple(map(cut, _literals(patterns, whole=whole))))
    return tuple(sorted(found, key=lambda anchor: anchor.ignore_case))


def _literals(patterns: tuple[str, ...], *, whole: bool) -> Iterator[Anchor]:
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
