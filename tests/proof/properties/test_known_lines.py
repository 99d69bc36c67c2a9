"""What is remembered of a line's shape changes no match: on real texts, storms of their lines, and mixtures."""

from __future__ import annotations

import random

import pytest

from tests.proof.properties.test_patterns import needs_texts, real_texts
from tests.unit.logs.parse.test_known_lines import CATALOGUE, EXAMPLES, compare, storms
from tests.unit.logs.rules.test_digits import alike, examples_with_digits
from tpuwatch.logs.parse.scan import Scanner


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(CATALOGUE, background=lambda _: None)


@needs_texts
def test_in_real_texts(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(scanner, (3 * text for text in real_texts()), random.Random(7), monkeypatch)


@pytest.mark.long
@needs_texts
def test_in_storms_of_their_lines(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(8)
    lines = {line for text in real_texts() for line in text.splitlines() if scanner.literals.find(line)}
    known = sorted(line.decode("utf-8", "surrogateescape") for line in lines)
    assert compare(scanner, storms(rng, 300, known), rng, monkeypatch) > 1000


@pytest.mark.long
def test_in_storms_of_examples(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(9)
    assert compare(scanner, storms(rng, 500, EXAMPLES), rng, monkeypatch) > 3000


def test_patterns_find_the_same_in_all_examples_with_other_digits() -> None:
    alike(examples_with_digits())
