"""Lines of one shape that were counted and not read, and the matches that they stand for.

All lines of a shape have the same length, and the same fields in the same places: of many only the keys are made, which
are the same in every copy of a record. The matches are made when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from tpuwatch.logs.parse.frame import author_of
from tpuwatch.logs.parse.keys import KEYED_TEXT, framed_key, framed_keys, unframed_key, unframed_keys
from tpuwatch.logs.parse.match import Match, Repeats, matched_lines
from tpuwatch.logs.parse.records import MAX_RECORD
from tpuwatch.model import MAX_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from tpuwatch.logs.parse.frame import Times
    from tpuwatch.logs.parse.line_counter import LineCounter
    from tpuwatch.logs.parse.records import LinePlaces, RecordBuffer
    from tpuwatch.logs.rules.catalogue import Rule


@dataclass(slots=True)
class CountedLines:
    """The lines of one shape in a block that were counted, and the rules of their matches."""

    rules: frozenset[Rule]
    lines: list[bytes] = field(default_factory=list)  # without newlines
    offsets: list[int] = field(default_factory=list)  # in the stream


class LineMatches:
    """Makes the matches of lines of which it is known what comes of them."""

    def __init__(self, buffer: RecordBuffer, times: Times, lines: LineCounter | None, salt: str, *, text: bool) -> None:
        """`text`: lines may have an author."""
        self._buffer = buffer
        self._times = times
        self._lines = lines
        self._salt = salt
        self._text = text

    def last(self, counted: CountedLines) -> Iterator[Match]:
        """For each rule the match of the last line, with the others as its repeats."""
        *lines, line = counted.lines
        *offsets, offset = counted.offsets
        places = self._buffer.places_of(line)
        header = None if places.header is None else slice(places.header.start, places.header.stop)
        for rule in counted.rules:
            match = self._match_of(rule, line, offset)
            if lines and rule.cause is not None:
                keys, values = partial(self._keys_of, places, rule), partial(self._values_of, places, rule, line)
                repeats = Repeats(lines, offsets, partial(self._match_of, rule), keys, values, header)
                match = replace(match, repeats=repeats)
            yield match

    def _match_of(self, rule: Rule, line: bytes, offset: int) -> Match:
        """The match of a rule in a line, without its newline."""
        text, header = self._buffer.text_of(line), self._buffer.header_of(line)
        time, severity, thread, raw = None, "", None, b""
        if header is None:
            key = unframed_key(self._salt, offset, text, rule.name)
        else:
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
            rule.details(text),
            key,
            author_of(line, 0) if self._text else "",
            header=raw,
        )

    def _texts_of(self, places: LinePlaces, lines: Sequence[bytes], most: int = MAX_RECORD) -> list[bytes]:
        """The clean texts of lines, `most` bytes of each, without newlines."""
        if places.message is None:
            return [self._buffer.text_of(line)[:-1][:most] for line in lines]
        start, stop = places.message
        return list(map(itemgetter(slice(start, min(stop, start + most))), lines))

    def _keys_of(self, places: LinePlaces, rule: Rule, lines: Sequence[bytes], offsets: Sequence[int]) -> list[bytes]:
        header, texts = places.header, self._texts_of(places, lines, KEYED_TEXT)
        if header is None:
            return unframed_keys(self._salt, offsets, texts, rule.name)
        return framed_keys(header, lines, texts, rule.name)

    def _values_of(self, places: LinePlaces, rule: Rule, line: bytes, lines: Sequence[bytes]) -> dict[str, list[Any]]:
        """The values of each detail in these lines, of numbers the lowest and the highest.

        They differ in digits alone, so that they are where they are in `line`, and have the same order as texts.
        """
        texts = set(self._texts_of(places, lines))
        values: dict[str, list[Any]] = {}
        for name, start, stop in rule.places(self._buffer.text_of(line)):
            stated = sorted(set(map(itemgetter(slice(start, stop)), texts)))
            ends = [rule.value(name, stated[0]), rule.value(name, stated[-1])]
            if None in ends:
                continue
            texts_kept = stated[: MAX_VALUES + 1]
            values.setdefault(
                name, ends if not isinstance(ends[0], str) else [rule.value(name, one) for one in texts_kept]
            )
        return values
