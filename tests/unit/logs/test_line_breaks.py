"""Hard line breaks, as mail and documents have them, are undone; other line breaks stay."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.logs.line_breaks import unwrapped

MESSAGE = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm. "
    "Exceeded hbm capacity by 12.25G."
)


@pytest.mark.parametrize("quote", ["", "> ", "    "])
@pytest.mark.parametrize("width", [60, 72, 80, 120])
def test_a_wrapped_message_is_one_line_again(width: int, quote: str) -> None:
    wrapped = textwrap.fill(MESSAGE, width, initial_indent=quote, subsequent_indent=quote)
    text = f"Hello,\n\n{wrapped}\n\nWhat is it?\n".encode()
    lines = unwrapped(text).split(b"\n")
    assert lines[2] == f"{quote}{MESSAGE}".encode()
    assert lines.index(b"What is it?") == text.split(b"\n").index(b"What is it?")  # with its number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short\nlines\n",
        f"{'a long line ' * 20}\nof a log\n",
        f"{'word ' * 12}last\n\nA paragraph after it, and one more of them, as long.\n",
        f"{'word ' * 12}last\n- an item of a list that begins a line\n",
        f"{'word ' * 12}last\nE0901 01:02:03.000004 7 a.cc:1] a record\n",
        f"{'word ' * 12}last\n2026-09-01 01:02:03 another\n",
    ],
)
def test_lines_that_were_not_broken_stay(text: str) -> None:
    assert unwrapped(text.encode()) == text.encode()


@given(st.text(alphabet="ab >-\n", max_size=400))
def test_no_word_and_no_line_is_lost(text: str) -> None:
    data = text.encode()
    joined = unwrapped(data)
    assert joined.count(b"\n") == data.count(b"\n")
    assert joined.replace(b">", b" ").split() == data.replace(b">", b" ").split()
