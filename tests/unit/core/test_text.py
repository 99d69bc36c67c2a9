"""Text from outside as it is shown: printable, on one line, cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.core.text import TEXT_LIMIT, clean, printable


def test_a_terminal_gets_nothing_to_obey() -> None:
    assert printable("a\x9bb\u202ec\td") == "a b c d"


@given(st.text(max_size=2 * TEXT_LIMIT), st.integers(1, TEXT_LIMIT))
def test_whatever_the_text_it_is_one_short_line(text: str, limit: int) -> None:
    assert clean(text, limit).isprintable()
    assert len(clean(text, limit)) <= limit
    assert "  " not in clean(text, limit)
    assert printable(text, limit).isprintable()
    assert len(printable(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "limit", "shown"), [("abc", 3, "abc"), ("abcd", 3, "abc…"), ("a\nb", 3, "a b"), ("", 3, "")]
)
def test_a_long_text_is_cut_after_the_limit(text: str, limit: int, shown: str) -> None:
    assert printable(text, limit) == shown
