"""The fast pass finds a candidate wherever a rule's own patterns, tried one by one, match."""

from __future__ import annotations

import random

import pytest

from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Catalogue, load_catalogue


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def called(scanner: Scanner, text: bytes) -> set[str]:
    """The rules that the fast pass calls for."""
    return {rule.id for hit in scanner.scan(text, 0, len(text)) for rule in hit.rules}


def recognised(scanner: Scanner, text: bytes) -> set[str]:
    """The rules whose patterns match, each tried on its own."""
    return {rule.id for rule in scanner.catalogue.rules if rule.search(text) is not None}


def test_a_hit_has_the_position_of_its_literal(scanner: Scanner) -> None:
    literal = scanner.rules.index(next(rules for rules in scanner.rules if rules))
    anchor = next(iter(scanner.rules[literal][0].anchors))
    text = b"x" * 1000 + anchor.literal + b"y"
    assert (1000, literal) in [hit[:2] for hit in scanner.scan(text, 0, len(text))]


def test_no_rules_find_nothing() -> None:
    assert Scanner(Catalogue(())).scan(b"anything", 0, 8) == []


def test_the_fast_pass_misses_nothing_on_adversarial_text(scanner: Scanner) -> None:
    rng = random.Random(7)
    examples = [example for rule in scanner.catalogue.rules for example in (*rule.examples, *rule.counterexamples)]
    glue = ["", " ", "\n", "\x00", "\x1b[31m", "预映射", "A" * 50, "\r", "\t: "]
    for _ in range(1500):
        pieces = []
        for _ in range(rng.randint(1, 4)):
            piece = rng.choice(examples)
            start, stop = sorted((rng.randint(0, len(piece)), rng.randint(0, len(piece))))
            pieces += [rng.choice((piece, piece[start:stop], piece.upper(), piece.lower())), rng.choice(glue)]
        text = "".join(pieces).encode()
        missed = recognised(scanner, text) - called(scanner, text)
        assert not missed, (missed, text)
