"""A pattern for raw bytes matches wherever the rule's own matches the clean text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import hyperscan
import pytest

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.raw_pattern import raw_pattern

RULES = load_catalogue().rules
PREFIX = b"(worker pid=4711) 2026-01-01T00:00:00Z stdout F "


def compiled(patterns: Sequence[str]) -> hyperscan.Database:
    raw = [raw_pattern(pattern) for pattern in patterns]
    database = hyperscan.Database()
    database.compile(
        expressions=[one.expression for one in raw],
        ids=list(range(len(raw))),
        elements=len(raw),
        flags=[hyperscan.HS_FLAG_CASELESS if one.ignore_case else 0 for one in raw],
    )
    return database


def found(database: hyperscan.Database, text: bytes) -> set[int]:
    """The numbers of the patterns that match."""
    hits: set[int] = set()
    database.scan(text, match_event_handler=lambda number, _start, _end, _flags, _context: hits.add(number))
    return hits


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\bout of\s+memory$", b"xout of memory!", True),  # boundaries are dropped
        (r"out of\s+memory", b"out of\n" + PREFIX + b"memory", True),  # what stands before the next line too
        (r"out of memory", b"out of\n> memory", True),  # a wrapped sentence
        (r"out of memory", b"out of\nhost memory", False),
        (r"size: [^\n]{1,3}B", "size: ééé B".encode(), True),  # characters of several bytes
        (r"error.code", b"error\ncode", False),
        (r"(?s:error.{0,9}code)", b"error\n" + PREFIX + b"code", True),
        (r"(?s:error.)code.x", b"error\ncode\nx", False),  # the flag ends with its group
        (r"(?i)Killed [0-9]+", b"kILLED 7", True),
        (r"Killed", b"killed", False),
        (r"предел [0-9]", "предел 7".encode(), True),
        (r"[äö]rger", "örger".encode(), True),
        (r"lost [^:\s]+ of", "lost № of".encode(), True),
    ],
)
def test_it_matches_where_the_clean_text_would(pattern: str, text: bytes, *, expected: bool) -> None:
    assert bool(found(compiled([pattern]), text)) is expected


@pytest.mark.slow
def test_each_example_of_a_rule_is_found() -> None:
    rules = [rule for rule in RULES for _ in rule.match]  # by the number of the pattern
    database = compiled([pattern for rule in RULES for pattern in rule.match])
    for rule in RULES:
        for example in filter(rule.search, (example.encode() for example in rule.examples)):
            prefixed = b"\n".join(PREFIX + line for line in example.split(b"\n"))
            for text in (example, prefixed):
                assert rule in {rules[number] for number in found(database, text)}, (rule.id, text)


def test_a_pattern_that_cannot_be_parsed_is_an_error() -> None:
    with pytest.raises(re.error):
        raw_pattern("(")
