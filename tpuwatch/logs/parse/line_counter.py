"""Counters over a stream, at the speed of a byte search: records by severity, and line numbers."""

from __future__ import annotations

import re
from collections import deque


class RecordCounter:
    """Counts the records of one severity: each is once in the file of its own severity, and copied to others."""

    def __init__(self, severity: str, offset: int) -> None:
        self.severity = severity
        self._header = re.compile(rb"^" + severity.encode() + rb"\d{4} ", re.MULTILINE)
        self._upto = offset
        self._count = 0

    def take(self) -> int:
        """Records since the last call."""
        taken, self._count = self._count, 0
        return taken

    def count(self, data: bytes, offset: int, end: int) -> None:
        """Count records in `data`, which begins at `offset` of the stream, up to the `end` of a line; nothing twice."""
        start = self._upto - offset
        if start >= end:
            return
        self._upto = offset + end
        first = self._header.search(data, start, end)
        if first is None:
            return
        header = first.group()
        last = data.rfind(b"\n" + header[:1], start, end)
        if last < 0 or data[last + 1 : last + 1 + len(header)] == header:
            # All of one day: a plain search for severity and date counts a gigabyte in half a second, and without the
            # date's last digit faster still: Python looks for six bytes in another way. (Where threads overtake each
            # other at midnight, and a chunk ends there, a record of the other day may be missed.)
            self._count += 1 + data.count(b"\n" + header[:4], first.end(), end)
        else:
            self._count += sum(1 for _ in self._header.finditer(data, start, end))


class LineCounter:
    """Line numbers for offsets of a stream, queried roughly in the order in which it is fed."""

    def __init__(self, memory: int) -> None:
        """`memory`: how many bytes before the newest may still be queried."""
        self._memory = memory
        self._chunks: deque[tuple[int, int, bytes]] = deque()  # offset, line at the offset, data
        self._size = 0
        self._line = 1  # at the end of the newest chunk
        self._last = (0, 1)  # the last query that was answered: offset and line

    def append(self, data: bytes) -> None:
        """Take the stream's next bytes, as they are in the file."""
        while len(self._chunks) > 1 and self._chunks[1][0] < self._size - self._memory:
            self._chunks.popleft()
        self._chunks.append((self._size, self._line, data))
        self._size += len(data)
        self._line += data.count(b"\n")

    def line(self, offset: int) -> int:
        """The number, from 1, of the line that holds the byte at `offset`."""
        for start, line, data in reversed(self._chunks):
            if start < offset or start == self._chunks[0][0]:
                at, line = self._last if start <= self._last[0] <= offset else (start, line)
                self._last = (offset, line + data.count(b"\n", at - start, max(offset - start, 0)))
                return self._last[1]
        return 1
