"""Hard line breaks, as mail and documents have them, are undone; other line breaks stay."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.whole_text import findings_in
from tpuwatch.logs.line_breaks import unwrapped
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause

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


HBM = "ResourceExhaustedError: Ran out of memory in memory space hbm; used: 40.25G; limit: 31.25G."
SCANNER = Scanner(load_catalogue())


def columns(text: str, width: int) -> str:
    """The text as a terminal of that width shows it, which breaks inside words."""
    return "\n".join(text[start : start + width] for start in range(0, len(text), width))


@pytest.mark.parametrize(
    "text",
    [
        *(textwrap.fill(HBM, width) for width in (51, 54, 60, 67, 74)),
        HBM.replace("memory space", "memory \nspace"),  # `fold -s` keeps the blank
        *(columns(HBM, width) for width in (40, 45, 50, 60, 72)),
        "\n".join(f"2026-04-01T10:00:0{n}Z rank0: {line}" for n, line in enumerate(textwrap.wrap(HBM, 51))),
        "\n".join(f"[2026-05-01 01:02:03] worker-0 | {line}" for line in textwrap.wrap(HBM, 60)),
        "E0000 00:00:1 " + HBM.replace("memory in memory ", "memory in memory\n"),
        HBM.replace("used: ", "used:\n"),  # the failure is found without this; its numbers are not
    ],
)
def test_a_failure_in_a_message_that_was_broken_is_found_with_its_numbers(text: str) -> None:
    (finding,) = findings_in(f"{text}\n".encode(), SCANNER, "-")
    assert finding.cause is Cause.HBM_OOM_COMPILE
    assert finding.count == 1
    assert (finding.details["used_bytes"], finding.details["limit_bytes"]) == (40.25 * 2**30, 31.25 * 2**30)


@given(st.booleans(), st.text(alphabet="ab >-\n", max_size=400))
def test_no_word_and_no_line_is_lost(inside_words: bool, text: str) -> None:
    data = text.encode()
    joined = unwrapped(data, inside_words=inside_words)
    assert joined.count(b"\n") == data.count(b"\n")
    kept = joined.replace(b">", b" ").split(), data.replace(b">", b" ").split()
    assert b"".join(kept[0]) == b"".join(kept[1])
    assert inside_words or kept[0] == kept[1]
