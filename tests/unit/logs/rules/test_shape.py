"""A pattern that does not tell digits apart matches all texts of a shape alike."""

from __future__ import annotations

import random
import re

import pytest

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.rule import compiled
from tpuwatch.logs.rules.shape import shape, spans_lines, tells_digits_apart


@pytest.mark.parametrize(
    ("pattern", "tells"),
    [
        (r"out of memory", False),
        (r"status [0-9]+(?:\.\d{1,3})? of [\w.]+ and [^\n]{0,9}\S\D", False),
        (r"0x[0-9a-f]+", False),
        (r"(?i)at 0x", False),
        (r"signal 9\b", True),
        (r"v[2-6]e", True),
        (r"[^0]x", True),
        (r"x0", True),
        (r"10x", True),
        (r"(?:a|b(?:c[0-8])?)", True),
        (r"[^\D5]", True),
    ],
)
def test_which_patterns_tell_digits_apart(pattern: str, tells: bool) -> None:
    assert tells_digits_apart(pattern) is tells


def test_texts_of_a_shape_differ_in_digits_alone() -> None:
    assert shape(b"rank 10 at 0x1F of 9.5G") == shape(b"rank 97 at 0x8F of 0.0G")
    assert shape(b"rank 10 at 0x1F") != shape(b"rank 10 at 1x1F")
    assert shape(b"rank 7") != shape(b"rank 77")
    assert not shape(b"a \x01x for a 0x")


def test_the_rules_own_patterns_match_examples_of_a_shape_alike() -> None:
    alike(examples_with_digits()[::12])


@pytest.mark.parametrize(
    ("pattern", "spans"),
    [
        (r"out of [^\n]{0,9}memory", False),
        (r"a\nb", True),
        (r"a.b", False),
        (r"(?s)a.b", True),
        (r"a(?s:.{0,9})b", True),
        (r"a\s+b", True),
        (r'a "[^"]*"', True),
        (r"[\w.]+ \S", False),
        (r"a[,\n]", False),  # the line's own newline
        (r"(?:a|b(?:c|[;\n]))", False),
        (r"a\n\n", True),
        (r"(?:a\n)+", True),
    ],
)
def test_which_patterns_span_lines(pattern: str, spans: bool) -> None:
    assert spans_lines(pattern) is spans


def examples_with_digits() -> list[str]:
    return [example for rule in load_catalogue().rules for example in rule.examples if re.search("[0-9]", example)]


def alike(examples: list[str]) -> None:
    """Each pattern that does not tell digits apart finds the same in an example with other digits."""
    rng = random.Random(3)
    patterns = [
        compiled(pattern)
        for rule in load_catalogue().rules
        for pattern in (*rule.match, *rule.unless, *rule.capture)
        if not tells_digits_apart(pattern)
    ]
    for example in examples:
        text = example.encode()
        other = re.sub(rb"(?!0[xX])[0-9]", lambda _: b"%d" % rng.randrange(10), text)
        if shape(other) != shape(text):  # a digit before an x became a zero
            continue
        for pattern in patterns:
            one, two = pattern.search(text), pattern.search(other)
            assert (one and one.span()) == (two and two.span()), (pattern.pattern, text, other)
