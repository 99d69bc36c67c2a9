"""Counting records and lines over a stream that comes in pieces."""

from __future__ import annotations

import pytest

from tpuwatch.logs.parse.line_counter import LineCounter, RecordCounter

DAY = b"I1120 10:00:00.000001 7 a.cc:1] x\n"
NEXT_DAY = DAY.replace(b"1120", b"1121")
OTHER = b"E1120 10:00:00.000001 7 a.cc:1] x\n"
MORE = b"In no record of its own\n"


@pytest.mark.parametrize(
    ("text", "records"),
    [
        (b"", 0),
        (MORE, 0),
        (DAY, 1),
        (DAY * 5, 5),
        (MORE + DAY + OTHER + MORE + DAY, 2),
        (DAY * 2 + MORE + NEXT_DAY * 3, 5),
        (DAY + b"I am not a header\n", 1),
    ],
)
def test_records_of_one_severity_are_counted_once(text: bytes, records: int) -> None:
    lines = text.splitlines(keepends=True)
    for cut in range(len(lines) + 1):
        counter = RecordCounter("I", 0)
        size = sum(map(len, lines[:cut]))
        counter.count(text, 0, size)
        counter.count(text, 0, size)  # the same again counts nothing
        counter.count(text[size:], size, len(text) - size)
        assert counter.take() == records
        assert counter.take() == 0


def test_lines_are_numbered_across_chunks() -> None:
    text = b"one\ntwo\n\nfour\n"
    for size in range(1, len(text)):
        counter = LineCounter(1000)
        for at in range(0, len(text), size):
            counter.append(text[at : at + size])
        assert [counter.line(offset) for offset in (0, 3, 4, 8, 9, 13)] == [1, 1, 2, 3, 4, 4]


def test_old_chunks_are_forgotten_and_still_counted() -> None:
    counter = LineCounter(100)
    for _ in range(1000):
        counter.append(b"line\n" * 20)
    assert len(counter._chunks) < 5
    assert counter.line(99_990) == 19_999
