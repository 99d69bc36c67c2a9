"""Parses bytes into matches: one parser per followed stream.

A parser is fed bytes, split anywhere, and returns the records that rules recognise. It holds back only what a later
byte could change: the last record and, in unframed text, a few lines of context. Everything below `offset` is
processed; `state()` is what a parser started there must know, so that a stream can be resumed after any interruption
without a match lost or doubled.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.logs.parse.enough import Enough
from tpuwatch.logs.parse.exception_chains import ExceptionChains
from tpuwatch.logs.parse.frame import Times, author_of, without_colours
from tpuwatch.logs.parse.keys import framed_key, unframed_key
from tpuwatch.logs.parse.known_lines import HitLine, KnownLines
from tpuwatch.logs.parse.line_counter import LineCounter, RecordCounter
from tpuwatch.logs.parse.match import Match, matched_lines
from tpuwatch.logs.parse.oom_kills import OomKills
from tpuwatch.logs.parse.records import MAX_RECORD, LogRecord, RecordBuffer
from tpuwatch.logs.parse.repeats import LineMatches
from tpuwatch.logs.parse.reports import Reports
from tpuwatch.logs.parse.tentative import TentativeMatches
from tpuwatch.logs.rules.marks import CHAIN_MARKS
from tpuwatch.model import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.logs.parse.frame import Header
    from tpuwatch.logs.parse.records import CleanText
    from tpuwatch.logs.parse.scan import Hit, Scanner
    from tpuwatch.logs.rules.catalogue import Rule

_UNKNOWN: Final = Cause.UNKNOWN_FAILURE.value  # counts only where the same lines say nothing else


class StreamKind(Enum):
    """The kind of a stream: a tpu_driver.* file of libtpu, or any other text (a job's output, a paste)."""

    LIBTPU = "libtpu"
    TEXT = "text"


class LogParser:
    """Parses the bytes of one stream into matches; see the module's docstring."""

    def __init__(
        self,
        scanner: Scanner,
        kind: StreamKind,
        *,
        now: float,
        severity: str = "",
        offset: int = 0,
        state: Mapping[str, Any] | None = None,
        count_lines: bool = False,
        fold: bool = False,
    ) -> None:
        """`severity` (I, W, E, F): of the file, whose records are counted. `now`: to guess missing years.

        `fold`: of many records of one shape only the last is a match, with its `repeats`, the number of the others.
        """
        state = state or {}
        self.open = False  # the last record may hold a match: call settle() when the stream is quiet
        self._scanner = scanner
        self._kind = kind
        self._buffer = RecordBuffer(offset, text=kind is StreamKind.TEXT)
        self._done = max(offset, int(state.get("done", offset)))  # the literals below are processed
        self._salt = str(
            state.get("salt") or os.urandom(8).hex()
        )  # a rewritten file may have the same text at the same place
        created = state.get("created")
        self._times = Times(now, tuple(created) if created else None)
        self._tentative = TentativeMatches(state.get("pending", ()), scanner.catalogue.rules)
        self._enough = Enough(scanner, of_process=kind is StreamKind.LIBTPU)
        self._reports = Reports(state)
        self._read_upto = -1  # where the last fault ends that was read in this block
        # Rules that the line has matched of which so far pieces were processed; None where the last line has ended.
        self._in_overlong = set[str](state["overlong"]) if "overlong" in state else None
        self._chains = ExceptionChains(state.get("chains", {}))
        self._oom_kills = OomKills(state.get("oom_kills", {}), scanner.catalogue.rules)
        self._records = RecordCounter(severity, self._done) if severity else None
        self._lines = LineCounter(4 * MAX_RECORD) if count_lines else None
        is_text = kind is StreamKind.TEXT
        matches = LineMatches(self._buffer, self._times, self._lines, self._salt, text=is_text)
        self._known = KnownLines(
            scanner, self._buffer, matches, self._enough, self._reports, self._tentative, fold=fold
        )

    @property
    def offset(self) -> int:
        """All bytes below are processed: with state(), a new parser may start here."""
        return self._buffer.offset

    @property
    def done(self) -> int:
        """The matches that begin below are given, but for those that wait for what confirms them."""
        return self._done

    def feed(self, data: bytes) -> list[Match]:
        """Take the next bytes; returns the matches that are final now."""
        if self._lines is not None:
            self._lines.append(data)
        self._enough.begin()
        self._buffer.append(data)
        return self._advance(self._buffer.complete())

    def settle(self) -> list[Match]:
        """The stream is quiet: return the matches of the last record too, as far as its lines are complete."""
        matches = self._advance(self._buffer.complete(), quiet=True)
        self.open = False
        return matches + self._oom_kills.settle(ended=False)

    def finish(self) -> list[Match]:
        """The stream has ended: return all matches, including those of a last line without a newline."""
        end = len(self._buffer.data)
        matches = self._advance(end, quiet=True)
        self._buffer.drop(len(self._buffer.data))
        return matches + self._oom_kills.settle(ended=True)

    def state(self) -> dict[str, Any]:
        """What a parser started at `offset` must know; small, in JSON types."""
        state: dict[str, Any] = {"done": self._done, "salt": self._salt, **self._reports.state(self.offset)}
        if self._times.created:
            state["created"] = list(self._times.created)
        if chains := self._chains.state(self.offset):
            state["chains"] = chains
        if oom_kills := self._oom_kills.state():
            state["oom_kills"] = oom_kills
        if self._tentative:
            state["pending"] = self._tentative.state()
        if self._in_overlong is not None:
            state["overlong"] = sorted(self._in_overlong)
        return state

    def take_records(self) -> dict[str, int]:
        """Records of the file's own severity since the last call."""
        taken = self._records.take() if self._records is not None else 0
        return {self._records.severity: taken} if self._records is not None and taken else {}

    # -- the walk over the buffer

    def _advance(self, end: int, *, quiet: bool = False) -> list[Match]:
        buffer, matches = self._buffer, list[Match]()
        if buffer.offset == 0 and self._kind is StreamKind.LIBTPU:
            self._times.learn(buffer.data)
        done, keep, at = end, -1, 0
        self._known.begin_block()
        self._read_upto = -1
        hits = self._hits(self._first(), end)
        self.open = False
        while (at := self._known.next_unknown(hits, at)) < len(hits):
            position, called = hits[at][0], self._scanner.rules[hits[at][1]]
            if self._is_nothing(called, position, end):
                at += 1
                continue
            line = HitLine(hits, at, *buffer.line_around(position, end))
            record, rules, upto = self._gather(hits, at, end)
            if not (record.closed or quiet):
                done, keep, self.open = position, record.above[0] if record.above else record.start, True
                break
            matches += self._tentative.resolve(buffer.data, buffer.offset, position)
            by_itself = record.closed and line.stop < end and not self._known.may_be_in_report(line)
            found = self._evaluate(record, position, rules)
            self._known.learn(record, line, found if by_itself else None)
            matches += found
            if self._enough.ignores_too_much:
                hits, at = self._hits(upto, end), 0
            else:
                at = bisect_left(hits, (upto,), at)
        matches += self._tentative.resolve(buffer.data, buffer.offset, done)
        if counted := self._known.take_counted():
            matches = sorted([*matches, *self._with_marks(*counted, end)], key=lambda match: match.offset)
        self.open |= self._oom_kills.open
        if self._records is not None:
            self._records.count(buffer.data, buffer.offset, end)
        matches = self._once_a_line(matches, end)
        self._done = max(self._done, buffer.offset + done)
        buffer.drop(buffer.context(end) if keep < 0 else keep)
        return matches

    def _first(self) -> int:
        """The position below which the literals are processed."""
        return max(0, self._done - self._buffer.offset)

    def _hits(self, first: int, end: int) -> list[Hit]:
        """The literals from a position on, in order, but for those that are ignored."""
        if first >= end:
            return []
        if self._enough.ignores_too_much:
            self._enough.ignored = frozenset()
        begin = self._buffer.line_around(first, end)[0]
        text, place = without_colours(self._buffer.data[begin:end])
        hits, lengths = self._scanner.find(text, self._enough.ignored, 0 if place else begin), self._scanner.lengths
        if place is not None:
            hits = [(begin + place(position + 1) - 1, literal) for position, literal in hits]
        while hits and hits[-1][0] + lengths[hits[-1][1]] > end:
            hits.pop()
        return hits[bisect_left(hits, (first,)) :]

    def _once_a_line(self, matches: list[Match], end: int) -> list[Match]:
        """The matches, without those of a rule that an earlier piece of the same overlong line has matched."""
        data, offset = self._buffer.data, self._buffer.offset
        if (known := self._in_overlong) is not None:
            newline = data.find(b"\n", max(0, self._done - offset), end)
            stop = offset + (newline if newline >= 0 else end)
            again = [match for match in matches if match.offset < stop and match.rule.id in known]
            known.update(match.rule.id for match in matches if match.offset < stop)
            matches = [match for match in matches if match not in again]
            if newline < 0:
                return matches
            self._in_overlong = None
        if end and not data.endswith(b"\n", 0, end):
            start = offset + data.rfind(b"\n", 0, end) + 1
            self._in_overlong = {match.rule.id for match in matches if match.offset >= start}
        return matches

    def _is_nothing(self, rules: Iterable[Rule], position: int, end: int) -> bool:
        """Whether a hit of `rules` need not be looked at."""
        if self._enough.rules.issuperset(rules) or self._continue(rules, position):
            return True
        return self._is_cleared(rules, position, end)

    def _is_cleared(self, rules: Iterable[Rule], position: int, end: int) -> bool:
        """True if later text shows that no match of `rules` at `position` counts."""
        waiting = [rule.tentative for rule in rules]
        if None in waiting:
            return False
        start = self._buffer.line_end(position, end)
        return all(one is not None and one.is_cleared(self._buffer.data, start, end) for one in waiting)

    def _continue(self, rules: Iterable[Rule], position: int) -> bool:
        """Whether a hit of `rules` only continues a report."""
        return self._reports.continues(rules, self._buffer.offset + position)

    def _gather(self, hits: list[Hit], at: int, end: int) -> tuple[LogRecord, list[Rule], int]:
        """The record of hit `at`, the rules of the hits in it, and where the hits in it may be up to.

        In a job's output hits on the same line are taken to be in it.
        """
        position, called = hits[at][0], self._scanner.rules
        record = self._buffer.record(position, end)
        upto = self._reach(record, position, end)
        rules, after = self._called(hits, at, upto)
        if reports := {rule for rule in rules if rule.report}:
            report = next(literal for _, literal in hits[at:after] if not reports.isdisjoint(called[literal]))
            again = next((hits[i][0] for i in range(after, len(hits)) if hits[i][1] == report), end)
            before = self._reports.last_header(reports) - self._buffer.offset
            record = self._buffer.extend(record, end, again, before)
            upto = self._reach(record, position, end)
            rules, _ = self._called(hits, at, upto)
        return record, rules, upto

    def _reach(self, record: LogRecord, position: int, end: int) -> int:
        framed = record.header is not None and self._kind is StreamKind.LIBTPU
        return record.stop if framed else self._buffer.line_end(position, end)

    def _called(self, hits: list[Hit], at: int, upto: int) -> tuple[list[Rule], int]:
        """The rules of the hits from `at` up to `upto`, in the catalogue's order, and the hit after these.

        Hits that only continue a report call none.
        """
        of = self._scanner.rules
        called = set(of[hits[at][1]])
        after = at + 1
        while after < len(hits) and hits[after][0] < upto:
            position, literal = hits[after]
            if not self._continue(of[literal], position):
                called.update(of[literal])
            after += 1
        return sorted(called, key=self._scanner.order.__getitem__), after

    def _with_marks(self, last: list[Match], stop: int, end: int) -> list[Match]:
        """The matches of lines that were counted, up to position `stop`, and the marks that come after all faults."""
        self._chains.add(last)
        if stop <= self._read_upto:  # another fault was read since
            return last
        were = self._enough.rules - self._scanner.settled
        self._count([match.rule for match in last], self._buffer.offset + stop)
        for position, literal in self._hits(stop, end):
            called = self._scanner.rules[literal]
            marks = [rule for rule in called if rule in were and rule not in self._enough.rules]
            if marks and position >= stop:
                record = self._buffer.record(position, end)
                last += self._evaluate(record, position, marks)
                stop = self._buffer.line_end(position, end)
        return last

    def _evaluate(self, record: LogRecord, position: int, rules: Iterable[Rule]) -> list[Match]:
        """The matches of `rules` in a record: for each cause the one whose rule ranks first."""
        matches: dict[str, Match] = {}
        clean = self._buffer.clean(record)
        for rule in rules:
            if rule in self._enough.rules:
                continue
            if record.header is not None:
                match = self._match_framed(rule, record.start, record.header, clean.text)
            else:
                match = self._match_unframed(rule, record, position, clean)
            if match is None:
                continue
            if rule.tentative is not None:
                self._tentative.add(match, self._buffer.offset + record.stop)
                continue
            name = rule.name
            if name not in matches or rule.rank < matches[name].rule.rank:
                matches[name] = match
        if any(match.rule.cause is not None for name, match in matches.items() if name != _UNKNOWN):
            matches.pop(_UNKNOWN, None)
        if self._tentative and matches:
            self._tentative.give_way(matches)
        self._count([match.rule for match in matches.values()], self._buffer.offset + record.stop)
        if self._kind is StreamKind.LIBTPU:
            return list(matches.values())
        return [one for match in matches.values() for one in self._told(match)]

    def _told(self, match: Match) -> list[Match]:
        """What is certain with a match in a job's output, or in the kernel's log."""
        if match.rule.kill:
            return self._oom_kills.take(replace(match, author=self._author(match)))
        return [self._in_chain(match)]

    def _author(self, match: Match) -> str:
        return author_of(self._buffer.data, match.offset - self._buffer.offset)

    def _in_chain(self, match: Match) -> Match:
        """The match with its author, and the key of the first one if it is of an exception that was printed before."""
        author = self._author(match)
        first = None
        if match.rule.mark in CHAIN_MARKS:
            self._chains.mark(match.rule.mark, author, match.offset, str(match.details.get("frame", "")))
        elif match.time is None and self._chains.may_know(match.offset):
            first = self._chains.first_key(match, author)
        if first is not None:
            return replace(match, author=author, key=first, again=True)
        return replace(match, author=author) if author else match

    def _count(self, rules: list[Rule], stop: int) -> None:
        """Take the matches of these rules in a record that stops at an offset."""
        for rule in rules:
            if rule.report:
                self._reports.end(rule.name, stop)
            if rule.cause is not None:
                self._read_upto = stop - self._buffer.offset
        self._enough.count(rules)

    def _match_framed(self, rule: Rule, start: int, header: Header, text: bytes) -> Match | None:
        if rule.severities and header.severity not in rule.severities:
            return None
        span = rule.search(text)
        # In a job's output another author may go on after the first line: that is looked at by itself.
        begin = len(text) if self._kind is StreamKind.LIBTPU else text.find(b"\n") + 1 or len(text)
        if span is None or span[0] >= begin:
            return None
        offset = self._buffer.offset + start
        self._reports.is_first_under(rule, offset)
        return Match(
            rule,
            offset,
            self._lines.line(offset) if self._lines is not None else 0,
            self._times.of(header),
            header.severity,
            header.thread,
            matched_lines(text, *span),
            rule.details(text),
            framed_key(header, text, rule.name),
            header=header.raw,
        )

    def _match_unframed(self, rule: Rule, record: LogRecord, position: int, clean: CleanText) -> Match | None:
        """A match that touches the line at `position`, unless a match of the same cause covers it already."""
        if rule.severities and record.above is not None and record.above[1].severity not in rule.severities:
            return None
        here = bisect_right(clean.offsets, position) - 1
        first = clean.starts[here]
        last = clean.starts[here + 1] if here + 1 < len(clean.starts) else len(clean.text)
        span = rule.search(clean.text, first, last)
        if span is None:
            return None
        line = bisect_right(clean.starts, span[0]) - 1
        if rule.cause is not None and clean.is_quoted(line, span[0]):
            return None  # the exception's own line follows
        offset, name = self._buffer.offset + clean.offsets[line], rule.name
        if self._reports.is_reported(name, offset):
            return None
        if rule.tentative is None:
            self._reports.report(name, self._buffer.offset + record.stop if rule.report else offset + 1)
        text = clean.text[clean.starts[line] :]
        above = self._under_header(record.above, rule)
        severity, key, header = above or ("", unframed_key(self._salt, offset, text, name), b"")
        return Match(
            rule,
            offset,
            self._lines.line(offset) if self._lines is not None else 0,
            None,
            severity,
            None,
            matched_lines(clean.text, *span),
            rule.details(text),
            key,
            header=header,
        )

    def _under_header(self, above: tuple[int, Header] | None, rule: Rule) -> tuple[str, bytes, bytes] | None:
        """Of a cause's first match under a header severity, key and header: the record may be in libtpu's log too."""
        if above is None or not self._reports.is_first_under(rule, self._buffer.offset + above[0]):
            return None
        start, header = above
        return header.severity, framed_key(header, self._buffer.clean_line(start), rule.name), header.raw
