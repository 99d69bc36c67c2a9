"""The fast pass finds a candidate wherever a rule's own patterns, tried one by one, match."""

from __future__ import annotations

import random
import re

import pytest

from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Catalogue, load_catalogue


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def called(scanner: Scanner, text: bytes) -> set[str]:
    """The rules that the fast pass calls for."""
    return {rule.id for _, literal in scanner.find(text) for rule in scanner.rules[literal]}


def recognised(scanner: Scanner, text: bytes) -> set[str]:
    """The rules whose patterns match, each tried on its own."""
    return {rule.id for rule in scanner.catalogue.rules if rule.search(text) is not None}


def test_a_hit_has_the_position_of_its_literal(scanner: Scanner) -> None:
    literal = scanner.rules.index(next(rules for rules in scanner.rules if rules))
    anchor = next(iter(scanner.rules[literal][0].anchors))
    text = b"x" * 1000 + anchor.literal + b"y"
    assert (1000, literal) in scanner.find(text)


def test_no_rules_find_nothing() -> None:
    assert Scanner(Catalogue(())).find(b"anything") == []


@pytest.mark.slow
def test_the_fast_pass_misses_nothing_on_adversarial_text(scanner: Scanner) -> None:
    rng = random.Random(7)
    every = (one for rule in scanner.catalogue.rules for one in (*rule.examples, *rule.counterexamples))
    examples = [
        one for one in every if re.search(r"[a-zA-Z,]\n[a-zA-Z]", one) is None
    ]  # those are read with lines joined
    glue = ["", " ", "\n", "\x00", "\x1b[31m", "预映射", "A" * 50, "\r", "\t: "]
    for _ in range(400):
        pieces = []
        for _ in range(rng.randint(1, 4)):
            piece = rng.choice(examples)
            start, stop = sorted((rng.randint(0, len(piece)), rng.randint(0, len(piece))))
            pieces += [rng.choice((piece, piece[start:stop], piece.upper(), piece.lower())), rng.choice(glue)]
        text = "".join(pieces).encode()
        missed = recognised(scanner, text) - called(scanner, text)
        assert not missed, (missed, text)


def test_literals_of_facts_that_are_known_are_not_searched() -> None:
    catalogue = load_catalogue()
    scanner = Scanner(catalogue)
    text = b"Build label: libtpu_lts_1\nstep 1 loss nan\nProcess id 7\n"
    every = scanner.find(text, ())
    build, pid = catalogue.rule("mark-banner"), catalogue.rule("mark-banner-pid")
    for known in ({build}, {build, pid}, {pid}):
        left = [hit for hit in every if not known.issuperset(scanner.rules[hit[1]])]
        assert scanner.find(text, known) == left != every
    assert scanner.find(text, {catalogue.rule("numeric-fault")}) == every  # no fact: it counts each time
