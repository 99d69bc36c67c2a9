"""The search for patterns changes no match, only the time that is taken."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Iterator
from typing import Any

import pytest

from tpuwatch.logs.parse import scan
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue

CATALOGUE = load_catalogue()
PREFIXES = [
    *("", "(worker pid=12) ", "2026-01-01T10:00:00Z stdout F ", "\x1b[31m", "[rank3]: "),
    *("I0101 10:00:00.123456 12 a.cc:1] ", "worker-0 | "),
]


def matches(scanner: Scanner, data: bytes, kind: StreamKind, cuts: list[int], patterns_first: int = 0) -> list[Match]:
    parser = LogParser(scanner, kind, now=1.79e9, state={"salt": "0123456789abcdef"}, count_lines=True)
    parser._scan._patterns_first = patterns_first
    found, at = [], 0
    for cut in (*cuts, len(data)):
        found += parser.feed(data[at:cut])
        at = cut
    found += parser.finish()
    return found


def shown(found: Iterable[Match], called: Container[tuple[int, str]]) -> list[tuple[Any, ...]]:
    """What the matches are, without those of a cause that another literal of the record `called`."""
    return [
        (match.rule.id, match.offset, match.line, match.text, match.details, match.key)
        for match in found
        if (match.offset, match.rule.name) not in called
    ]


def has_a_literal(match: Match) -> bool:
    """Whether its own text holds a literal of its rule whole: else it is found only by what else its record says."""
    text = match.text.encode()
    return len(text) > 1900 or any(
        anchor.literal in (text.lower() if anchor.ignore_case else text) for anchor in match.rule.anchors
    )


def texts(rng: random.Random, number: int) -> Iterator[bytes]:
    examples = [example for rule in CATALOGUE.rules for example in (*rule.examples, *rule.counterexamples)]
    for _ in range(number):
        pieces = []
        for _ in range(rng.randint(3, 60)):
            piece = rng.choice(examples)
            wrapped = rng.random() < 0.3
            if wrapped:
                piece = piece.replace(" ", "\n", 1)
            if rng.random() < 0.2:
                at = rng.randint(0, len(piece))
                piece = piece[:at] + "\x1b[1m" + piece[at:]  # a colour within
            if not wrapped and rng.random() < 0.5:
                prefix = rng.choice(PREFIXES)
                piece = "\n".join(prefix + line for line in piece.split("\n"))
            pieces.append(piece[: rng.randint(0, len(piece))] if rng.random() < 0.2 else piece)
        yield ("\n".join(pieces) + "\n").encode()


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    compiled = Scanner(CATALOGUE, background=lambda _: None)
    compiled.compile_patterns()
    return compiled


def compare(
    scanner: Scanner,
    data: Iterable[bytes],
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    *,
    patterns_first: bool,
) -> None:
    """Compare the matches in each text, cut anywhere, with those of the literals alone."""
    monkeypatch.setattr(scan, "_SPARSE_BYTES", 1 << 60)
    monkeypatch.setattr(scan, "_FEW", -1)  # patterns are searched in each block
    monkeypatch.setattr(scan, "_ALIKE", 0)
    plain = Scanner(scanner.catalogue, background=lambda _: None)
    for text in data:
        for kind in StreamKind:
            cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.choice([0, 0, 3])))
            blocks = 100 * (len(cuts) + 2) if patterns_first else 0
            found, expected = matches(scanner, text, kind, cuts, blocks), matches(plain, text, kind, cuts)
            called = {(match.offset, match.rule.name) for match in (*found, *expected) if not has_a_literal(match)}
            assert shown(found, called) == shown(expected, called)


@pytest.mark.slow
@pytest.mark.parametrize("patterns_first", [False, True])
def test_the_matches_are_those_of_the_literals_alone(
    scanner: Scanner, monkeypatch: pytest.MonkeyPatch, *, patterns_first: bool
) -> None:
    rng = random.Random(20261122)
    compare(scanner, texts(rng, 6), monkeypatch, rng, patterns_first=patterns_first)
