from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.logs.rules.literals import Anchor, anchors, fewest, weak


def texts(pattern: str) -> set[str]:
    return {anchor.literal.decode() for anchor in anchors(pattern)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("out of memory", {"out of memory"}),
        (r"Found [0-9]+ TPU chips", {" TPU chips"}),
        (r"^\s*Killed$", {"Killed"}),
        ("heartbeat (?:timeout|lost)", {"heartbeat timeout", "heartbeat lost"}),
        ("(?:unable|failed) to [a-z]+ it", {"unable to ", "failed to "}),
        ("colou?rless", {"colorless", "colourless"}),
        ("(?:some )+text", {"some "}),
        ("gr[ae]yish", {"grayish", "greyish"}),
        ("预映射区域", {"预映射区域"}),
    ],
)
def test_the_best_set_of_literals(pattern: str, expected: set[str]) -> None:
    assert texts(pattern) == expected


@pytest.mark.parametrize(
    "pattern", ["[a-z]+", "abc", "(?:long text)?", "long text|ab", "a.b.c.d", "(?i)ÄÖÜÄÖÜ", ".*", ""]
)
def test_a_pattern_without_a_fixed_text_has_none(pattern: str) -> None:
    assert anchors(pattern) == ()


def test_case_is_ignored_where_the_pattern_ignores_it() -> None:
    assert anchors("(?i)Out Of Memory") == (Anchor(b"out of memory", True),)
    assert anchors("the (?i:Big) word") == (Anchor(b"the big word", True),)
    assert anchors("(?:aa(?i:Some Text))+") == (Anchor(b"aasome text", True),)


def test_too_many_alternatives_are_cut_where_the_rest_is_still_long() -> None:
    found = texts("[abc][abc][abc][abc] not ready")
    assert 0 < len(found) <= 32
    assert all(text.endswith(" not ready") for text in found)


def test_fewest_keeps_what_covers_the_rest() -> None:
    short, long, other = Anchor(b"memory", False), Anchor(b"out of memory", False), Anchor(b"Memory", False)
    assert fewest((long, short, other, short)) == (other, short)
    assert fewest((Anchor(b"out of Memory", False), Anchor(b"memory", True))) == (Anchor(b"memory", True),)
    assert len(fewest((Anchor(b"memory", False), Anchor(b"out of memory", True)))) == 2


words = st.sampled_from(["alpha", "be", "c", "x y", "Delta", "ü"])
patterns = st.recursive(
    words | st.sampled_from(["[ab]", "[^q]", ".", r"\d", r"\b", "[a-z]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda text: f"(?:{text})?"),
        inner.map(lambda text: f"(?:{text}){{1,2}}"),
        inner.map(lambda text: f"(?i:{text})"),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(patterns, st.data())
def test_whatever_matches_holds_an_anchor(pattern: str, data: Any) -> None:
    found = anchors(pattern)
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII)))
    if not found or re.search(pattern, text) is None:
        return
    raw = text.encode()
    assert any(a.literal in (raw.lower() if a.ignore_case else raw) for a in found)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("checkpoint .* lost", [" lost"]),
        ("checkpoint .* is lost", []),
        ("(?i)grad_norm: nan", []),
        ("global step: [0-9]+", ["global step: "]),
        ("checkpoint of steps [0-9]+ is lost", []),
        ("(?i)XLA::TPU Program .*", ["xla::tpu program "]),
        ("gone .*", ["gone "]),
        ("watchdog barked", []),
        ("loss=.*|watchdog barked", ["loss="]),
        ("127.0.0.1:8471 .*", []),
    ],
)
def test_texts_of_which_a_training_log_is_full_are_weak(pattern: str, expected: list[str]) -> None:
    assert weak(anchors(pattern)) == expected
