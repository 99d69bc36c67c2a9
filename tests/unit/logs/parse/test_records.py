"""Where records begin and end, at bounded cost."""

from __future__ import annotations

import random
import re

import pytest

from tpuwatch.logs.parse import records
from tpuwatch.logs.parse.records import MAX_RECORD, RecordBuffer

HEADER = b"E1120 10:00:00.000001 7 a.cc:1] "


def buffer(data: bytes, *, text: bool) -> RecordBuffer:
    filled = RecordBuffer(0, text=text)
    filled.append(data)
    return filled


@pytest.mark.parametrize("text", [False, True])
def test_a_record_is_its_header_and_what_follows(text: bool) -> None:
    data = HEADER + b"one\n\n two\n" + HEADER + b"three\n"
    walked = buffer(data, text=text)
    first = walked.record(data.index(b"two"), len(data))
    assert (data[first.start : first.stop], first.closed) == (HEADER + b"one\n\n two\n", True)
    last = walked.record(data.index(b"three"), len(data))
    assert (data[last.start : last.stop], last.closed) == (HEADER + b"three\n", False)
    assert walked.clean(first).text == b"one\n\n two\n"


def test_unframed_text_has_context_on_both_sides_but_not_beyond_a_break() -> None:
    lines = [b"line %d\n" % number for number in range(200)]
    lines[95] = b"Traceback (most recent call last):\n"
    data = b"".join(lines)
    record = buffer(data, text=True).record(data.index(b"line 100"), len(data))
    assert record.header is None
    assert data[record.start :].startswith(b"Traceback")
    assert record.closed
    assert 30 < data[record.start : record.stop].count(b"\n") < 60


def test_a_record_is_bounded_and_then_final() -> None:
    data = HEADER + b"x\n" + b"more\n" * 100_000
    record = buffer(data, text=False).record(40, len(data))
    assert record.closed
    assert MAX_RECORD <= record.stop < MAX_RECORD + 100


def test_looking_for_a_header_far_back_is_bounded() -> None:
    data = HEADER + b"x\n" + b"more\n" * 100_000 + b"here\n"
    walked = buffer(data, text=False)
    record = walked.record(len(data) - 3, len(data))
    assert record.header is None
    assert record.start > len(data) - 20_000


def test_context_is_kept_for_what_may_still_come() -> None:
    data = HEADER + b"one\n" + HEADER + b"two\n more\n"
    walked = buffer(data, text=False)
    assert walked.context(len(data)) == data.rindex(HEADER)
    unframed = buffer(b"a\n" * 5000, text=True)
    assert 10_000 - 2048 <= unframed.context(10_000) < 10_000


LINES = [
    *(b"step 1 loss 0.5\n", b"\n", b"  indented\n", b"Traceback (most recent call last):\n", b"ValueError: no\n"),
    *(HEADER + b"words\n", b"[rank1]: " + HEADER + b"words\n", b"x" * 700 + b"\n", b"more\n" * 12, b"a\rb\r\n"),
    *(b"y" * 40_000 + b"\n", b"no newline"),
]


def test_context_begins_where_the_record_of_the_last_line_does() -> None:
    rng = random.Random(20261123)
    for _ in range(300):
        data = b"".join(rng.choice(LINES) for _ in range(rng.randint(1, 30)))
        kept, at = RecordBuffer(0, text=True), 0
        for cut in sorted({*(rng.randint(0, len(data)) for _ in range(rng.randint(0, 5))), len(data)}):
            kept.append(data[at:cut])
            at, end = cut, kept.complete()
            context = kept.context(end)
            plain = buffer(kept.data, text=True)
            if end:
                record = plain.record(end - 1, end)
                if record.header is not None or record.above is not None:
                    start = record.start if record.above is None else record.above[0]
                    assert context == max(start, end - MAX_RECORD)
                elif plain.line_around(end - 1, end)[0] >= end - 2048:
                    assert context == record.start
                else:  # the last part of a long line, and nothing of it when it is whole
                    assert context == (end if kept.data[end - 1 : end] == b"\n" else end - 2048)
            kept.drop(context)


def test_a_jobs_output_is_not_searched_for_what_the_next_lines_may_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    parse = records.parse_header
    monkeypatch.setattr(records, "parse_header", lambda *a: (searched.append(a[1]), parse(*a))[1])
    kept = buffer(b"step 1 loss 0.5\n" * 1000, text=True)
    kept.drop(kept.context(16_000))
    assert len(searched) <= 10


def test_carriage_returns_keep_every_offset() -> None:
    walked = buffer(b"a\rb\r\nc\n", text=True)
    assert walked.data == b"a\nb \nc\n"
    assert buffer(b"a\rb\n", text=False).data == b"a\rb\n"


def test_colours_are_no_part_of_a_record() -> None:
    data = b"\x1b[31m[rank0]: some \x1b[1mred\x1b[0m words\x1b]0;title\x07\n"
    walked = buffer(data, text=True)
    assert walked.clean(walked.record(10, len(data))).text == b"some red words\n"


INDENTED = [
    b"\n",
    b"  3. Size: 128.00M\n",
    b"     Shape: f32[64]\n",
    b"   \n",
    b"  \xff \x1b[0m red\n",
    b"  > 1: not quoted\n",
]
OTHERS = [
    *(HEADER + b"failed\n", HEADER + b"\n", b" 7: a rank\n", b" one\n", b"Traceback (most recent call last):\n"),
    *(b"INFO 01-01 10:00:00 [a.py:1] vllm\n", b"tpuwatch: said\n", b"[rank0]:   indented behind\n", b"no newline  "),
    *(b" \x1b[1mx\n", b"x" * 3000 + b"\n", b"  " + b"y" * 9000 + b"\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, True])
def test_indented_lines_are_taken_together_as_if_one_by_one(text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    for _ in range(400):
        lines = [rng.choice(INDENTED if rng.random() < 0.9 else OTHERS) for _ in range(rng.choice((3, 30, 1500)))]
        data = b"".join(lines)
        end = rng.choice((len(data), rng.randint(1, len(data))))
        position, again = rng.randrange(end), rng.randint(0, len(data))
        seen = []
        for pattern in (records._INDENTED, re.compile(rb"(?!)")):
            monkeypatch.setattr(records, "_INDENTED", pattern)
            known = buffer(data, text=text)
            found = known.record(position, end)
            whole = known.extend(found, end, max(again, found.start + 1), -1)
            seen.append((found, known.clean(found), whole, known.clean(whole)))
        monkeypatch.undo()
        assert seen[0] == seen[1]
