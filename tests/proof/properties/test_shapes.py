"""What is remembered of lines by their shape changes no match: on real texts that repeat, and floods of their lines."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from tests.proof.properties.real_texts import needs_texts, real_texts
from tests.unit.logs.parse.test_shapes import CATALOGUE, parse
from tests.unit.logs.rules.test_shape import alike, examples_with_digits
from tpuwatch.diagnose import stream_kind
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.parse.shapes import Shapes


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(CATALOGUE)


def found(scanner: Scanner, text: bytes, cuts: list[int]) -> list[tuple[object, ...]]:
    def seen(match: Match) -> tuple[object, ...]:
        return match.offset, match.rule.id, match.key, match.text, match.line, match.time, match.severity, match.author

    return [seen(match) for match in parse(scanner, text, stream_kind("", text), cuts, fold=False)]


def compare(scanner: Scanner, texts: Iterable[bytes], monkeypatch: pytest.MonkeyPatch, seed: int) -> int:
    """Hold the matches in texts against those where each line is read; how many there are."""
    rng, number = random.Random(seed), 0
    for text in texts:
        cuts = sorted(rng.sample(range(len(text)), min(len(text), 3)))
        with monkeypatch.context() as patch:
            patch.setattr(Shapes, "of", lambda _self, _line: None)
            expected = found(scanner, text, cuts)
        assert found(scanner, text, cuts) == expected
        number += len(expected)
    return number


def floods(number: int) -> Iterator[bytes]:
    """Lines that hold what rules look for, again and again, with other digits."""
    rng = random.Random(8)
    lines = sorted({line for text in real_texts() for line in text.splitlines() if b"rror" in line or b"TPU" in line})
    for _ in range(number):
        some = rng.sample(lines, rng.randint(1, 5))
        yield b"".join(_other_digits(rng.choice(some), rng) + b"\n" for _ in range(200))


def _other_digits(line: bytes, rng: random.Random) -> bytes:
    return bytes(rng.choice(b"123456789") if 0x31 <= byte <= 0x39 and rng.random() < 0.2 else byte for byte in line)


@needs_texts
@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.long)])
def test_in_real_texts(scanner: Scanner, monkeypatch: pytest.MonkeyPatch, one_in: int) -> None:
    texts = [3 * text for text in real_texts() if len(text) < 100_000][::one_in]
    assert compare(scanner, texts, monkeypatch, 7) > 100


@pytest.mark.long
@needs_texts
def test_in_floods_of_their_lines(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compare(scanner, floods(300), monkeypatch, 8) > 1000


def test_patterns_find_the_same_in_all_examples_with_other_digits() -> None:
    alike(examples_with_digits())
