"""The unread part of a stream, and where the records in it begin and end.

A record is a line with a header and the lines without one that follow it. Where no header is in reach the text is
unframed: then a line stands with a few lines of context, and something that plainly begins anew (a traceback, an
exception) bounds it. All walks are bounded, so that each costs constant time whatever the text is.
"""

from __future__ import annotations

from typing import NamedTuple

from tpuwatch.logs.frame import (
    LIBTPU_HEADER,
    TEXT_BREAK,
    TEXT_HEADER,
    Header,
    clean_line,
    decoration_length,
    parse_header,
)

MAX_RECORD = 64 * 1024  # libtpu cuts its records at 15,000 bytes; a report of many of them is longer
_HEADER_BACK = 16 * 1024  # how far before a continuation line its header is looked for
_FIRST = (b"I", b"W", b"E", b"F")  # what a header of libtpu's begins with
_BACK_BYTES, _BACK_LINES = 2048, 8  # context before an unframed line
_AHEAD_BYTES, _AHEAD_LINES = 8192, 40  # and after it


class Record(NamedTuple):
    """A stretch of the buffer, from `start` up to `stop`."""

    start: int
    stop: int
    header: Header | None  # None: unframed
    closed: bool  # nothing that may still follow belongs to it


class CleanText(NamedTuple):
    """A record's words: no headers, launchers' prefixes or colours."""

    text: bytes
    starts: list[int]  # where each line begins in the text,
    offsets: list[int]  # and in the buffer


