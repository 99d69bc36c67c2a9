"""The unprocessed part of a stream, and where the records in it begin and end.

A record is a line with a header and the lines without one that follow it. If no header is near, the text is unframed:
the record is then a line with a few lines of context, bounded by lines that begin something new (a traceback, an
exception). In a job's output that holds of each line without a header, since another author may have written it. All
searches are bounded, so that each costs constant time whatever the text is.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tpuwatch.logs.parse.frame import (
    JSON_FILE,
    LIBTPU_HEADER,
    TEXT_BREAK,
    TEXT_HEADER,
    Header,
    HeaderPlaces,
    author_places,
    clean_line,
    decoration_length,
    header_places,
    parse_header,
    plain_span,
)

MAX_RECORD = 64 * 1024  # libtpu truncates records at 15,000 bytes; a report of several records is longer
_HEADER_BACK = 16 * 1024  # how far before a continuation line its header is searched
_FIRST = (b"I", b"W", b"E", b"F")  # the first byte of a libtpu header
# Lines that are blank or indented by two spaces, without colours: nothing that begins a record or must be removed from
# a line begins so. Most lines of a long report are of this kind.
_INDENTED: Final = re.compile(rb"(?:(?:  [^\n\x1b]*)?\n)+")
_HEADER_PART: Final = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:|\d: [IWEF] ")  # of glog's, and of TensorFlow's
_NEWLINE: Final = re.compile(rb"\n")
_FRAME: Final = re.compile(rb'  File "[^"\n]{1,4096}", line \d')  # of a Python traceback
_QUOTE: Final = re.compile(rb"[\"']")
_SOURCE_INDENT: Final = b"    "
_BACK_BYTES, _BACK_LINES = 2048, 8  # context before an unframed line
AHEAD_BYTES, AHEAD_LINES = 8192, 40  # and after it


class LogRecord(NamedTuple):
    """A range of the buffer, from `start` up to `stop`."""

    start: int
    stop: int
    header: Header | None  # None: unframed
    closed: bool  # final: nothing that follows belongs to it
    above: tuple[int, Header] | None = None  # unframed, in a job's output: the header before, and its position


class LinePlaces(NamedTuple):
    """Where the parts of a line are: in each line of the same shape."""

    header: HeaderPlaces | None
    message: tuple[int, int] | None  # as it is in the clean text; None if the line has to be cleaned
    author: tuple[tuple[int, int], ...]  # his name is there


class CleanText(NamedTuple):
    """A record's text without headers, launchers' prefixes and colours."""

    text: bytes
    starts: list[int]  # where each line begins in the text,
    offsets: list[int]  # and in the buffer

    def is_quoted(self, line: int, position: int) -> bool:
        """Whether `position`, in this line, is in a string of the source code that a traceback shows below a frame."""
        if not _QUOTE.search(self.text, self.starts[line], position):
            return False
        while line > 0 and self.text.startswith(_SOURCE_INDENT, self.starts[line]):
            line -= 1
            if _FRAME.match(self.text, self.starts[line]):
                return True
        return False


class _Line:
    """What is known of one line; cleaned when that is first asked for."""

    __slots__ = ("breaks", "clean", "header", "stop")

    def __init__(self, stop: int, header: Header | None, *, breaks: bool) -> None:
        self.stop = stop  # where the next line begins: an offset in the stream
        self.header = header
        self.breaks = breaks  # begins a new record of unframed text
        self.clean: bytes | None = None


class RecordBuffer:
    """Bytes of a stream from `offset` on. All positions below are positions in `data`."""

    def __init__(self, offset: int, *, text: bool) -> None:
        """`text`: no libtpu file; lines may have launchers' prefixes and headers other than glog's."""
        self.offset = offset
        self.data = b""
        self._text = text
        self.pattern = TEXT_HEADER if text else LIBTPU_HEADER
        self._lines: dict[int, _Line] = {}  # by offset: records near each other share lines, each is parsed once
        self._walked: tuple[int, int, Header | None] | None = None  # offsets of the last line searched, and its header

    def append(self, data: bytes) -> None:
        """Take the stream's next bytes."""
        if self._text and b"\r" in data:  # the carriage return of a progress bar begins a line; lengths must not change
            data = data.replace(b"\r\n", b" \n").replace(b"\r", b"\n")
        self.data = self.data + data if self.data else data

    def drop(self, size: int) -> None:
        """Forget the first `size` bytes."""
        if size:
            self.offset += size
            self.data = self.data[size:]
            self._lines = {offset: line for offset, line in self._lines.items() if offset >= self.offset}

    def complete(self) -> int:
        """The end of the complete lines; an overlong line is processed in pieces."""
        end = self.data.rfind(b"\n") + 1
        return end if len(self.data) - end <= MAX_RECORD else len(self.data)

    def record(self, position: int, end: int) -> LogRecord:
        """The record around `position`, as far as known at `end`."""
        line = self._line_start(position)
        start, header = self._walk_back(line)
        if header is not None and (start == line or not self._text):
            return LogRecord(start, *self._stop(line, position, end, header))
        above = (start, header) if header is not None else None
        stop = self._stop(line, position, end, None, AHEAD_BYTES, AHEAD_LINES)
        return LogRecord(self._unframed_start(line), *stop, above)

    def extend(self, record: LogRecord, end: int, again: int, before: int) -> LogRecord:
        """The record with the records or lines that belong to its report, up to `again` at most.

        libtpu 0.0.23 and older prints a report as many records, jobs print it as many lines. At `again`, where the
        literal of the report is repeated, another report begins. One before it began at `before`, or earlier.
        """
        stop, header = record.stop, record.header
        if header is None:
            upto = self._line_start(again) if again < end else end
            stop, _, closed = self._stop(record.start, min(stop, upto) - 1, upto, None)
            closed = closed or stop == upto < end or stop - record.start >= MAX_RECORD
            return LogRecord(record.start, stop, header, closed, record.above)
        closed = record.closed
        start, first = self._headline(record.start, header)
        if start > before:
            header = first
        else:
            start = record.start
        while stop < end and stop - start < MAX_RECORD:
            following = self._header(stop)
            if following is None or not following.same_report(header):
                return LogRecord(start, stop, header, closed=True)
            after, _, closed = self._stop(stop, stop, end, following)
            if again < after:
                return LogRecord(start, stop, header, closed=True)
            stop = after
        return LogRecord(start, stop, header, (closed and stop < end) or stop - start >= MAX_RECORD)

    def _headline(self, start: int, header: Header) -> tuple[int, Header]:
        """Where a report begins whose lines are records, and the header there: a few lines before, not indented.

        In a job's output another author may have written these.
        """
        at, here = start, header
        for _ in range(0 if self._text else _BACK_LINES):
            if not self.data.startswith((b"  ", b"\n"), at + here.length):
                return at, here
            above, before = self._walk_back(self._line_start(at - 1)) if at else (0, None)
            if before is None or not before.same_report(header):
                break
            at, here = above, before
        return start, header

    def line_end(self, position: int, end: int) -> int:
        """The position just after the line that holds `position`, at most `end`."""
        found = self.data.find(b"\n", position, end)
        return end if found < 0 else found + 1

    def line_around(self, position: int, end: int) -> tuple[int, int]:
        """Where the line that holds `position` begins and ends, up to `end`."""
        return self._line_start(position), self.line_end(position, end)

    def header(self, start: int) -> Header | None:
        """The header of the line at `start`."""
        return parse_header(self.data, start, self.pattern, self._text)

    def header_of(self, line: bytes) -> Header | None:
        """The header of a line of this stream."""
        return parse_header(line, 0, self.pattern, self._text)

    def places_of(self, line: bytes) -> LinePlaces:
        """Where header, message and author are in a line of this stream, which has no newline."""
        return LinePlaces(
            header_places(line, self.pattern, self._text),
            plain_span(line, self.pattern, self._text),
            tuple(author_places(line)) if self._text else (),
        )

    def text_of(self, line: bytes) -> bytes:
        """The clean text of a record of one line, which has no newline."""
        return clean_line(line, self.pattern, self._text) + b"\n"

    def is_line(self, record: LogRecord) -> bool:
        """Whether a record is one line, and begins by itself and not because another one ends."""
        begins = record.header is not None or self._breaks(record.start)
        return begins and self.data.find(b"\n", record.start) + 1 == record.stop

    def headless_up_to(self, start: int) -> int:
        """Up to where lines from `start` on can be in no record with a header; `start` if that one may be."""
        found = _HEADER_PART.search(self.data, max(0, start - _HEADER_BACK))
        return len(self.data) if found is None else max(start, found.start())

    def begins_record(self, start: int) -> bool:
        """Whether the line at `start` begins a record."""
        return self._header(start) is not None or self._breaks(start)

    def context(self, end: int) -> int:
        """The position from which data must be kept to frame a record that continues after `end`."""
        if not end:
            return 0
        line = self._line_start(end - 1)
        start, header = line, self._header(line)
        if header is None and (not self._text or self._may_have_header(line)):
            start, header = self._walk_back(line)
        if header is not None:
            return max(self._headline(start, header)[0], end - MAX_RECORD)
        if line >= end - _BACK_BYTES:
            return self._unframed_start(line)
        return end if self.data[end - 1 : end] == b"\n" else end - _BACK_BYTES  # of a long line none, or its last part

    def _may_have_header(self, line: int) -> bool:
        """Whether a header can be above `line`. In quiet text a look at each line would cost more than all else."""
        return _HEADER_PART.search(self.data, max(0, line - _HEADER_BACK), line) is not None

    def clean(self, record: LogRecord) -> CleanText:
        """The record's clean text, and the positions of its lines."""
        raw = self.data[record.start : record.stop]
        if record.header is not None and self._is_plain(raw, record.header):
            return CleanText(raw[record.header.length :], [0], [record.start])
        lines, starts, offsets, size, at = list[bytes](), list[int](), list[int](), 0, record.start
        while at < record.stop:
            indented = _INDENTED.match(self.data, at, record.stop)
            if indented is not None:
                clean, stop = indented.group(), indented.end()
                begins = [0, *(newline.end() for newline in _NEWLINE.finditer(clean))][:-1]
                starts += [size + begin for begin in begins]
                offsets += [at + begin for begin in begins]
            else:
                line = self._line(at)
                stop = min(line.stop - self.offset, record.stop)
                clean = self._clean(line, at, stop)
                starts.append(size)
                offsets.append(at)
            lines.append(clean)
            size += len(clean)
            at = stop
        return CleanText(b"".join(lines), starts, offsets)

    def clean_line(self, start: int) -> bytes:
        """The clean text of the line at `start`, without its newline."""
        line = self._line(start)
        return self._clean(line, start, line.stop - self.offset).removesuffix(b"\n")

    def _clean(self, line: _Line, start: int, stop: int) -> bytes:
        """The text of a line without decorations, ended by a newline; kept if it is the whole line."""
        if line.clean is not None and line.stop == self.offset + stop:
            return line.clean
        clean = clean_line(self.data[start:stop].removesuffix(b"\n"), self.pattern, self._text) + b"\n"
        if line.stop == self.offset + stop:
            line.clean = clean
        return clean

    def _is_plain(self, raw: bytes, header: Header) -> bool:
        """Whether only the header must be removed from a framed record. (Only unframed text needs line positions.)"""
        if b"\x1b" in raw:
            return False
        if self._text:
            return raw.find(b"\n") in (-1, len(raw) - 1) and not raw.startswith(JSON_FILE)
        return b"\n" + header.raw[:1] not in raw  # no line of it can have its own header

    def _walk_back(self, line: int) -> tuple[int, Header | None]:
        """The header of the record that contains the line at `line`, and its position."""
        start, header = line, self._header(line)
        while header is None and start > 0 and line - start < _HEADER_BACK and not self._breaks(start):
            start = self._line_start(start - 1)
            if self._walked is not None and self._walked[0] == self.offset + start:  # searched just before
                start, header = self._walked[1] - self.offset, self._walked[2]
                break
            header = self._header(start)
        if start < 0:  # its header is no longer in the buffer
            start, header = 0, None
        self._walked = (self.offset + line, self.offset + start, header)
        return start, header if line - start <= _HEADER_BACK else None

    def _unframed_start(self, line: int) -> int:
        """Where the record of an unframed line begins: with a few lines of context."""
        start = line
        for _ in range(_BACK_LINES):
            if start == 0 or self._breaks(start) or self._header(start) is not None:
                break
            before = self._line_start(start - 1)
            if before < line - _BACK_BYTES:
                break
            start = before
        return start

    def _stop(
        self,
        start: int,
        position: int,
        end: int,
        header: Header | None,
        limit: int = MAX_RECORD,
        lines: int | None = None,
    ) -> tuple[int, Header | None, bool]:
        """Where the record of the line at `start` ends, after `position`, and whether that is final.

        `limit`, `lines`: how many bytes and lines after `position` belong to it at most.
        """
        stop, count = start, 0
        upto = self.line_end(min(position + limit, end), end)
        while stop <= position or (stop - position <= limit and (lines is None or count < lines)):
            stop = self.line_end(stop, end)
            if lines is None and (indented := _INDENTED.match(self.data, stop, upto)) is not None:
                stop = indented.end()
            count += 1
            if stop >= end:
                return end, header, end - position > limit
            if self._header(stop) is not None or self._breaks(stop):
                return stop, header, True
        return stop, header, True

    def _line(self, start: int) -> _Line:
        """The line at `start`, up to its newline or the end of the data."""
        line = self._lines.get(self.offset + start)
        if line is None:
            newline = self.data.find(b"\n", start)
            stop = newline + 1 if newline >= 0 else len(self.data)
            header = parse_header(self.data, start, self.pattern, self._text)
            breaks = header is None and self._text and _is_break(self.data, start)
            line = _Line(self.offset + stop, header, breaks=breaks)
            if newline >= 0:  # an incomplete line may be a header, or another, when more has come
                self._lines[self.offset + start] = line
        return line

    def _header(self, start: int) -> Header | None:
        if not self._text and self.data[start : start + 1] not in _FIRST:
            return None  # one byte excludes most lines without a header
        return self._line(start).header

    def _breaks(self, start: int) -> bool:
        """Whether an unframed line begins a new record."""
        return self._text and self._line(start).breaks

    def _line_start(self, position: int) -> int:
        lowest = max(0, position - MAX_RECORD)
        found = self.data.rfind(b"\n", lowest, position)
        return lowest if found < 0 else found + 1


def _is_break(text: bytes, start: int) -> bool:
    return TEXT_BREAK.match(text, start + decoration_length(text, start)) is not None
