"""The fast pass finds a candidate wherever a rule's own patterns, tried one by one, match."""

from __future__ import annotations

import random

import pytest

from tpuwatch.logs.catalogue import Catalogue, load_catalogue
from tpuwatch.logs.scan import Scanner


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def called(scanner: Scanner, text: bytes) -> set[str]:
    """The rules that the fast pass calls for."""
    return {rule.id for _, index in scanner.scan(text) for rule in scanner.rules[index]}


def recognised(scanner: Scanner, text: bytes) -> set[str]:
    """The rules whose patterns match, each tried on its own."""
    return {rule.id for rule in scanner.catalogue.rules if rule.search(text) is not None}


def test_a_hit_says_where_its_literal_ends(scanner: Scanner) -> None:
    literal = scanner.rules.index(next(rules for rules in scanner.rules if rules))
    anchor = next(iter(scanner.rules[literal][0].anchors))
    text = b"x" * 1000 + anchor.literal + b"y"
    ends = [end for end, index in scanner.scan(text) if scanner.lengths[index] == len(anchor.literal)]
    assert 1000 + len(anchor.literal) in ends


def test_no_rules_find_nothing() -> None:
    assert Scanner(Catalogue(())).scan(b"anything") == []


def test_every_example_is_called_for(scanner: Scanner) -> None:
    for rule in scanner.catalogue.rules:
        for example in rule.examples:
            assert rule.id in called(scanner, example.encode()), (rule.id, example)


def test_the_fast_pass_misses_nothing_on_adversarial_text(scanner: Scanner) -> None:
    dice = random.Random(7)
    examples = [example for rule in scanner.catalogue.rules for example in (*rule.examples, *rule.counterexamples)]
    glue = ["", " ", "\n", "\x00", "\x1b[31m", "预映射", "A" * 50, "\r", "\t: "]
    for _ in range(1500):
        pieces = []
        for _ in range(dice.randint(1, 4)):
            piece = dice.choice(examples)
            start, stop = sorted((dice.randint(0, len(piece)), dice.randint(0, len(piece))))
            pieces += [dice.choice((piece, piece[start:stop], piece.upper(), piece.lower())), dice.choice(glue)]
        text = "".join(pieces).encode()
        missed = recognised(scanner, text) - called(scanner, text)
        assert not missed, (missed, text)