class RecordBuffer:
    """Bytes of a stream from `offset` on. All positions below are positions in `data`."""

    def __init__(self, offset: int, *, text: bool) -> None:
        """`text`: no file of libtpu's; lines may have launchers' prefixes and other headers than glog's."""
        self.offset = offset
        self.data = b""
        self._text = text
        self._pattern = TEXT_HEADER if text else LIBTPU_HEADER
        self._last: tuple[int, Header | None] | None = None  # the offset asked for last, and the header there
        self._walked: tuple[int, int, Header | None] | None = (
            None  # offsets of the last line walked back from, and of its header
        )

    def append(self, data: bytes) -> None:
        """Take the stream's next bytes."""
        if self._text and b"\r" in data:  # a progress bar's carriage return begins a line; lengths must not change
            data = data.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        self.data = self.data + data if self.data else data
        self._last = None  # a line that was cut there may be a header now

    def drop(self, size: int) -> None:
        """Forget the first `size` bytes."""
        if size:
            self.offset += size
            self.data = self.data[size:]

    def complete(self) -> int:
        """Up to where the lines are complete; a line that does not end is taken in pieces."""
        end = self.data.rfind(b"\n") + 1
        return end if len(self.data) - end <= MAX_RECORD else len(self.data)

    def record(self, position: int, end: int) -> Record:
        """The record around `position`, as far as it is known at `end`."""
        line = self._line_start(position)
        start, header = self._walk_back(line)
        if header is not None:
            return Record(start, *self._stop(line, position, end, header, MAX_RECORD, MAX_RECORD))
        start = line
        for _ in range(_BACK_LINES):
            if start == 0 or line - start > _BACK_BYTES or self._breaks(start):
                break
            start = self._line_start(start - 1)
        start = max(start, line - _BACK_BYTES)
        return Record(start, *self._stop(line, position, end, None, _AHEAD_BYTES, _AHEAD_LINES))

    def extend(self, record: Record, end: int, again: int) -> Record:
        """The record with the records or lines after it that go on with its report, none of which holds `again`.

        Older libtpu prints one report over many records, jobs print it over many lines. Where its words begin `again`,
        another report begins.
        """
        stop, header = record.stop, record.header
        if header is None:
            stop, _, closed = self._stop(record.start, min(stop, again) - 1, end, None, MAX_RECORD, MAX_RECORD)
            if again < stop:
                stop, closed = self._line_start(again), True
            return Record(record.start, stop, header, closed)
        closed = record.closed
        while stop < end and stop - record.start < MAX_RECORD:
            following = self._header(stop)
            if following is None or not following.same_report(header):
                return Record(record.start, stop, header, closed=True)
            after, _, closed = self._stop(stop, stop, end, following, MAX_RECORD, MAX_RECORD)
            if again < after:
                return Record(record.start, stop, header, closed=True)
            stop = after
        return Record(record.start, stop, header, (closed and stop < end) or stop - record.start >= MAX_RECORD)

    def line_end(self, position: int, end: int) -> int:
        """The position just after the line that holds `position`, at most `end`."""
        found = self.data.find(b"\n", position, end)
        return end if found < 0 else found + 1

    def context(self, end: int) -> int:
        """From where the data must be kept so that a record which goes on after `end` is still framed."""
        if not end:
            return 0
        record = self.record(end - 1, end)
        return max(record.start, end - (MAX_RECORD if record.header is not None else _BACK_BYTES))

    def clean(self, record: Record) -> CleanText:
        """The record's words, and where its lines come from."""
        raw = self.data[record.start : record.stop]
        if record.header is not None and self._is_plain(raw, record.header):
            return CleanText(raw[record.header.length :], [0], [record.start])
        lines, starts, offsets, size, at = [], [], [], 0, record.start
        for line in raw.removesuffix(b"\n").split(b"\n"):
            clean = clean_line(line, self._pattern, self._text) + b"\n"
            lines.append(clean)
            starts.append(size)
            offsets.append(at)
            size += len(clean)
            at += len(line) + 1
        return CleanText(b"".join(lines), starts, offsets)

    def _is_plain(self, raw: bytes, header: Header) -> bool:
        """Whether a framed record is clean but for its header. Its lines' places matter in unframed text alone."""
        if b"\x1b" in raw:
            return False
        if self._text:
            return raw.find(b"\n") in (-1, len(raw) - 1)
        return b"\n" + header.raw[:1] not in raw  # no line of it can have a header of its own

    def _walk_back(self, line: int) -> tuple[int, Header | None]:
        """The header that the line at `line` stands under, and where that begins."""
        start, header = line, self._header(line)
        while header is None and start > 0 and line - start < _HEADER_BACK and not self._breaks(start):
            start = self._line_start(start - 1)
            if self._walked is not None and self._walked[0] == self.offset + start:  # walked back from there just now
                start, header = self._walked[1] - self.offset, self._walked[2]
                break
            header = self._header(start)
        if start < 0:  # its header is gone from the buffer
            start, header = 0, None
        self._walked = (self.offset + line, self.offset + start, header)
        return start, header

    def _stop(
        self, start: int, position: int, end: int, header: Header | None, limit: int, lines: int
    ) -> tuple[int, Header | None, bool]:
        """Where the record of the line at `start` stops, beyond `position`, and whether that is final."""
        stop = start
        while stop <= position or (stop - position <= limit and lines > 0):
            stop = self.line_end(stop, end)
            lines -= 1
            if stop >= end:
                return end, header, end - position > limit
            if self._header(stop) is not None or self._breaks(stop):
                return stop, header, True
        return stop, header, True

    def _header(self, start: int) -> Header | None:
        if not self._text and self.data[start : start + 1] not in _FIRST:
            return None  # most lines without a header are told by one byte
        if self._last is None or self._last[0] != self.offset + start:  # where one stops the next is asked for
            self._last = (self.offset + start, parse_header(self.data, start, self._pattern, self._text))
        return self._last[1]

    def _breaks(self, start: int) -> bool:
        """Whether an unframed line begins something new."""
        return self._text and TEXT_BREAK.match(self.data, start + decoration_length(self.data, start)) is not None

    def _line_start(self, position: int) -> int:
        lowest = max(0, position - MAX_RECORD)
        found = self.data.rfind(b"\n", lowest, position)
        return lowest if found < 0 else found + 1
