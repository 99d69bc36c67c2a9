"""The matches of lines of known shapes in one stream, one by one or many together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.frame import author_of
from tpuwatch.logs.parse.match import (
    KEYED_TEXT,
    Match,
    framed_key,
    framed_keys,
    matched_lines,
    unframed_key,
    unframed_keys,
)
from tpuwatch.logs.parse.records import MAX_RECORD
from tpuwatch.logs.parse.repeats import LEAST, Repeats, find_run
from tpuwatch.model import MAX_VALUES

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from tpuwatch.logs.parse.exception_chains import ExceptionChains
    from tpuwatch.logs.parse.frame import Times
    from tpuwatch.logs.parse.known_lines import KnownLine, KnownLines
    from tpuwatch.logs.parse.line_counter import LineCounter
    from tpuwatch.logs.parse.records import RecordBuffer
    from tpuwatch.logs.parse.repeats import Group, RepeatRun
    from tpuwatch.logs.rules.catalogue import Rule

_NO_DATE: Final = b"0000 "  # absl before its initialisation: the seconds are the Unix time


class Storm:
    """Makes the matches of lines of which it is known what comes of them."""

    def __init__(
        self,
        known: KnownLines,
        buffer: RecordBuffer,
        times: Times,
        lines: LineCounter | None,
        chains: ExceptionChains,
        salt: str,
    ) -> None:
        self._known = known
        self._buffer = buffer
        self._times = times
        self._lines = lines
        self._chains = chains
        self._salt = salt

    def match_of(
        self, known: KnownLine, rule: Rule, places: list[tuple[str, int, int]], line: bytes, offset: int
    ) -> Match:
        """The match of a rule in a line of this shape, without its newline; `places`: of its details."""
        text = self._text_of(known, line)
        time, severity, thread, raw = None, "", None, b""
        if known.places.header is None:
            key = unframed_key(self._salt, offset, text, rule.name)
        else:
            header = self._buffer.header_of(line)
            if header is None:
                raise ValueError(f"a line of a known shape has no header: {line!r}")
            time, severity, thread, raw = self._times.of(header), header.severity, header.thread, header.raw
            key = framed_key(header, text, rule.name)
        return Match(
            rule,
            offset,
            self._lines.line(offset) if self._lines is not None else 0,
            time,
            severity,
            thread,
            matched_lines(text, 0, len(text)),
            rule.details_at(text, places),
            key,
            author_of(line, 0) if known.places.author else "",
            header=raw,
        )

    def run(self, start: int, end: int) -> RepeatRun | None:
        """The lines from the position `start` on that may be taken together; None if they are few or may not."""
        run = find_run(self._buffer, self._known, start, end)
        if run is None or not all(map(self._have_times, run.groups)):
            return None
        authors = {group.author for group in run.groups if group.known.places.header is None}
        return run if self._chains.is_first(authors, self._buffer.offset + start) else None

    def matches(self, group: Group) -> Iterator[Match]:
        """For each rule the match of the last line, with the others as its repeats; of few lines, that of each."""
        place = group.known.places.header
        header = None if place is None else slice(place.start, place.stop)
        for rule, places in group.known.faults:
            match_of = partial(self.match_of, group.known, rule, places)
            if len(group.lines) < LEAST:
                yield from map(match_of, group.lines, group.offsets)
                continue
            keys_of = partial(self._keys_of, group.known, rule)
            values_of = partial(self._values_of, group.known, rule, places)
            before = Repeats(group.lines[:-1], group.offsets[:-1], match_of, keys_of, values_of, header)
            yield replace(match_of(group.lines[-1], group.offsets[-1]), repeats=before)

    def marks(self, run: RepeatRun, start: int, stop: int, enough: Container[Rule]) -> Iterator[Match]:
        """The marks of the run between two offsets; `enough`: of which rules there are enough, and may grow."""
        for offset, known, line in run.marks[bisect_left(run.marks, (start,)) : bisect_left(run.marks, (stop,))]:
            for rule, places in known.marks:
                if rule not in enough:
                    yield self.match_of(known, rule, places, line, offset)

    def next(self, start: int, end: int) -> int:
        """Where the first line begins from `start` on that is a fault and may be taken together, or `end`."""
        data = self._buffer.data
        while start < end:
            stop = self._buffer.line_end(start, end)
            if self._known.is_repeating(data[start : stop - 1]):
                return start
            start = stop
        return end

    def _text_of(self, known: KnownLine, line: bytes) -> bytes:
        if known.places.message is None:
            return self._buffer.text_of(line)
        start, stop = known.places.message
        return line[start:stop] + b"\n"

    def _texts_of(self, known: KnownLine, lines: Sequence[bytes], most: int = MAX_RECORD) -> list[bytes]:
        """The clean texts of lines of this shape, `most` bytes of each, without newlines."""
        if known.places.message is None:
            return [self._buffer.text_of(line)[:-1][:most] for line in lines]
        start, stop = known.places.message
        return list(map(itemgetter(slice(start, min(stop, start + most))), lines))

    def _keys_of(self, known: KnownLine, rule: Rule, lines: Sequence[bytes], offsets: Sequence[int]) -> list[bytes]:
        header, texts = known.places.header, self._texts_of(known, lines, KEYED_TEXT)
        if header is None:
            return unframed_keys(self._salt, offsets, texts, rule.name)
        return framed_keys(header, lines, texts, rule.name)

    def _values_of(
        self, known: KnownLine, rule: Rule, places: list[tuple[str, int, int]], lines: Sequence[bytes]
    ) -> dict[str, list[Any]]:
        """The values of each detail in these lines, of numbers the lowest and the highest.

        They differ in digits alone, so that they have the same order as texts.
        """
        texts = set(self._texts_of(known, lines))
        values: dict[str, list[Any]] = {}
        for name, start, stop in places:
            stated = sorted(set(map(itemgetter(slice(start, stop)), texts)))
            ends = [rule.value(name, stated[0]), rule.value(name, stated[-1])]
            if None in ends:
                continue
            texts_kept = stated[: MAX_VALUES + 1]
            values.setdefault(
                name, ends if not isinstance(ends[0], str) else [rule.value(name, one) for one in texts_kept]
            )
        return values

    def _have_times(self, group: Group) -> bool:
        """Whether each line of it that has a header gives a time by it in full."""
        header = group.known.places.header
        if header is None:
            return True
        minutes = dict(zip(map(itemgetter(slice(header.date, header.seconds)), group.lines), group.lines, strict=True))
        return all(
            not minute.startswith(_NO_DATE) and self._time_of(line) is not None for minute, line in minutes.items()
        )

    def _time_of(self, line: bytes) -> float | None:
        header = self._buffer.header_of(line)
        return None if header is None else self._times.of(header)
