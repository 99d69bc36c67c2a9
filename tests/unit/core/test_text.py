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


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("It does not fit: it needs 20.5 GiB of HBM", 31, "It does not fit: it needs…"),
        ("It does not fit: it needs 20.5 GiB of HBM", 28, "It does not fit: it needs…"),
        ("The limit (15.75 GiB) is reached", 18, "The limit…"),
        ("Look into /var/log/jobs/train.log, then go on", 30, "Look into…"),
        ("Run `kill -9 4711`, then start the program again", 12, "Run…"),
        ("Run `kill -9 4711`, then start the program again", 24, "Run `kill -9 4711`, then…"),
        ("Run `kill -9 4711`, then start the program again", 19, "Run `kill -9 4711`…"),
        ("words of the same length", 12, "words of the…"),
        ("word " + "x" * 100, 20, "word xxxxxxxxxxxxxxx…"),
        ("/a/path/" + "x" * 100, 12, "/a/path/xxxx…"),
    ],
)
def test_no_number_path_or_command_is_cut(text: str, limit: int, shown: str) -> None:
    assert printable(text, limit) == shown
    assert clean(text, limit + 1) == shown
